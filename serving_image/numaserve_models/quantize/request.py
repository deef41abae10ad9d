"""What is asked of `models quantize`, and everything about it that can be refused before any work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from numaserve_api.config import SCHEME_FP16, SCHEME_KNOWN, Calibration, Quantization, Scheme
from numaserve_api.validate import sentences
from numaserve_models.artifact import Artifact
from numaserve_models.digest import find_faults
from numaserve_models.errors import ExportError
from numaserve_models.quantize.bounds import CONTROLLED, FLOORS, Bounds

CALIBRATION_SAMPLES = 300


@dataclass(frozen=True, slots=True)
class QuantizeRequest:
    """The scheme and how it is made.

    ``bounds`` refuses what stays further from FP32 (int8 keeps layers in FP32 to reach them); ``calibration`` is a
    samples.jsonl in place of the artifact's own; ``max_kept`` is how many layers int8 may keep (None: half of them);
    ``smooth`` off shows what outlier channels do to int8 without SmoothQuant; ``ratio`` is the share of int4 weights, the rest int8.
    """

    scheme: Scheme
    activations: Literal["f32", "bf16"] = "f32"
    dynamic_group: int | None = None
    bounds: Bounds | None = None
    calibration: Path | None = None
    calibration_samples: int = CALIBRATION_SAMPLES
    control: bool = True
    max_kept: int | None = None
    smooth: bool = True
    ratio: float = 1.0
    deploy_source: str | None = None

    @property
    def target(self) -> Bounds:
        """The bounds asked for, never below the scheme's floor."""
        floor = FLOORS[self.scheme]
        asked = self.bounds or (CONTROLLED if self.scheme is Scheme.INT8 and self.control else floor)
        return Bounds(max(asked.mean, floor.mean), max(asked.worst, floor.worst))

    def quantization(self, calibration: Calibration | None) -> Quantization:
        """The config's section. Raises ExportError where a value is out of range."""
        try:
            return Quantization(
                scheme=self.scheme, activations=self.activations, dynamic_group=self.dynamic_group, calibration=calibration
            )  # fmt: skip
        except ValidationError as error:
            raise ExportError("; ".join(sentences(error, "quantization"))) from error


def parse_scheme(text: str) -> Scheme:
    """A scheme by its name. Raises ExportError, for fp16 with the reason."""
    if text == "fp16":
        raise ExportError(SCHEME_FP16.removeprefix("spec.config.quantization."))
    if text not in list(Scheme):
        raise ExportError(f"{SCHEME_KNOWN.removeprefix('spec.config.quantization.')} (given {text!r})")
    return Scheme(text)


def refuse_request(request: QuantizeRequest) -> None:
    """Raise ExportError where an option does not belong to the scheme."""
    owners = {
        "a dynamic group": (request.dynamic_group is not None, Scheme.INT8_WEIGHTS),
        "a calibration set": (request.calibration is not None, Scheme.INT8),
        "a number of layers to keep": (request.max_kept is not None, Scheme.INT8),
        "a ratio": (request.ratio != 1.0, Scheme.INT4_WEIGHTS),
    }
    for name, (given, owner) in owners.items():
        if given and request.scheme is not owner:
            raise ExportError(f"{name} only applies to scheme {owner}, {request.scheme} was asked: leave it out")
    if not 0 <= request.ratio <= 1:
        raise ExportError(f"the ratio of int4 weights is {request.ratio:g}, it must lie between 0 and 1")
    if request.calibration_samples < 1:
        raise ExportError(f"calibration on {request.calibration_samples} samples is impossible: ask for 1 or more")


def refuse_source(source: Artifact) -> None:
    """Raise ExportError where an artifact is not a whole FP32 one with samples to measure it on."""
    scheme = source.manifest.quantization.scheme
    if scheme is not Scheme.NONE or source.config.quantization.scheme is not Scheme.NONE:
        raise ExportError(f"{source.root} is in scheme {scheme} already: quantise the FP32 artifact it was made from")
    if faults := find_faults(source.root):
        raise ExportError(f"{source.root} is not whole ({'; '.join(faults[:3])}): export or copy it again")
    if source.manifest.parts.samples is None or source.manifest.parts.reference is None:
        raise ExportError(f"{source.root} has no samples with FP32 answers to measure against: export it with samples")
