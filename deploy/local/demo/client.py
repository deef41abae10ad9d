"""A client that keeps asking through the Service and counts what it gets. Bounded in rate and time; stops when told.

Run as `python -m demo.client URL SECONDS FILE` inside the cluster's network; ends early when FILE.stop appears.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

import httpx

PAUSE_SECONDS = 0.02
TEXT = "Where is the invoice for March?"


def main(url: str, seconds: float, file: Path) -> None:
    """Ask until the time is over, then write {"answers": {revision: n}, "failures": [...]}."""
    answers: Counter[str] = Counter()
    failures: list[str] = []
    stop, end = Path(f"{file}.stop"), time.monotonic() + seconds
    with httpx.Client(timeout=10, trust_env=False) as client:
        while time.monotonic() < end and not stop.exists():
            try:
                answer = client.post(f"{url}/v1/embeddings", json={"input": TEXT})
                answer.raise_for_status()
                answers[answer.headers["x-numaserve-revision"]] += 1
            except (httpx.HTTPError, KeyError) as error:
                failures.append(f"{time.time():.3f} {type(error).__name__} {error}")
            time.sleep(PAUSE_SECONDS)
    file.write_text(json.dumps({"answers": answers, "failures": failures}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
