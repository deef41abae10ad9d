"""The bench's end of a worker: asks, waits with a limit, and stops the process whenever it is not its turn."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODULE = "numaserve_models.bench.worker"
_LIBRARY_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Refused(RuntimeError):
    """The worker answered that it cannot; it still lives."""


class Died(RuntimeError):
    """The worker ended without an answer."""


class TooLong(RuntimeError):
    """No answer within the limit; the worker was killed."""


class Client:
    """A worker process. It is stopped (SIGSTOP) while it waits, so that threads that spin for work take no time from others."""

    def __init__(self, folder: Path, name: str, threads: int | None) -> None:
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=_environment(folder, threads), start_new_session=True,
            )  # fmt: skip
        self._pending = b""

    def ask(self, limit: float, do: str, **request: Any) -> dict[str, Any]:
        """The reply to a request within ``limit`` seconds. Raises Refused, Died or TooLong."""
        self._signal(signal.SIGCONT)
        try:
            self._send({"do": do, **request})
            reply = self._receive(limit)
        finally:
            self._stop()
        if "error" in reply:
            raise Refused(str(reply["error"]))
        return reply

    def close(self) -> None:
        """End the process; nothing of it is needed any more."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def _send(self, request: dict[str, Any]) -> None:
        if self._process.stdin is None:
            raise Died("it has no input")
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise Died(self._epitaph()) from error

    def _receive(self, limit: float) -> dict[str, Any]:
        if self._process.stdout is None:
            raise Died("it has no output")
        source, deadline = self._process.stdout.fileno(), time.monotonic() + limit
        while b"\n" not in self._pending:
            ready, _, _ = select.select([source], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.close()
                raise TooLong(f"no answer within {limit:.0f} s")
            read = os.read(source, 1 << 16)
            if not read:
                raise Died(self._epitaph())
            self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _epitaph(self) -> str:
        """How the process ended, with the last line it wrote."""
        code = self._process.wait()
        lines = self._log.read_text(errors="replace").strip().splitlines()
        said = f": {lines[-1][:300]}" if lines else ""
        if code == -signal.SIGKILL:
            return f"it was killed, as the kernel does when memory runs out{said}"
        if code < 0:
            return f"it was ended by {signal.Signals(-code).name}{said}"
        return f"it ended with code {code}{said}"

    def _stop(self) -> None:
        """Stop the process and wait until it stands: the next rung's turn begins with every other one at rest."""
        self._signal(signal.SIGSTOP)
        if self._process.returncode is None:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.kill(self._process.pid, number)


def _environment(folder: Path, threads: int | None) -> dict[str, str]:
    """The worker's environment; without ``threads`` the libraries choose as they do for anybody."""
    dropped = (*_LIBRARY_THREADS, "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    if threads is not None:
        kept |= dict.fromkeys(_LIBRARY_THREADS, str(threads))
    return kept | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        # Compiled once for all workers, else each would spend seconds and memory on it where nothing is cached.
        "PYTHONPYCACHEPREFIX": kept.get("PYTHONPYCACHEPREFIX", str(folder / "bytecode")),
        "HF_HUB_OFFLINE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
