"""`numaserve models compare A B`: what the gates would say, without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from numaserve_api.resource import CosineGate, Gates
from numaserve_operator.cli.servers import CompareError
from numaserve_operator.domain.snapshot import Verdict
from numaserve_operator.gates.samples import SamplesUnreadable, parse_configmap

if TYPE_CHECKING:
    from numaserve_operator.cli.comparing import Comparison

EXIT_CODES = {Verdict.PASSED: 0, Verdict.FAILED: 1, Verdict.INCONCLUSIVE: 2}
_DEFAULT = CosineGate()


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(compare)


def compare(
    a: Annotated[str, typer.Argument(help="Artifact directory, or http://HOST:PORT of a probe port: the baseline.")],
    b: Annotated[str, typer.Argument(help="The same of what would take over.")],
    samples: Annotated[
        Path | None, typer.Option(help="JSON lines with `text`, or a text a line; default: those of A's artifact.")
    ] = None,
    cosine_min: Annotated[float, typer.Option(min=-1, max=1, help="Smallest cosine over all samples.")] = _DEFAULT.min,
    cosine_p1: Annotated[float, typer.Option(min=-1, max=1, help="First percentile of the cosines.")] = _DEFAULT.p1,
    cosine_mean: Annotated[float, typer.Option(min=-1, max=1, help="Mean of the cosines.")] = _DEFAULT.mean,
    token: Annotated[
        list[str] | None,
        typer.Option(envvar="NUMASERVE_PROBE_TOKEN", help="Token of a URL's probe port; twice where A and B differ."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Run the operator's gate on two artifacts: exit code 0 it passes, 1 it is refused, 2 it could not be judged."""
    from numaserve_operator.cli.compare_report import document, show

    words = Console(stderr=True, highlight=False)
    gates = Gates(cosine=CosineGate(min=cosine_min, p1=cosine_p1, mean=cosine_mean))
    try:
        configmap = read_samples(samples) if samples else None
        with words.status(f"comparing {escape(a)} with {escape(b)} …"):
            found = asyncio.run(_until_told_to_stop(a, b, token or [], gates, configmap))
    except CompareError as error:
        if error.log:
            words.print(escape(error.log), soft_wrap=True)
        words.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from error
    except asyncio.CancelledError as error:
        raise typer.Exit(128 + signal.SIGTERM) from error
    if as_json:
        typer.echo(json.dumps(document(found), indent=2, ensure_ascii=False))
    else:
        show(found)
    raise typer.Exit(EXIT_CODES[found.verdict])


async def _until_told_to_stop(
    a: str, b: str, tokens: list[str], gates: Gates, configmap: Mapping[str, Any] | None
) -> Comparison:
    """The comparison as a task that SIGTERM cancels, so that the servers end with it."""
    from numaserve_operator.cli.comparing import compare_sides

    task = asyncio.ensure_future(compare_sides(a, b, tokens, gates, configmap))
    with contextlib.suppress(ValueError, RuntimeError):  # not the main thread: signals are somebody else's
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def read_samples(path: Path) -> dict[str, Any]:
    """A samples file as the ConfigMap a gate would read. Raises CompareError naming the line."""
    try:
        content = path.read_bytes().decode()
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CompareError(f"{path}, line {line}: not UTF-8: save the file as UTF-8") from error
    configmap = {"metadata": {"name": path.name}, "data": {path.name: content}}
    try:
        parse_configmap(configmap)
    except SamplesUnreadable as error:
        inside = str(error).replace(f"ConfigMap {path.name}, key {path.name}, ", f"{path}, ")
        raise CompareError(inside.replace(f"ConfigMap {path.name}", str(path))) from error
    return configmap
