"""`numaserve models hash|verify`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from numaserve_models.cli.common import Directory, console, guarded

if TYPE_CHECKING:
    from numaserve_models.digest import Verification

BAR_FROM_BYTES = 256 * 1024 * 1024
"""Below this a bar would be gone before it is seen."""
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON document.")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("hash")(hash_)
    app.command()(verify)


def hash_(directory: Directory, as_json: AsJson = False) -> None:
    """Print an artifact's hash, as spec.config.model.hash wants it: the manifest's; `verify` compares the files."""
    from numaserve_models.digest import artifact_hash

    digest = guarded(lambda: artifact_hash(directory))
    typer.echo(json.dumps({"directory": str(directory), "hash": digest}) if as_json else digest)


def verify(directory: Directory, as_json: AsJson = False) -> None:
    """Name every file that was changed, is missing, added, linked or cannot be read; exit code 1 if there is one."""
    found = guarded(lambda: _verified(directory))
    if as_json:
        typer.echo(json.dumps(_document(directory, found), indent=2))
    else:
        _tell(found)
    if not found.whole:
        raise typer.Exit(1)


def _verified(directory: Path) -> Verification:
    from numaserve_models import digest

    with _bar(digest.listed_bytes(directory)) as counted:
        return digest.verify(directory, counted)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], object]]:
    """Shows how far a large artifact is read."""
    if total < BAR_FROM_BYTES or not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("verifying"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda size: progress.update(task, advance=size)


def _tell(found: Verification) -> None:
    for fault in found.faults:
        typer.echo(str(fault))
    if found.config:
        typer.echo(f"config: {found.config}")
    if found.whole:
        typer.echo(f"whole: {found.digest}")


def _document(directory: Path, found: Verification) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "hash": found.digest,
        "whole": found.whole,
        "files": found.files,
        "bytes": found.bytes,
        "faults": [{"kind": f.kind.value, "path": f.path, "detail": f.detail} for f in found.faults],
        "config": found.config,
    }
