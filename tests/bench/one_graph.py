"""One graph in a process of its own: `python -m tests.bench.one_graph GRAPH LENGTH ROUNDS` prints seconds and peak memory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from numaserve_models.running import Runner


def main() -> None:
    """Time a batch of one text and print {"seconds": [...], "peakMiB": ...}."""
    graph, length, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    runner = Runner(graph, "bf16", threads=2)
    ids = np.full((1, length), 7, dtype=np.int64)
    runner(ids[:, :8], np.ones((1, 8), dtype=np.int64))
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on: loading takes more than either form
    seconds = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        runner(ids, np.ones_like(ids))
        seconds.append(time.perf_counter() - begin)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds[1:], "peakMiB": peak // 1024}))


if __name__ == "__main__":
    main()
