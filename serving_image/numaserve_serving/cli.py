"""`numaserve serve DIR`: the pod's server on a laptop."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from numaserve_serving.threads import limit_library_threads


def serve(
    directory: Annotated[
        Path, typer.Argument(help="Artifact directory with config_deploy.yaml.", exists=True, file_okay=False)
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8080,
    cache: Annotated[Path | None, typer.Option(help="Where compiled graphs are kept.")] = None,
    probe_port: Annotated[int, typer.Option(hidden=True, help="Port for comparisons; 0 keeps it closed.")] = 0,
) -> None:
    """Serve an artifact with the OpenAI API on this machine, exactly as a pod would."""
    limit_library_threads()
    from numaserve_api import names
    from numaserve_api.manifest import CONFIG_FILE
    from numaserve_api.validate import InvalidDocument, parse_config
    from numaserve_serving.http.state import Identity, ServerState
    from numaserve_serving.logs import configure
    from numaserve_serving.server import Ports, run

    configure()
    path = directory / CONFIG_FILE
    try:
        config = parse_config(path.read_text())
    except (InvalidDocument, OSError) as error:
        typer.secho(f"{path}: {error}", fg="red", err=True)
        raise typer.Exit(2) from error
    identity = Identity(
        name=directory.resolve().name,
        revision=os.environ.get(names.ENV_REVISION, "local"),
        token_digest=os.environ.get(names.ENV_PROBE_TOKEN_DIGEST, ""),
    )
    state = ServerState(config, identity)
    folder = cache or Path(tempfile.gettempdir()) / "numaserve-cache"
    sys.exit(run(state, directory, folder, Ports(host=host, serving=port, probe=probe_port)))


app = typer.Typer(add_completion=False)
app.command()(serve)

if __name__ == "__main__":
    # `numaserve models compare` starts servers this way: it must not import them.
    typer.run(serve)
