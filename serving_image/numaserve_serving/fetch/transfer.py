"""One file from a source into a partial file: resumed, hashed while it streams, never longer than its manifest says."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from numaserve_api.conditions import Reason
from numaserve_api.manifest import FileEntry
from numaserve_serving.fetch.base import Source
from numaserve_serving.fetch.errors import Dropped, Ended, FetchError, changed, disk_errors
from numaserve_serving.fetch.progress import Meter

logger = logging.getLogger("numaserve")
CHUNK = 1024 * 1024
LONGEST_PAUSE = 30.0
LONGEST_WISH = 120.0
"""Seconds a source may ask us to wait; the next start of the container goes on where this one ended."""
ENDED_TRIES = 2


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a transfer is tried again: ``tries`` without a new byte, ``total`` drops of one file at all."""

    tries: int = 6
    total: int = 100
    sleep: Callable[[float], object] | None = None
    """Instead of waiting until the time is up or the job halted."""

    def lost(self, failures: int, drops: int, error: Dropped) -> bool:
        """Whether to give up; a file that merely ends early is asked for once more, in case a proxy cut it."""
        return failures >= (ENDED_TRIES if isinstance(error, Ended) else self.tries) or drops >= self.total

    def pause(self, failures: int, error: Dropped, halt: threading.Event) -> None:
        """Wait 1, 2, 4 … 30 s, spread so that the pods of a rollout do not come back together, or as the source asks."""
        seconds = min(2.0 ** (failures - 1), LONGEST_PAUSE) * random.uniform(0.75, 1.25)  # noqa: S311 -- no secret
        (self.sleep or halt.wait)(max(seconds, min(error.after or 0.0, LONGEST_WISH)))


@dataclass(frozen=True, slots=True)
class Job:
    """What the transfers of one artifact share. A set ``halt`` ends them at the next chunk."""

    source: Source
    meter: Meter
    patience: Patience = field(default_factory=Patience)
    halt: threading.Event = field(default_factory=threading.Event)


class Halted(RuntimeError):
    """Another file of the artifact has failed; what arrived is kept."""


class PartialFile:
    """A file that grows: its bytes so far are hashed when it is opened, later ones as they are written."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        with disk_errors(path):
            self._descriptor = _open(path)
            if os.fstat(self._descriptor).st_size > limit:
                os.ftruncate(self._descriptor, 0)
            self._hash = hashlib.sha256()
            self.size = 0
            while chunk := os.read(self._descriptor, CHUNK):
                self._hash.update(chunk)
                self.size += len(chunk)

    def write(self, chunk: bytes) -> None:
        """Append. Raises FetchError when the disk is full."""
        with disk_errors(self.path):
            rest = memoryview(chunk)
            while rest:
                written = os.write(self._descriptor, rest)
                self._hash.update(rest[:written])
                self.size += written
                rest = rest[written:]

    def restart(self) -> None:
        """Forget what is there."""
        with disk_errors(self.path):
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._hash, self.size = hashlib.sha256(), 0

    def digest(self) -> str:
        """Of everything written so far."""
        return "sha256:" + self._hash.hexdigest()

    def sync(self) -> None:
        """Bring the bytes to the disk, so that a name never outlives them."""
        with disk_errors(self.path):
            os.fsync(self._descriptor)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def _open(path: Path) -> int:
    """A regular file with one name; a link that somebody put there is replaced, never followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    if path.is_symlink() or (path.exists() and not _plain(path.lstat())):
        path.unlink()
    descriptor = os.open(path, flags, 0o644)
    if not _plain(os.fstat(descriptor)):
        os.close(descriptor)
        raise FetchError(Reason.ARTIFACT_INVALID, f"{path} is a link or not a regular file: remove it")
    return descriptor


def _plain(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def transfer(job: Job, entry: FileEntry, part: Path, target: Path) -> None:
    """Bring one file; it appears at ``target`` whole, verified and on the disk, or not at all.

    Raises FetchError, and Halted when another file failed. What arrived so far stays in ``part`` for the next try.
    """
    what = f"{entry.path} of {job.source.title}"
    with PartialFile(part, entry.size) as file:
        job.meter.found(file.size)
        patched = _fill(job, entry, file, what)
        if file.digest() != entry.digest and patched:
            # Pieces of several answers: the source may have changed between them. Once more, in one piece if possible.
            logger.warning("%s does not match after resuming; fetching it from its start", what)
            job.meter.found(-file.size)
            file.restart()
            _fill(job, entry, file, what)
        if file.digest() != entry.digest:
            part.unlink(missing_ok=True)
            raise changed(what, f"has digest {file.digest()}, manifest.json says {entry.digest}")
        file.sync()
    with disk_errors(target):
        part.replace(target)


def _fill(job: Job, entry: FileEntry, file: PartialFile, what: str) -> bool:
    """Read until the file has its size; whether it was put together from several answers."""
    patched = file.size > 0
    failures = drops = 0
    while file.size < entry.size:
        before = file.size
        if job.halt.is_set():
            raise Halted(what)
        try:
            _read(job, entry, file, what)
            if file.size < entry.size:
                raise Ended(f"the file ends after {file.size} of {entry.size} bytes")
        except Dropped as error:
            drops += 1
            failures = 1 if file.size > before else failures + 1
            if job.patience.lost(failures, drops, error):
                raise _given_up(job.source, what, entry, file, error) from error
            logger.warning("%s stopped after %d of %d bytes (%s); trying again", what, file.size, entry.size, error)
            job.patience.pause(failures, error, job.halt)
            patched = patched or file.size > 0
    return patched


def _read(job: Job, entry: FileEntry, file: PartialFile, what: str) -> None:
    with closing(_until_whole(job.source.stream(entry.path, file.size), entry, file)) as chunks:
        for chunk in chunks:
            if job.halt.is_set():
                raise Halted(what)
            if file.size + len(chunk) > entry.size:
                file.restart()
                raise changed(what, f"holds more than the {entry.size} bytes manifest.json says")
            file.write(chunk)
            job.meter.arrived(len(chunk))


def _until_whole(chunks: Generator[bytes], entry: FileEntry, file: PartialFile) -> Generator[bytes]:
    """The chunks; a connection that breaks behind the last byte has done its work."""
    try:
        yield from chunks
    except Dropped:
        if file.size < entry.size:
            raise


def _given_up(source: Source, what: str, entry: FileEntry, file: PartialFile, error: Dropped) -> FetchError:
    if isinstance(error, Ended):
        return changed(what, f"ends after {file.size} bytes where manifest.json says {entry.size}")
    return unreachable(source, f"{what} stopped after {file.size} of {entry.size} bytes", error)


def unreachable(source: Source, what: str, error: Dropped) -> FetchError:
    """No try helped; what arrived is kept for the next start."""
    return FetchError(Reason.SOURCE_UNREACHABLE, f"{what} ({error}): {source.remedy}")
