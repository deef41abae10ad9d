"""The node's cache: one copy of an artifact for all revisions and pods of a node.

::

    ROOT/sha256-HEX/            a whole, verified artifact and nothing else: servers read it, and refuse extra files
    ROOT/.staging/sha256-HEX/   one that is coming, kept for the next try; its manifest.json reserves its room
    ROOT/.state/sha256-HEX.*    verified: how its files looked · used: last use (mtime) · idle: since when nobody reads it
    ROOT/.locks/sha256-HEX.lock who fetches, verifies or evicts it    .use  who reads it (shared)    room.lock  the limit
    ROOT/.trash/                on the way out: a name disappears at once, its bytes afterwards

Evicted is what was used longest ago and is proven idle: nobody held its lease at two looks IDLE_SECONDS apart. One
look is not enough: a server that has crashed holds nothing until the kubelet starts it again, at most five minutes
later, and it then needs its files where they were.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from numaserve_api.conditions import Reason
from numaserve_serving.fetch.disk import remove, sync_folder
from numaserve_serving.fetch.errors import FetchError, disk_errors
from numaserve_serving.fetch.lease import LOCKS, unused
from numaserve_serving.fetch.progress import size
from numaserve_serving.fetch.staging import Contents, Staging, check_disk
from numaserve_serving.fetch.verify import faults, is_marked, mark, read_contents

logger = logging.getLogger("numaserve")
IDLE_SECONDS = 330.0
"""Longer than the kubelet's longest pause between two starts of a container, 300 s."""
ABANDONED_SECONDS = 24 * 3600.0
"""A half-fetched artifact nobody has come back for."""
VERIFIED, USED, IDLE = "verified", "used", "idle"
_WAIT_NOTICE = 1.0


@dataclass(frozen=True, slots=True)
class Resident:
    """A whole artifact in the cache: bytes, when it was last used, whether it is read now, and whether proven idle."""

    path: Path
    bytes: int
    used: float
    read: bool
    idle: bool


class Cache:
    """A cache directory. ``limit`` in bytes, or None; ``clock`` gives seconds since the epoch."""

    def __init__(self, root: Path, limit: int | None = None, clock: Callable[[], float] = time.time) -> None:
        self.root, self._limit, self._clock = root, limit, clock
        self._state, self._locks, self._trash = root / ".state", root / LOCKS, root / ".trash"
        for folder in (self._state, self._locks, self._trash, root / ".staging"):
            with disk_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Where an artifact lies when it is here."""
        return self.root / digest.replace(":", "-")

    def staging(self, digest: str) -> Staging:
        """Where it comes together."""
        return Staging(self.root / ".staging" / self.path(digest).name)

    @contextmanager
    def only_one(self, digest: str) -> Iterator[None]:
        """One process of this node at a time; the second waits and finds the artifact there."""
        lock = FileLock(self._locks / f"{self.path(digest).name}.lock")
        with disk_errors(self._locks):
            try:
                lock.acquire(timeout=_WAIT_NOTICE)
            except Timeout:
                logger.info("another pod of this node fetches %s; waiting for it", digest)
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def find(self, digest: str) -> Path | None:
        """The artifact, verified now or before; a damaged one is thrown away. Call it within ``only_one``."""
        path = self.path(digest)
        if not path.is_dir() or path.is_symlink():
            with disk_errors(path):
                remove(path)
            return None
        if not is_marked(path, digest, self._note(path, VERIFIED)):
            fault = next(faults(path, digest), None)
            if fault:
                logger.warning("%s in the cache is damaged (%s); fetching it again", path.name, fault)
                self._throw_away(path)
                self._empty_trash()
                return None
            mark(path, read_contents(path, digest), self._note(path, VERIFIED))
        with self._room():
            self.residents()  # a look at the others; ours is in use from here on
        self._touch(path)
        return path

    def add(self, digest: str, staging: Staging, contents: Contents) -> Path:
        """Give a sealed artifact its name. Call it within ``only_one``."""
        path = self.path(digest)
        sealed = staging.seal(contents)
        with disk_errors(path):
            sealed.rename(path)
            sync_folder(self.root)
        mark(path, contents, self._note(path, VERIFIED))
        self._touch(path)
        staging.remove()
        return path

    def reserve(self, digest: str, staging: Staging, contents: Contents) -> None:
        """Make room for an artifact and take it, evicting what is idle. Raises FetchError when there is none."""
        with self._room():
            self._empty_trash()
            self._drop_abandoned()
            if self._limit is not None:
                self._keep_limit(self._limit, contents.total + self._coming(digest))
            self._free_disk(staging.missing(contents))
            staging.keep(contents)
        self._empty_trash()

    @contextmanager
    def _room(self) -> Iterator[None]:
        """One at a time: two that look at once would each take the other's look for a reader's lease."""
        with disk_errors(self.root), FileLock(self._locks / "room.lock"):
            yield

    def residents(self) -> list[Resident]:
        """What is here, least recently used first. Looking also notes who is idle, and since when."""
        found = [self._look(p) for p in self.root.iterdir() if p.name.startswith("sha256-") and p.is_dir()]
        return sorted(found, key=lambda resident: resident.used)

    def _keep_limit(self, limit: int, needed: int) -> None:
        residents = self.residents()
        excess = sum(r.bytes for r in residents) + needed - limit
        for resident in residents:
            if excess > 0 and resident.idle and self._evict(resident.path):
                excess -= resident.bytes
        if excess <= 0:
            return
        # Unread, but perhaps only for the moment: the limit bends until the next fetch finds them idle or read.
        waiting = sum(r.bytes for r in residents if not (r.read or r.idle))
        if waiting < excess:
            read = sum(r.bytes for r in residents if r.read)
            raise FetchError(
                Reason.NO_SPACE,
                f"the artifact needs {size(needed)}, the cache {self.root} may hold {size(limit)} and servers of this node "
                f"read {size(read)} of it: raise artifactCache.limit, or run fewer models on this node",
            )
        logger.warning(
            "the cache holds %s more than its limit of %s until it is known what is idle", size(excess), size(limit)
        )

    def _free_disk(self, needed: int) -> None:
        for resident in self.residents():
            try:
                check_disk(self.root, needed)
            except FetchError:
                if resident.idle and self._evict(resident.path):
                    self._empty_trash()
                continue
            return
        check_disk(self.root, needed)

    def _coming(self, digest: str) -> int:
        """Room that others have reserved."""
        total = 0
        for folder in (self.root / ".staging").iterdir():
            other = folder.name.replace("-", ":", 1)
            if other != digest:
                with suppress(FetchError, OSError):
                    total += read_contents(folder, other).total
        return total

    def _look(self, path: Path) -> Resident:
        idle, used = self._note(path, IDLE), self._note(path, USED)
        with unused(path) as free:
            read = not free
        if read:
            idle.unlink(missing_ok=True)
            self._stamp(used)
        elif not idle.exists():
            self._stamp(idle)
        now = self._clock()
        since = _time(idle)
        return Resident(path, _bytes(path), _time(used) or 0.0, read, since is not None and now - since >= IDLE_SECONDS)

    def _evict(self, path: Path) -> bool:
        """Throw an idle artifact away, unless somebody has come for it in the meantime."""
        lock = FileLock(self._locks / f"{path.name}.lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        try:
            with unused(path) as free:
                if not free or not self._look_again(path):
                    return False
                logger.info("evicting %s from the cache", path.name)
                self._throw_away(path)
        finally:
            lock.release()
        return True

    def _look_again(self, path: Path) -> bool:
        since = _time(self._note(path, IDLE))
        return since is not None and self._clock() - since >= IDLE_SECONDS

    def _throw_away(self, path: Path) -> None:
        with disk_errors(path):
            path.rename(self._trash / f"{path.name}.{uuid4().hex}")
        for kind in (VERIFIED, USED, IDLE):
            self._note(path, kind).unlink(missing_ok=True)

    def _empty_trash(self) -> None:
        for path in self._trash.iterdir():
            with suppress(OSError):  # another process empties it too
                remove(path)

    def _drop_abandoned(self) -> None:
        for folder in (self.root / ".staging").iterdir():
            lock = FileLock(self._locks / f"{folder.name}.lock")
            if self._clock() - _newest(folder) < ABANDONED_SECONDS:
                continue
            with suppress(Timeout), lock.acquire(blocking=False):
                remove(folder)

    def _touch(self, path: Path) -> None:
        """In use from now on: a server is about to start."""
        with disk_errors(path), unused(path):  # which makes the lease file that a server only reads
            self._note(path, IDLE).unlink(missing_ok=True)
            self._stamp(self._note(path, USED))

    def _stamp(self, note: Path) -> None:
        note.touch()
        os.utime(note, (self._clock(), self._clock()))

    def _note(self, path: Path, kind: str) -> Path:
        return self._state / f"{path.name}.{kind}"


def _time(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if not path.is_dir() else 0
    return total


def _newest(folder: Path) -> float:
    return max([_time(folder) or 0.0, *(_time(path) or 0.0 for path in folder.rglob("*"))])
