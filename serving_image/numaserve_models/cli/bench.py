"""`numaserve models bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from numaserve_models.cli.common import console, guarded

if TYPE_CHECKING:
    from numaserve_models.bench.request import Step
    from numaserve_models.bench.results import Bench


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(bench)


def bench(
    sources: Annotated[
        list[Path],
        typer.Argument(
            help="A model directory or .onnx file, and artifacts of it; schemes not given are made.", exists=True
        ),
    ],
    out: Annotated[Path, typer.Option(help="Directory to create for bench.json, bench.md and index.html.")],
    lengths: Annotated[str | None, typer.Option(help="Lengths in tokens, e.g. 64,512,8192; else the buckets.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Texts of a call.")] = 1,
    rungs: Annotated[str | None, typer.Option(help="Names of rungs, e.g. torch-fp32,openvino-bf16; else all.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; else the physical cores of the affinity.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Most turns of a rung at a length.")] = 10,
    budget: Annotated[
        float, typer.Option(help="Seconds of timed calls together; each is made 3 times at least.")
    ] = 900.0,
    max_seconds_per_call: Annotated[float, typer.Option(help="Longest call in seconds that is waited for.")] = 120.0,
    min_cosine: Annotated[float, typer.Option(max=1, help="Least mean cosine of what the summary may name.")] = 0.99,
    max_memory: Annotated[
        float | None, typer.Option(help="GiB all workers may take together; else from what is free.")
    ] = None,
) -> None:
    """Measure this model on this CPU in each runtime and scheme: speed, memory, accuracy."""
    from numaserve_models.bench.ladder import bench as run
    from numaserve_models.bench.request import BenchRequest

    def work() -> Bench:
        request = BenchRequest(
            sources=tuple(sources), out=out, lengths=_numbers(lengths), batch=batch, rungs=_names(rungs), threads=threads,
            rounds=rounds, budget=budget, max_seconds=max_seconds_per_call, min_cosine=min_cosine,
            memory=None if max_memory is None else int(max_memory * 2**30),
        )  # fmt: skip
        with _progress() as watch:
            return run(request, watch)

    found = guarded(work)
    _tell(found, out)


def _tell(found: Bench, out: Path) -> None:
    from numaserve_models.bench.summary import headline

    for result in found.results:
        if result.reason:
            console.print(f"[yellow]{result.name}[/] {result.status}: {result.reason}", soft_wrap=True)
    console.print(f"[green]✓[/] {out / 'index.html'}", soft_wrap=True)
    typer.echo(headline(found))


def _numbers(text: str | None) -> tuple[int, ...] | None:
    from numaserve_models.errors import ExportError

    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ExportError(f"--lengths {text!r} is no list of numbers: write e.g. 64,512,8192") from error


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


@contextmanager
def _progress() -> Iterator[Callable[[Step], None]]:
    """A bar with the rung at work in a terminal; otherwise a line a stage, and one a rung while probing."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    if not console.is_terminal:
        said: set[str] = set()

        def line(step: Step) -> None:
            text = step.stage if step.stage.startswith("measuring") else f"{step.stage} {step.now}"
            if text not in said:
                said.add(text)
                console.print(f"{text} …")

        yield line
        return
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[now]}"),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("preparing", total=None, now="")
        yield lambda step: progress.update(
            task, description=step.stage, completed=step.done, total=step.total or None, now=step.now
        )
