"""Running other programs: quietly when they succeed, with their own words when they fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from localcluster.errors import ClusterError


def direct_environment() -> dict[str, str]:
    """This environment without proxies: what talks inside the cluster's network has no proxy to reach."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float = 900,
) -> str:
    """Run a command to its end and return its standard output; raise ClusterError with its last words."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, cwd=cwd, env=env, input=stdin, timeout=timeout, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ClusterError(f"{words[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{' '.join(words)}` did not end within {timeout:.0f} s") from error
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise ClusterError(f"`{' '.join(words)}` failed with exit code {done.returncode}:\n{tail}")
    return done.stdout


def succeeds(command: Sequence[str | Path], timeout: float = 60, env: Mapping[str, str] | None = None) -> bool:
    """Whether a command exits 0."""
    try:
        run(command, timeout=timeout, env=env)
    except ClusterError:
        return False
    return True
