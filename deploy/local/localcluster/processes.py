"""Long-running components: started detached, recorded by id and start time, stopped only when both match."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.shell import direct_environment


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which a process started; None when it is gone. Guards against reused ids."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state_and_rest = stat.rpartition(")")[2].split()
    return None if state_and_rest[0] == "Z" else int(state_and_rest[19])


@dataclass(frozen=True, slots=True)
class Processes:
    """The recorded processes of one cluster or control plane."""

    pids: Path
    logs: Path
    netns: Path | None = None
    cgroup: Path | None = None

    def start(self, name: str, command: Sequence[str | Path]) -> int:
        """Start a component in the cluster's namespace and cgroup; its output goes to logs/NAME.log."""
        for folder in (self.pids, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        words = [str(word) for word in command]
        if self.netns:
            words = ["nsenter", f"--net={self.netns}", "--", *words]
        if self.cgroup:
            words = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.cgroup), *words]
        pid = _spawn(words, self.logs / f"{name}.log")
        record = {"pid": pid, "start": start_time(pid), "command": [str(word) for word in command]}
        (self.pids / f"{name}.json").write_text(json.dumps(record))
        return pid

    def pid(self, name: str) -> int | None:
        """The id of a component that is alive and is the process we started."""
        try:
            record = json.loads((self.pids / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None
        alive = start_time(record["pid"])
        return record["pid"] if alive is not None and alive == record["start"] else None

    def stop(self, name: str, patience: float = 10, sig: int = signal.SIGTERM) -> None:
        """Stop one component; killed when it does not end in time."""
        pid = self.pid(name)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it may end by itself between two looks
                os.kill(pid, sig)
                if not _gone(pid, patience):
                    os.kill(pid, signal.SIGKILL)
                    _gone(pid, 5)
        (self.pids / f"{name}.json").unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Recorded components."""
        return sorted(path.stem for path in self.pids.glob("*.json"))

    def tail(self, name: str, lines: int = 15) -> str:
        """The last lines of a component's log."""
        try:
            return "\n".join((self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return "(no log)"

    def wait_for(
        self, name: str, ready: Callable[[], bool], seconds: float, what: str, running: Sequence[str] = ()
    ) -> None:
        """Wait until ready; at once an error with the log's tail when this component, or one it needs, dies."""
        deadline = time.monotonic() + seconds
        while not ready():
            for component in dict.fromkeys([*running, name]):
                if self.pid(component) is None:
                    raise ClusterError(f"{component} ended while starting. {self._end_of_log(component)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name}: {what} not seen within {seconds:.0f} s. {self._end_of_log(name)}")
            time.sleep(0.2)

    def _end_of_log(self, name: str) -> str:
        return f"The end of {self.logs / name}.log:\n{self.tail(name)}"


def _spawn(words: Sequence[str], log: Path) -> int:
    """Start a program in a session of its own: no object is kept that would have to outlive it."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(words[0], list(words), direct_environment(), file_actions=files, setsid=True)


def _gone(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        _reap(pid)
        if start_time(pid) is None:
            return True
        time.sleep(0.05)
    return False


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # started by an earlier command of ours: init reaps it
