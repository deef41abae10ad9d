"""What a candidate really executes, read from the runtime: the same scheme differs from CPU to CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import openvino as ov

from numaserve_models.quantize import forms
from numaserve_serving.backends import BackendSettings, Execution, OpenVinoBackend
from numaserve_serving.backends.forms import PROBE_TOKENS, prefix

_PACKED = {"u8": "int8", "i8": "int8", "u4": "int4", "i4": "int4"}
_INTEGER = {"i8", "u8"}


@dataclass(frozen=True, slots=True)
class Executed:
    """Tables by form, what the runtime computes floating point in, the dynamic group, and whether it changes answers."""

    tables: Mapping[str, Sequence[Execution]]
    precision: str
    group: int
    group_acts: bool

    def document(self) -> dict[str, Any]:
        """For the report."""
        rows = [
            {
                "form": form, "operation": row.operation, "runtimePrecision": row.precision, "primitive": row.primitive,
                "count": row.count,
            }
            for form, table in self.tables.items() for row in table if row.heavy
        ]  # fmt: skip
        return {
            "precision": self.precision,
            "dynamicGroup": self.group,
            "dynamicGroupActs": self.group_acts,
            "summary": self.summary(),
            "operations": rows,
        }

    def summary(self) -> str:
        """One line: in which numbers the weighted products run."""
        found: Counter[str] = Counter()
        for table in self.tables.values():
            for row in table:
                if row.heavy:
                    found[self._products(row)] += row.count
        total = sum(found.values())
        if not total:
            return f"no matrix products seen, {self.precision}"
        parts = [words if count == total else f"{count} of {total}: {words}" for words, count in found.most_common()]
        return "; ".join(parts)

    def _products(self, row: Execution) -> str:
        kernel = row.primitive.rpartition("_")[2].lower()
        if kernel in _INTEGER:
            return "int8 products"
        packed = _PACKED.get(row.precision)
        if packed is None:
            return f"{kernel} products"
        # The runtime names these kernels by their result's type, whatever they multiply.
        return (
            f"{packed} weights, activations quantised in groups of {self.group}"
            if self.group_acts
            else f"{packed} weights widened, {kernel} products"
        )


def executed(graph: Path, backend: OpenVinoBackend, settings: BackendSettings) -> Executed:
    """What a backend executes, after an inference."""
    acts = bool(settings.dynamic_group) and group_acts(graph, settings.precision, settings.dynamic_group)
    return Executed(backend.executed(), backend.facts.precision, settings.dynamic_group, acts)


def group_acts(graph: Path, precision: Literal["f32", "bf16"], group: int) -> bool:
    """Whether the dynamic group changes the first block's result: some CPUs pass it over, and no table says so."""
    body = forms.parts(ov.Core().read_model(str(graph)))[0]
    with_group, without = (_first_block(body, precision, size) for size in (group, 0))
    return not np.array_equal(with_group, without)


def _first_block(body: ov.Model, precision: str, group: int) -> Any:
    options = {
        "INFERENCE_PRECISION_HINT": precision,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(group),
        "INFERENCE_NUM_THREADS": "1",
    }
    compiled = ov.Core().compile_model(prefix(body), "CPU", options)
    ids = np.ones((1, PROBE_TOKENS), dtype=np.int64)
    return np.array(compiled({i.get_any_name(): ids for i in compiled.inputs})[0], copy=True)
