"""Entry point of the serving image: `python3 -m numaserve_serving --config … --artifact …`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from numaserve_api import names
from numaserve_serving.threads import limit_library_threads

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    config: Annotated[Path, typer.Option(help="config_deploy.yaml.")] = Path(names.CONFIG_FILE),
    artifact: Annotated[Path, typer.Option(help="Artifact directory.")] = Path(names.ARTIFACT_DIR),
    cache: Annotated[Path, typer.Option(help="Where compiled graphs are kept.")] = Path(names.CACHE_DIR),
) -> None:
    """Serve one artifact as its config says."""
    limit_library_threads()
    from numaserve_api.conditions import Reason
    from numaserve_api.validate import InvalidDocument, parse_config
    from numaserve_serving.http.state import Identity, ServerState
    from numaserve_serving.logs import configure
    from numaserve_serving.refusal import refuse
    from numaserve_serving.server import Ports, run

    configure()
    try:
        parsed = parse_config(config.read_text())
    except (InvalidDocument, OSError) as error:
        sys.exit(refuse(Reason.MANIFEST_MISMATCH, f"{config.name}: {error}"))
    environment = os.environ
    identity = Identity(
        name=environment.get(names.ENV_NAME, "model"),
        revision=environment.get(names.ENV_REVISION, "local"),
        token_digest=environment.get(names.ENV_PROBE_TOKEN_DIGEST, ""),
        cpus=int(environment[names.ENV_CPUS]) if environment.get(names.ENV_CPUS, "").isdigit() else None,
    )
    sys.exit(run(ServerState(parsed, identity), artifact, cache, Ports()))


if __name__ == "__main__":
    app()
