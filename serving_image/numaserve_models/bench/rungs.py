"""The rungs, from PyTorch as it comes to every scheme numaserve can serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from numaserve_api.config import Scheme
from numaserve_models.errors import ExportError

Runtime = Literal["torch", "onnxruntime", "openvino"]


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to run the model. ``variant`` is the scheme for OpenVINO, else the runtime's own way.

    ``default_threads`` leaves the number of threads to the runtime, as a first try does.
    """

    name: str
    runtime: Runtime
    variant: str
    precision: Literal["f32", "bf16"] = "f32"
    default_threads: bool = False

    @property
    def served(self) -> bool:
        """Whether numaserve can serve it."""
        return self.runtime == "openvino"


LADDER = (
    Rung("torch-fp32-default-threads", "torch", "eager", default_threads=True),
    Rung("torch-fp32", "torch", "eager"),
    Rung("torch-compile", "torch", "compile"),
    Rung("ipex", "torch", "ipex"),
    Rung("torch-int8-dynamic", "torch", "int8"),
    Rung("onnxruntime-fp32", "onnxruntime", "fp32"),
    Rung("onnxruntime-int8", "onnxruntime", "int8"),
    Rung("openvino-f32", "openvino", Scheme.NONE),
    Rung("openvino-bf16", "openvino", Scheme.BF16, "bf16"),
    Rung("openvino-int8-weights-f32", "openvino", Scheme.INT8_WEIGHTS),
    Rung("openvino-int8-weights-bf16", "openvino", Scheme.INT8_WEIGHTS, "bf16"),
    Rung("openvino-int8-f32", "openvino", Scheme.INT8),
    Rung("openvino-int8-bf16", "openvino", Scheme.INT8, "bf16"),
    Rung("openvino-int4-weights-bf16", "openvino", Scheme.INT4_WEIGHTS, "bf16"),
)
BASELINES = ("torch-fp32", "onnxruntime-fp32", "openvino-f32")
"""What the others are compared with: the first of these that runs."""


def select(names: Sequence[str] | None) -> tuple[Rung, ...]:
    """The rungs named, in the ladder's order; all of them without names. Raises ExportError for a name unknown."""
    if names is None:
        return LADDER
    known = {rung.name for rung in LADDER}
    if unknown := [name for name in names if name not in known]:
        raise ExportError(f"there is no rung {unknown[0]!r}: the rungs are {', '.join(r.name for r in LADDER)}")
    if not names:
        raise ExportError("no rung was named: leave --rungs out for all of them")
    return tuple(rung for rung in LADDER if rung.name in names)


def baseline_of(names: Sequence[str]) -> str | None:
    """The rung the others are compared with, of those that can run; None where none can."""
    return next((name for name in (*BASELINES, *names) if name in names), None)


def baseline_first(rungs: Sequence[Rung]) -> list[Rung]:
    """The ladder with what may become the baseline in front, so that the others' answers have something to meet."""
    return sorted(rungs, key=lambda r: BASELINES.index(r.name) if r.name in BASELINES[:1] else len(BASELINES))
