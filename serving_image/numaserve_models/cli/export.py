"""`numaserve models export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from numaserve_api.config import Pooling, Scheme
from numaserve_models.cli.common import console, guarded, progress


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(export)


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
    with progress("exporting") as step:
        digest = guarded(lambda: run(request, step))
    console.print(f"[green]✓[/] {out}")
    typer.echo(digest)
