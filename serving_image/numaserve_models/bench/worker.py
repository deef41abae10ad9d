"""One rung in a process of its own: a JSON object a line in, one out.

Requests name what to ``do``: ``load`` an engine, ``run`` it at a length, ``answer`` the samples, ``facts`` of it, or
``prepare`` a file for other rungs. A refusal is answered as ``{"error": sentence}``; the end of input ends the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numaserve_models.bench.engines import Engine

_PR_SET_PDEATHSIG = 1


class Worker:
    """The engine and the inputs it is run on."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._inputs: dict[str, Any] = {}

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request."""
        deeds: dict[str, Callable[..., dict[str, Any]]] = {
            "load": self.load, "run": self.run, "answer": self.answer, "facts": self.facts, "prepare": self.prepare,
        }  # fmt: skip
        return deeds[request.pop("do")](**request)

    def load(self, engine: dict[str, Any], inputs: str, cpus: list[int]) -> dict[str, Any]:
        """Make the engine on the CPUs given (none: all there are). Peak memory counts anew from here on."""
        if cpus:
            os.sched_setaffinity(0, cpus)
        from numaserve_models.bench.engines import import_runtime, make

        self._inputs = json.loads(Path(inputs).read_text(encoding="utf-8"))
        import_runtime(engine["runtime"])
        libraries = status_bytes("VmRSS")
        begin = time.perf_counter()
        self._engine = make(engine)
        seconds = time.perf_counter() - begin
        loading = status_bytes("VmHWM")
        return {"seconds": seconds, "libraryBytes": libraries, "loadingBytes": loading, "reset": reset_peak()}

    def run(self, length: int, times: int, warm: int = 0, save: str | None = None) -> dict[str, Any]:
        """Seconds of ``times`` calls at a length after ``warm`` untimed ones; the last answer goes to ``save``."""
        import numpy as np

        ids = np.array(self._inputs["lengths"][str(length)], dtype=np.int64)
        mask = np.ones_like(ids)
        for _ in range(warm):
            self._call(ids, mask)
        seconds, answer = [], None
        for _ in range(times):
            begin = time.perf_counter()
            answer = self._call(ids, mask)
            seconds.append(time.perf_counter() - begin)
        if save and answer is not None:
            np.save(save, answer)
        return {"seconds": seconds, "peakBytes": status_bytes("VmHWM")}

    def answer(self, save: str) -> dict[str, Any]:
        """Answers of the samples, one text a call, as arrays of one .npz file."""
        import numpy as np

        answers = []
        for tokens in self._inputs["samples"]:
            ids = np.array([tokens], dtype=np.int64)
            answers.append(self._call(ids, np.ones_like(ids))[0])
        np.savez(save, *answers)
        return {}

    def facts(self) -> dict[str, Any]:
        """What the runtime says it executes."""
        if self._engine is None:
            raise RuntimeError("nothing is loaded")
        return self._engine.facts()

    def prepare(self, kind: str, **options: Any) -> dict[str, Any]:
        """Make a file that other rungs load."""
        from numaserve_models.bench import prepare

        made: dict[str, Any] = getattr(prepare, kind)(**options)
        return made

    def _call(self, ids: Any, mask: Any) -> Any:
        if self._engine is None:
            raise RuntimeError("nothing is loaded")
        return self._engine(ids, mask)


def status_bytes(field: str) -> int:
    """Resident memory of this process by proc(5): VmRSS now, VmHWM at its peak."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak() -> bool:
    """Give back what loading left over and count the peak anew (proc(5), clear_refs); whether the kernel lets us."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def sentence(error: BaseException) -> str:
    """The first line of an error; its kind too, unless it is one of ours."""
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else "no reason given"
    return first if type(error).__name__ == "ExportError" else f"{type(error).__name__}: {first}"


def main() -> None:
    """Serve requests until input ends."""
    with contextlib.suppress(OSError, AttributeError):  # the bench may be killed while this process is stopped
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # libraries print to standard output
    worker = Worker()
    for line in sys.stdin:
        try:
            reply = worker.handle(json.loads(line))
        except Exception as error:  # any library's: the bench goes on with the next rung
            reply = {"error": sentence(error)}
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
