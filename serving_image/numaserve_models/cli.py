"""`numaserve models`: export, hash, verify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from numaserve_api.config import Pooling, Scheme
from numaserve_models.errors import ExportError

app = typer.Typer(no_args_is_help=True, help="Make and check model artifacts.", pretty_exceptions_enable=False)
console = Console(stderr=True, highlight=False)
Directory = Annotated[Path, typer.Argument(help="Artifact directory.", exists=True, file_okay=False)]


@app.command()
def export(
    source: Annotated[
        Path, typer.Argument(help="ONNX file or OpenVINO IR (.xml) of an encoder.", exists=True, dir_okay=False)
    ],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    tokenizer: Annotated[Path, typer.Option(help="tokenizer.json of the model.", exists=True, dir_okay=False)],
    pooling: Annotated[Pooling, typer.Option(help="How the model's authors pool tokens.")] = Pooling.MEAN,
    scheme: Annotated[Scheme, typer.Option(help="Weight format.")] = Scheme.INT8_WEIGHTS,
    max_tokens: Annotated[int, typer.Option(min=8, help="Longest sequence the model was trained on.")] = 128,
    positions: Annotated[int, typer.Option(min=8, help="Positions the model has.")] = 512,
    threads: Annotated[int, typer.Option(min=1, help="Threads written into config_deploy.yaml.")] = 1,
    space: Annotated[str | None, typer.Option(help="Name of the embedding space, e.g. minilm@1.")] = None,
    deploy_source: Annotated[
        str, typer.Option(help="Source written into config_deploy.yaml.")
    ] = "pvc://models/artifact",
) -> None:
    """Export an encoder into a directory that numaserve can serve."""
    from numaserve_models.export import ExportRequest
    from numaserve_models.export import export as run

    buckets = (*tuple(b for b in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192) if b < max_tokens), max_tokens)
    request = ExportRequest(
        source, tokenizer, out, pooling=pooling, scheme=scheme, max_tokens=max_tokens, positions=positions,
        buckets=buckets, threads=threads, space=space, deploy_source=deploy_source,
    )  # fmt: skip
    with console.status("exporting …") as status:
        digest = _guarded(lambda: run(request, lambda step: status.update(f"{step} …")))
    console.print(f"[green]✓[/] {out}")
    typer.echo(digest)


@app.command("hash")
def hash_(directory: Directory) -> None:
    """Print an artifact's hash, as spec.config.model.hash wants it."""
    from numaserve_models.digest import artifact_hash

    typer.echo(_guarded(lambda: artifact_hash(directory)))


@app.command()
def verify(directory: Directory) -> None:
    """Name every file that was changed, is missing or was added; exit code 1 if there is one."""
    from numaserve_models.digest import artifact_hash, find_faults

    faults = _guarded(lambda: "\n".join(find_faults(directory)))
    if faults:
        typer.echo(faults)
        raise typer.Exit(1)
    typer.echo(f"whole: {artifact_hash(directory)}")


def _guarded(work: Callable[[], str]) -> str:
    try:
        return work()
    except ExportError as error:
        console.print(f"[red]error:[/] {error}", soft_wrap=True)
        raise typer.Exit(2) from error
