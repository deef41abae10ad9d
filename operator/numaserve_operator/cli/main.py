"""The `numaserve` command: verbs of the operator, and those other packages bring.

`models` and `serve` belong to packages the operator must never import; they announce themselves
through the entry point group `numaserve.commands`.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from numaserve_operator.cli import compare, files, status

GROUP = "numaserve.commands"
MODELS = "models"


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
    points = {point.name: point.load for point in entry_points(group=GROUP)}
    _add_models(app, points.pop(MODELS, _not_there))
    for name, load in sorted(points.items()):
        _add(app, name, load)
    return app


def _add_models(app: typer.Typer, load: Any) -> None:
    """The artifact tools' verbs and `compare`, which is the operator's: it runs the gates."""
    try:
        found = load()
    except ImportError as error:
        group = typer.Typer(
            cls=_missing_group(str(error)),
            no_args_is_help=True,
            help=f"Compare model artifacts (not installed: {error}).",
        )
    else:
        # A group of its own: the tools' app is theirs, and building the command twice must not add to it.
        group = typer.Typer(no_args_is_help=True, help=found.info.help, pretty_exceptions_enable=False)
        group.add_typer(found)
    compare.register(group)
    app.add_typer(group, name=MODELS)


def _not_there() -> NoReturn:
    raise ImportError("numaserve_models announces no commands")


def _missing_group(why: str) -> type[TyperGroup]:
    """A group that answers every verb it has not with the remedy."""

    class Missing(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and args[0] not in self.commands and not args[0].startswith("-"):
                _tell_missing(MODELS, why)
            return super().resolve_command(ctx, args)

    return Missing


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
        _tell_missing(name, why)


def _tell_missing(name: str, why: str) -> NoReturn:
    typer.secho(
        f"`numaserve {name}` needs packages that are not installed ({why}): pip install 'numaserve[{name}]'",
        fg="red",
        err=True,
    )
    raise typer.Exit(2)


def main() -> None:
    """Run the command."""
    sys.exit(build()())
