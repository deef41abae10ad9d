"""`numaserve models hash|verify`."""

from __future__ import annotations

import typer

from numaserve_models.cli.common import Directory, guarded


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("hash")(hash_)
    app.command()(verify)


def hash_(directory: Directory) -> None:
    """Print an artifact's hash, as spec.config.model.hash wants it."""
    from numaserve_models.digest import artifact_hash

    typer.echo(guarded(lambda: artifact_hash(directory)))


def verify(directory: Directory) -> None:
    """Name every file that was changed, is missing or was added; exit code 1 if there is one."""
    from numaserve_models.digest import artifact_hash, find_faults

    faults = guarded(lambda: "\n".join(find_faults(directory)))
    if faults:
        typer.echo(faults)
        raise typer.Exit(1)
    typer.echo(f"whole: {artifact_hash(directory)}")
