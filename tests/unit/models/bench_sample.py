"""A made-up bench of every rung: what the report is drawn from in tests."""

from __future__ import annotations

from numaserve_models.bench.results import Accuracy, Bench, Cell, Result
from numaserve_models.bench.rungs import LADDER
from numaserve_models.bench.stats import latency, ratio

LENGTHS = (64, 256, 512, 1024, 8192)
_BASE = {64: 0.011, 256: 0.045, 512: 0.11, 1024: 0.31, 8192: 22.2}
_GAIN = {
    "torch-fp32-default-threads": (0.8, 0.9), "torch-fp32": (1.0, 1.0), "torch-compile": (1.2, 1.05), "torch-int8-dynamic": (1.6, 1.1),
    "onnxruntime-fp32": (1.3, 0.7), "onnxruntime-int8": (2.2, 0.9), "openvino-f32": (1.35, 1.3), "openvino-bf16": (2.3, 3.9),
    "openvino-int8-weights-f32": (2.4, 1.5), "openvino-int8-weights-bf16": (2.6, 3.8), "openvino-int8-f32": (3.1, 1.7),
    "openvino-int8-bf16": (3.3, 4.4), "openvino-int4-weights-bf16": (2.2, 3.7),
}  # fmt: skip
_COSINE = {"bf16": 0.99995, "int8-weights": 0.9996, "int8": 0.995, "int4-weights": 0.971}


def made_up() -> Bench:
    """All rungs at five lengths; IPEX is not there, one rung died at the longest length."""
    results = []
    for rung in LADDER:
        result = Result(rung)
        results.append(result)
        if rung.name not in _GAIN:
            result.reason = (
                "intel_extension_for_pytorch cannot be imported (No module named 'intel_extension_for_pytorch')"
            )
            continue
        short, long = _GAIN[rung.name]
        for place, length in enumerate(LENGTHS):
            gain = short + (long - short) * place / (len(LENGTHS) - 1)
            result.cells[length] = _cell(length, gain, 3 if length == 8192 else 10, 1 if length > 512 else 10)
        result.library_bytes = 500 * 2**20 if rung.runtime == "torch" else 80 * 2**20
        result.facts = {"threads": 2, "precision": rung.precision, "execution": _execution(rung.precision)}
        cosine = _COSINE.get(rung.variant, 1.0)
        result.accuracy = Accuracy(cosine, 1 - 3 * (1 - cosine), 1 - cosine, 1e-3, 96)
    dead = next(r for r in results if r.name == "onnxruntime-int8").cells[8192]
    dead.latency = dead.speedup = dead.peak_bytes = None
    dead.turns, dead.reason = [], "it was killed, as the kernel does when memory runs out"
    return Bench(
        model={
            "name": "tiny <b>", "task": "embedding", "output": "pooled", "pooling": "mean", "normalize": True,
            "reference": "the artifact's FP32 answers",
        },
        machine={
            "cpu": "CPU & Sons 9000", "isa": ["avx2", "avx512f"], "virtual": True, "cpus": "0-1", "physicalCores": 2, "smt": False,
            "governor": None, "memoryBytes": 2**34, "load": 0.1, "kernel": "6.1.0", "python": "3.11.0", "versions": {"torch": "2.13.0"},
        },
        settings={
            "batch": 1, "threads": 2, "rounds": 10, "budgetSeconds": 900, "maxSecondsPerCall": 120, "minCosine": 0.99,
            "memoryLimitBytes": 2**33,
        },
        baseline="torch-fp32", lengths=list(LENGTHS), results=results, notes=["A note."], seconds=12.34,
    )  # fmt: skip


def _cell(length: int, gain: float, rounds: int, burst: int) -> Cell:
    base = [[_BASE[length] * (1 + 0.02 * (i % 3))] * burst for i in range(rounds)]
    turns = [[seconds / gain * (1 + 0.03 * (i % 2)) for seconds in turn] for i, turn in enumerate(base)]
    cell = Cell(
        length,
        length,
        turns,
        base,
        first_seconds=1.0,
        estimate=_BASE[length] / gain,
        peak_bytes=(700 + length // 8) * 2**20,
    )
    cell.latency = latency([s for turn in turns for s in turn])
    cell.speedup, cell.cosine = ratio(base, turns), 0.9999
    return cell


def _execution(precision: str) -> list[dict[str, object]]:
    heavy = {
        "operation": "FullyConnected",
        "precision": precision,
        "primitive": f"brgemm_avx512_{precision}",
        "count": 24,
        "heavy": True,
    }
    return [heavy, {**heavy, "operation": "Reorder", "heavy": False}]
