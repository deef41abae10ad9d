"""What every verb shares: the console, arguments, and one clear sentence where something is refused."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from numaserve_models.errors import ExportError

console = Console(stderr=True, highlight=False)
Directory = Annotated[Path, typer.Argument(help="Artifact directory.", exists=True, file_okay=False)]
T = TypeVar("T")


def guarded(work: Callable[[], T]) -> T:
    """Run a verb: what is refused ends it with exit code 2 and one sentence, never a traceback."""
    try:
        return work()
    except ExportError as error:
        _stop(str(error), error)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        hint = ": free some space and run it again" if error.errno == errno.ENOSPC else ""
        _stop(f"{error.strerror or error}{where}{hint}", error)


def _stop(sentence: str, error: BaseException) -> NoReturn:
    # Escaped: a path or a value may hold brackets, which would vanish or stop this very message.
    console.print(f"[red]error:[/] {escape(sentence)}", soft_wrap=True, markup=True)
    raise typer.Exit(2) from error


@contextmanager
def progress(begin: str) -> Iterator[Callable[[str], None]]:
    """Shows the step at work: a spinner in a terminal, a line a step otherwise."""
    if not console.is_terminal:
        yield lambda step: console.print(f"{step} …")
        return
    with console.status(f"{begin} …") as status:
        yield lambda step: status.update(f"{step} …")
