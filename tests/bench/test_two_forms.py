"""A graph with two forms at ModernBERT-base size: faster and smaller at 8k, no slower for short texts, stored once."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from demo.artifacts import SOURCE, fetch
from localcluster.paths import cache_root
from numaserve_models import branches, graph
from numaserve_models.network import NetworkRequest, load
from numaserve_models.tracing import trace
from tests.bench.full_size import write

SWITCH = 704


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same weights dense throughout, and in two forms."""
    root = tmp_path_factory.mktemp("modernbert-base")
    tokenizer = fetch(cache_root() / "models") / SOURCE / "tokenizer.json"
    network = load(NetworkRequest(write("modernbert-base", root / "model", tokenizer)))
    found = {}
    for name in ("dense", "two-forms"):
        made = trace(network)
        if name == "two-forms":
            made = branches.combine(made, trace(network, by_blocks=True), SWITCH)
        found[name] = root / name
        found[name].mkdir()
        graph.save(made, found[name])
    return found


def measure(graphs: dict[str, Path], length: int, rounds: int, turns: int) -> dict[str, dict[str, Any]]:
    """Both graphs in turns, each turn in a process of its own."""
    seconds: dict[str, list[float]] = {name: [] for name in graphs}
    peak = dict.fromkeys(graphs, 0)
    for _ in range(turns):
        for name, folder in graphs.items():
            command = [
                sys.executable,
                "-m",
                "tests.bench.one_graph",
                str(folder / "openvino_model.xml"),
                str(length),
                str(rounds),
            ]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())])}
            done = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
            )
            seconds[name] += done["seconds"]
            peak[name] = max(peak[name], done["peakMiB"])
    result = {name: {"median": statistics.median(s), "n": len(s), "peakMiB": peak[name]} for name, s in seconds.items()}
    print(f"\n{length} tokens: {result}")
    return result


def test_two_forms_are_stored_once(graphs: dict[str, Path]) -> None:
    dense, both = (f / "openvino_model.bin" for f in graphs.values())
    assert both.stat().st_size < 1.01 * dense.stat().st_size


def test_long_texts_gain_time_and_memory(graphs: dict[str, Path]) -> None:
    found = measure(graphs, 8192, 1, 2)
    assert found["two-forms"]["median"] < 0.7 * found["dense"]["median"]
    assert found["two-forms"]["peakMiB"] < found["dense"]["peakMiB"]


def test_short_texts_lose_nothing(graphs: dict[str, Path]) -> None:
    found = measure(graphs, 128, 30, 3)
    assert found["two-forms"]["median"] < 1.15 * found["dense"]["median"]
