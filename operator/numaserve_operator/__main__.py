"""Entry point of the operator's image: `python3 -m numaserve_operator`."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from numaserve_api.quantity import parse_bytes
from numaserve_operator.domain.snapshot import ArtifactCache
from numaserve_operator.runtime.main import Settings, own_namespace, run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    serving_image: Annotated[
        str, typer.Option(envvar="NUMASERVE_SERVING_IMAGE", help="Image of servers that name none.")
    ],
    namespace: Annotated[str | None, typer.Option(envvar="NUMASERVE_NAMESPACE", help="Only this namespace.")] = None,
    workers: Annotated[int, typer.Option(envvar="NUMASERVE_WORKERS", min=1, max=128)] = 8,
    drain_seconds: Annotated[float, typer.Option(envvar="NUMASERVE_DRAIN_SECONDS", min=0)] = 10.0,
    threads_per_core: Annotated[int, typer.Option(envvar="NUMASERVE_THREADS_PER_CORE", min=1, max=8)] = 1,
    artifact_cache: Annotated[
        str | None,
        typer.Option(envvar="NUMASERVE_ARTIFACT_CACHE", help="Folder of every node that keeps fetched artifacts."),
    ] = None,
    artifact_cache_limit: Annotated[
        str, typer.Option(envvar="NUMASERVE_ARTIFACT_CACHE_LIMIT", help="Bytes it may hold on a node.")
    ] = "100Gi",
    artifact_cache_namespace: Annotated[
        list[str] | None, typer.Option(help="Only pods of this namespace use it; may be repeated. Default: all.")
    ] = None,
    metrics_port: Annotated[int, typer.Option(envvar="NUMASERVE_METRICS_PORT")] = 9090,
    health_port: Annotated[int, typer.Option(envvar="NUMASERVE_HEALTH_PORT")] = 8081,
    lease: Annotated[bool, typer.Option(help="Wait for the Lease before working.")] = True,
) -> None:
    """Run the numaserve operator."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for noisy in ("httpx", "kopf.objects"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    settings = Settings(
        serving_image=serving_image,
        operator_namespace=own_namespace(),
        namespace=namespace,
        workers=workers,
        drain_seconds=drain_seconds,
        threads_per_core=threads_per_core,
        metrics_port=metrics_port,
        health_port=health_port,
        lease=lease,
        artifact_cache=_cache(artifact_cache, artifact_cache_limit, artifact_cache_namespace or []),
    )
    sys.exit(run(settings))


def _cache(path: str | None, limit: str, namespaces: list[str]) -> ArtifactCache | None:
    """The node cache, checked here: a wrong limit would otherwise stop every pod that fetches."""
    if not path:
        return None
    if not path.startswith("/") or ".." in path.split("/") or path.strip("/") == "":
        raise typer.BadParameter(f"{path} must be an absolute path below the root", param_hint="--artifact-cache")
    try:
        bytes_ = parse_bytes(limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--artifact-cache-limit") from error
    if bytes_ <= 0:
        raise typer.BadParameter("must be above 0", param_hint="--artifact-cache-limit")
    return ArtifactCache(path, limit, frozenset(namespaces))


if __name__ == "__main__":
    app()
