"""In use: who reads a cached artifact holds a shared lock beside it for as long as it lives.

The kernel gives the lock back when the reader dies, however it dies. It needs only to read, so a server
that mounts the cache read-only can hold it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCKS = ".locks"


def lease_file(artifact: Path) -> Path:
    """The file whose lock says that an artifact of a cache is in use."""
    return artifact.parent / LOCKS / f"{artifact.name}.use"


def hold(artifact: Path) -> int | None:
    """Keep an artifact from being evicted while this process lives; None when it does not lie in a cache.

    The descriptor may be closed to give the lease back.
    """
    try:
        descriptor = os.open(lease_file(artifact), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # an evictor holds it for the moment of a rename
    return descriptor


@contextmanager
def unused(artifact: Path) -> Iterator[bool]:
    """Whether nobody holds the lease; during the block nobody can take it."""
    descriptor = os.open(lease_file(artifact), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        free = False
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        yield free
    finally:
        os.close(descriptor)
