"""A whole artifact into a staging directory: manifest.json first, then its files, a few at a time.

::

    STAGING/manifest.json   verified against the hash before anything else is asked for
    STAGING/parts/…         what has arrived of files that are not whole
    STAGING/artifact/…      whole, verified files; manifest.json joins them last
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from numaserve_api.conditions import Reason
from numaserve_api.manifest import MANIFEST_FILE, FileEntry, Manifest, manifest_digest
from numaserve_api.validate import sentences
from numaserve_serving.fetch.base import Source
from numaserve_serving.fetch.disk import is_plain, make_parents, remove, sync_folder, write_file
from numaserve_serving.fetch.errors import Dropped, FetchError, changed, disk_errors
from numaserve_serving.fetch.progress import size
from numaserve_serving.fetch.transfer import Halted, Job, Patience, transfer, unreachable

PARALLEL = 3
"""Enough to hide the round trips of small files; the bytes of a large one come no faster by more."""
MAX_MANIFEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Contents:
    """A verified manifest: its bytes and the files it lists."""

    raw: bytes
    files: tuple[FileEntry, ...]

    @property
    def total(self) -> int:
        """Bytes of the artifact, manifest.json included."""
        return len(self.raw) + sum(entry.size for entry in self.files)


class Staging:
    """A directory in which one artifact comes together, across restarts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.artifact, self.parts = root / "artifact", root / "parts"
        self.manifest = root / MANIFEST_FILE

    def prepare(self, digest: str) -> None:
        """Keep what is there of this artifact; anything else goes."""
        with disk_errors(self.root):
            if self.root.is_symlink() or (self.root.exists() and not self._is_of(digest)):
                remove(self.root)
            for folder in (self.artifact, self.parts):
                folder.mkdir(parents=True, exist_ok=True)

    def contents(self, digest: str, source: Source, patience: Patience) -> Contents:
        """The manifest, from here or from the source; it is not written yet. Raises FetchError."""
        if self._is_of(digest):
            return parse_manifest(self.manifest.read_bytes(), digest, source.title)
        return parse_manifest(_read_manifest(source, patience), digest, source.title)

    def keep(self, contents: Contents) -> None:
        """Write the manifest: from now on this directory belongs to its artifact, and its room is taken."""
        write_file(self.manifest, contents.raw)

    def missing(self, contents: Contents) -> int:
        """Bytes still to be written."""
        return sum(e.size for e in contents.files if not self._whole(e)) - sum(
            p.stat().st_size for p in self.parts.rglob("*") if p.is_file() and not p.is_symlink()
        )

    def bring(self, job: Job, contents: Contents) -> None:
        """Fetch every file that is not here. Raises FetchError with the first fault; the other transfers stop."""
        job.meter.found(len(contents.raw))
        entries = sorted(contents.files, key=lambda entry: -entry.size)
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="fetch") as pool:
            tasks = [pool.submit(self._one, job, entry) for entry in entries]
            try:
                wait(tasks, return_when=FIRST_EXCEPTION)
            finally:
                job.halt.set()
                pool.shutdown(cancel_futures=True)
        faults = [f for task in tasks if not task.cancelled() and (f := task.exception())]
        for fault in sorted(faults, key=lambda fault: isinstance(fault, Halted)):
            raise fault

    def seal(self, contents: Contents) -> Path:
        """Add manifest.json and bring every name to the disk; the directory that may now be moved to its place."""
        listed = {entry.path for entry in contents.files}
        with disk_errors(self.artifact):
            for path in self.artifact.rglob("*"):  # a server refuses what its manifest does not list
                if (path.is_symlink() or not path.is_dir()) and str(path.relative_to(self.artifact)) not in listed:
                    path.unlink()
        write_file(self.artifact / MANIFEST_FILE, contents.raw)
        with disk_errors(self.artifact):
            for folder, _, _ in os.walk(self.artifact, topdown=False):
                sync_folder(Path(folder))
        return self.artifact

    def remove(self) -> None:
        """Delete what is left of it."""
        with disk_errors(self.root):
            remove(self.root)

    def _one(self, job: Job, entry: FileEntry) -> None:
        if self._whole(entry):
            job.meter.found(entry.size)
            return
        part, target = self.parts / entry.path, self.artifact / entry.path
        for path in (part, target):
            make_parents(path, self.root)
        transfer(job, entry, part, target)

    def _whole(self, entry: FileEntry) -> bool:
        """Whether the file was brought before: it got its name only after it was verified."""
        path = self.artifact / entry.path
        return is_plain(path, self.root) and path.stat().st_size == entry.size

    def _is_of(self, digest: str) -> bool:
        return is_plain(self.manifest, self.root) and manifest_digest(self.manifest.read_bytes()) == digest


def parse_manifest(raw: bytes, digest: str, title: str) -> Contents:
    """The manifest of this digest. Raises FetchError before anything of another one is looked at."""
    found = "sha256:" + hashlib.sha256(raw).hexdigest()
    if found != digest:
        hint = "" if raw.lstrip()[:1] == b"{" else f" and begins with {raw[:24]!r}, which is no manifest"
        raise changed(f"{MANIFEST_FILE} of {title}", f"has digest {found}{hint}, spec.config.model.hash says {digest}")
    try:
        files = tuple(Manifest.model_validate_json(raw).files)
    except ValidationError as error:
        raise FetchError(Reason.ARTIFACT_INVALID, "; ".join(sentences(error, MANIFEST_FILE)[:3])) from error
    _check_names(files)
    return Contents(raw, files)


def check_disk(folder: Path, needed: int) -> None:
    """Raises FetchError when the disk has not room for ``needed`` more bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise FetchError(
            Reason.NO_SPACE,
            f"the artifact needs {size(needed)} more, the disk of {folder} has {size(free)} free: free space there, "
            "or give the node a larger disk",
        )


def _check_names(files: tuple[FileEntry, ...]) -> None:
    """Every path once, none a folder of another, none manifest.json itself. Dots and escapes are no paths at all."""
    paths = {entry.path for entry in files}
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    double = len(paths) != len(files)
    if double or paths & folders or MANIFEST_FILE in paths:
        raise FetchError(
            Reason.ARTIFACT_INVALID,
            f"{MANIFEST_FILE} lists itself, a file twice, or a file that is also a folder "
            f"({', '.join(sorted(paths & (folders | {MANIFEST_FILE}))[:3]) or 'twice'}): export the artifact again",
        )


def _read_manifest(source: Source, patience: Patience) -> bytes:
    """manifest.json in one piece: it is small, and its digest is not known to be that of the last answer's rest."""
    for failures in itertools.count(1):
        try:
            with closing(source.stream(MANIFEST_FILE, 0)) as chunks:
                return _bounded(chunks, source)
        except Dropped as error:
            if failures >= patience.tries:
                raise unreachable(source, f"{source.title} does not give {MANIFEST_FILE}", error) from error
            patience.pause(failures, error, threading.Event())
    raise AssertionError("the loop ends by returning or raising")


def _bounded(chunks: Iterator[bytes], source: Source) -> bytes:
    raw = bytearray()
    for chunk in chunks:
        raw += chunk
        if len(raw) > MAX_MANIFEST:
            raise FetchError(
                Reason.ARTIFACT_INVALID,
                f"{MANIFEST_FILE} of {source.title} is larger than {size(MAX_MANIFEST)}: this is no manifest, correct the source",
            )
    return bytes(raw)
