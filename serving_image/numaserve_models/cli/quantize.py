"""`numaserve models quantize`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from numaserve_models.cli.common import console, guarded, progress

if TYPE_CHECKING:
    from numaserve_models.quantize import QuantizeRequest

SCHEMES = "none, bf16, int8-weights, int8 or int4-weights"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(quantize)


def quantize(
    source: Annotated[Path, typer.Argument(help="Artifact directory in scheme none.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    scheme: Annotated[str, typer.Option(help=SCHEMES)],
    activations: Annotated[str, typer.Option(help="What is left in floating point: f32 or bf16.")] = "f32",
    dynamic_group: Annotated[
        int | None, typer.Option(min=0, help="int8-weights: dynamic activation group; 0 switches it off.")
    ] = None,
    min_cosine: Annotated[float | None, typer.Option(max=1, help="Least mean cosine to FP32.")] = None,
    min_cosine_worst: Annotated[float | None, typer.Option(max=1, help="Least cosine of the worst sample.")] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="int8: samples.jsonl to calibrate on, else the artifact's.", exists=True, dir_okay=False),
    ] = None,
    calibration_samples: Annotated[int, typer.Option(min=1, help="int8: most samples to calibrate on.")] = 300,
    control: Annotated[bool, typer.Option(help="int8: keep sensitive layers in FP32 until the bounds hold.")] = True,
    max_kept: Annotated[
        int | None, typer.Option(min=0, help="int8: most layers to keep in FP32, half of them if not given.")
    ] = None,
    ratio: Annotated[float, typer.Option(min=0, max=1, help="int4-weights: share of int4, the rest int8.")] = 1.0,
    deploy_source: Annotated[str | None, typer.Option(help="Source written into config_deploy.yaml.")] = None,
) -> None:
    """Write an artifact in another scheme, or refuse where it strays too far from FP32."""
    from numaserve_models.quantize import quantize as run

    def work() -> str:
        request = _request(
            scheme, activations=activations, dynamic_group=dynamic_group, bounds=(min_cosine, min_cosine_worst),
            calibration=calibration, calibration_samples=calibration_samples, control=control, max_kept=max_kept,
            ratio=ratio, deploy_source=deploy_source,
        )  # fmt: skip
        with progress("quantising") as step:
            return run(source, out, request, step)

    digest = guarded(work)
    console.print(f"[green]✓[/] {out}")
    typer.echo(digest)


def _request(scheme: str, bounds: tuple[float | None, float | None], **options: Any) -> QuantizeRequest:
    """The request as typed. A bound that is not given stays the scheme's own."""
    from numaserve_models.quantize import Bounds, QuantizeRequest, parse_scheme

    plain = QuantizeRequest(parse_scheme(scheme), **options)
    mean, worst = bounds
    if mean is None and worst is None:
        return plain
    own = plain.target
    return replace(plain, bounds=Bounds(own.mean if mean is None else mean, own.worst if worst is None else worst))
