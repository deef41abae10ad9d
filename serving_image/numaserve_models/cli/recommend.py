"""`numaserve models recommend`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from numaserve_models.cli.common import Directory, console, guarded, progress

if TYPE_CHECKING:
    from numaserve_models.recommend.report import Recommendation

Hint = Literal["f32", "bf16"]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(recommend)


def recommend(
    source: Directory,
    out: Annotated[
        Path | None, typer.Option(help="Config to write; config_deploy.yaml of the chosen artifact if not given.")
    ] = None,
    artifact_out: Annotated[
        Path | None, typer.Option(help="Directory to create for the artifact, where another scheme is chosen.")
    ] = None,
    schemes: Annotated[
        str | None, typer.Option(help="Schemes to try with commas between them; all that can be made if not given.")
    ] = None,
    activations: Annotated[str, typer.Option(help="Hints to try: f32, bf16 or both with a comma.")] = "f32,bf16",
    threads: Annotated[
        str | None, typer.Option(help="Thread counts to try, e.g. 1,2,4; up to the physical cores if not given.")
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="Lengths to time in tokens; the artifact's buckets if not given.")
    ] = None,
    min_cosine: Annotated[float, typer.Option(max=1, help="Least mean cosine to FP32.")] = 0.99,
    min_cosine_worst: Annotated[float, typer.Option(max=1, help="Least cosine of the worst sample.")] = 0.95,
    p99_ms: Annotated[
        float | None, typer.Option(help="Most milliseconds of a text of --length; tokens/s a thread decide without it.")
    ] = None,
    length: Annotated[int | None, typer.Option(min=2, help="Length of --p99-ms; the longest if not given.")] = None,
    samples: Annotated[
        Path | None, typer.Option(help="samples.jsonl in place of the artifact's own.", exists=True, dir_okay=False)
    ] = None,
    budget: Annotated[float, typer.Option(min=1, help="Seconds to spend.")] = 300,
    report: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output.")] = False,
) -> None:
    """Measure schemes, hints and threads on this CPU and write the cheapest config that meets the bounds."""

    def work() -> Recommendation:
        from numaserve_models.quantize import Bounds, parse_scheme
        from numaserve_models.recommend import RecommendRequest
        from numaserve_models.recommend import recommend as run

        request = RecommendRequest(
            source, out=out, artifact_out=artifact_out,
            schemes=tuple(parse_scheme(name) for name in schemes.split(",")) if schemes else (),
            activations=_hints(activations), threads=_numbers(threads, "--threads"), lengths=_numbers(lengths, "--lengths"),
            bounds=Bounds(min_cosine, min_cosine_worst), p99=None if p99_ms is None else p99_ms / 1e3, length=length,
            samples=samples, budget=budget,
        )  # fmt: skip
        with progress("measuring") as step:
            found = run(request, step)
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(json.dumps(found.document(), indent=2) + "\n", encoding="utf-8")
        return found

    found = guarded(work)
    if as_json:
        typer.echo(json.dumps(found.document(), indent=2))
    else:
        Console(highlight=False, width=None if Console().is_terminal else 160).print(found.rendered())
    if found.written is None:
        console.print(f"[red]✗[/] {found.choice.words}", soft_wrap=True)
        raise typer.Exit(1)
    console.print(f"[green]✓[/] {found.choice.words}", soft_wrap=True)
    console.print(f"  artifact {found.written[0]}, config {found.written[1]}", soft_wrap=True)


def _hints(words: str) -> tuple[Hint, ...]:
    known: tuple[Hint, ...] = ("f32", "bf16")
    asked = words.split(",")
    if not set(asked) <= set(known):
        raise typer.BadParameter("f32, bf16, or both with a comma", param_hint="--activations")
    return tuple(hint for hint in known if hint in asked)


def _numbers(words: str | None, option: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in words.split(",")) if words else ()
    except ValueError as error:
        raise typer.BadParameter("numbers with commas between them, e.g. 1,2,4", param_hint=option) from error
    if any(number < 1 for number in found):
        raise typer.BadParameter("numbers above 0", param_hint=option)
    return found
