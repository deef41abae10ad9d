"""Verbs that need no cluster: lint a resource, render what would be created."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from numaserve_api import __version__, names
from numaserve_api.validate import InvalidDocument, parse_spec
from numaserve_operator.builders.assemble import plan
from numaserve_operator.domain.snapshot import Defaults, ParentView, Snapshot

FileOption = Annotated[Path, typer.Option("--file", "-f", help="EncoderDeployment YAML.", exists=True, dir_okay=False)]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(lint)
    app.command()(render)
    app.command()(version)


def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def lint(file: FileOption) -> None:
    """Check a resource as `kubectl apply` and the operator would; exit code 1 with one sentence a fault."""
    faults = 0
    for document in _documents(file):
        name = document.get("metadata", {}).get("name", "?")
        try:
            parse_spec(document)
        except InvalidDocument as error:
            for problem in error.problems:
                typer.echo(f"{name}: {problem}")
            faults += len(error.problems)
    if faults:
        raise typer.Exit(1)
    typer.echo("ok")


def render(
    file: FileOption,
    image: Annotated[str, typer.Option(help="Serving image of the operator.")] = "numaserve-serving:latest",
    operator_namespace: Annotated[str, typer.Option()] = "numaserve-system",
) -> None:
    """Print the children a resource would get, as the operator would apply them."""
    for document in _documents(file):
        try:
            manifests = _render(document, Defaults(image, operator_namespace))
        except InvalidDocument as error:
            for problem in error.problems:
                typer.secho(problem, fg="red", err=True)
            raise typer.Exit(1) from error
        typer.echo(yaml.safe_dump_all(manifests, sort_keys=False), nl=False)


def _render(document: dict[str, Any], defaults: Defaults) -> list[dict[str, Any]]:
    meta = document.get("metadata", {})
    parent = ParentView(
        name=meta.get("name", "unnamed"),
        namespace=meta.get("namespace", "default"),
        uid="00000000-0000-0000-0000-000000000000",
        generation=1,
        resource_version="0",
        spec=parse_spec(document),
    )
    return list(plan(Snapshot(now=datetime.fromtimestamp(0, UTC), parent=parent, defaults=defaults)).apply)


def _documents(file: Path) -> list[dict[str, Any]]:
    try:
        found = [d for d in yaml.safe_load_all(file.read_text()) if isinstance(d, dict)]
    except yaml.YAMLError as error:
        typer.secho(f"{file} is not YAML: {error}", fg="red", err=True)
        raise typer.Exit(2) from error
    ours = [d for d in found if d.get("kind") == names.KIND]
    if not ours:
        typer.secho(f"{file} holds no {names.KIND}", fg="red", err=True)
        raise typer.Exit(2)
    return ours
