"""The `numaserve` command: verbs of the operator, and those other packages bring.

`models` and `serve` belong to packages the operator must never import; they announce themselves
through the entry point group `numaserve.commands`.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Any

import typer

from numaserve_operator.cli import files, status

GROUP = "numaserve.commands"


def build() -> typer.Typer:
    """The command with every verb that is installed."""
    app = typer.Typer(
        name="numaserve",
        no_args_is_help=True,
        help="NUMA-aware CPU inference of encoder models.",
        pretty_exceptions_enable=False,
    )
    files.register(app)
    status.register(app)
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        _add(app, point.name, point.load)
    return app


def _add(app: typer.Typer, name: str, load: Any) -> None:
    try:
        found = load()
    except ImportError as error:
        # An extra that is not installed: its verb says so instead of vanishing.
        _add_missing(app, name, str(error))
        return
    if len(found.registered_commands) == 1 and not found.registered_groups:
        app.command(name)(found.registered_commands[0].callback)
    else:
        app.add_typer(found, name=name)


def _add_missing(app: typer.Typer, name: str, why: str) -> None:
    @app.command(
        name,
        help=f"(not installed: {why})",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def missing() -> None:
        typer.secho(
            f"`numaserve {name}` needs packages that are not installed ({why}): pip install 'numaserve[{name}]'",
            fg="red",
            err=True,
        )
        raise typer.Exit(2)


def main() -> None:
    """Run the command."""
    sys.exit(build()())
