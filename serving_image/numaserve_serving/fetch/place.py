"""An artifact into a directory of its own: a pod's emptyDir, or a folder on a laptop."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from numaserve_api.conditions import Reason
from numaserve_api.manifest import CONFIG_FILE, MANIFEST_FILE
from numaserve_serving.fetch.base import Source
from numaserve_serving.fetch.disk import is_plain, make_parents, sync_folder
from numaserve_serving.fetch.errors import FetchError, disk_errors
from numaserve_serving.fetch.progress import meter
from numaserve_serving.fetch.staging import Contents, Staging, check_disk
from numaserve_serving.fetch.transfer import Job, Patience
from numaserve_serving.fetch.verify import faults

STAGING = ".fetching"
Opener = Callable[[], AbstractContextManager[Source]]


def fetch_into(out: Path, digest: str, opener: Opener, patience: Patience) -> Path:
    """Fetch an artifact to ``out``; what is there already is verified and kept. Raises FetchError.

    A directory that can be renamed appears at once. A mount point cannot: there the verified files are moved in
    one by one and manifest.json, without which nothing is an artifact, comes last.
    """
    mounted = out.is_mount() or (out.is_dir() and not os.access(out.parent, os.W_OK))
    staging = Staging(out / STAGING if mounted else out.parent / f".{out.name}{STAGING}")
    if (out / MANIFEST_FILE).exists() and _is_there(out, digest):
        staging.remove()
        return out
    _check_empty(out, mounted)
    staging.prepare(digest)
    with opener() as source:
        contents = staging.contents(digest, source, patience)
        staging.keep(contents)
        if mounted:
            _take_back(out, staging, contents)
        check_disk(staging.root, staging.missing(contents))
        with meter(contents.total, source.title) as progress:
            staging.bring(Job(source, progress, patience), contents)
    sealed = staging.seal(contents)
    with disk_errors(out):
        if mounted:
            _move_in(sealed, out, contents)
        else:
            sealed.rename(out)
            sync_folder(out.parent)
    staging.remove()
    return out


def _is_there(out: Path, digest: str) -> bool:
    """Whether ``out`` holds the artifact, unchanged. Raises FetchError when it holds another."""
    found = next(faults(out, digest), None)
    if found is None:
        return True
    raise FetchError(
        Reason.ARTIFACT_INVALID,
        f"{out} holds another artifact or a damaged one ({found}): remove it, or name another --out",
    )


def _check_empty(out: Path, mounted: bool) -> None:
    """Files of an interrupted move are ours; other people's are never mixed with an artifact."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise FetchError(Reason.ARTIFACT_INVALID, f"{out} is not a directory: name another --out")
    with disk_errors(out):
        names = {entry.name for entry in out.iterdir()} if out.exists() else set()
    if mounted and STAGING in names:
        return
    if names - {STAGING, CONFIG_FILE, "lost+found"} if mounted else names:
        raise FetchError(
            Reason.ARTIFACT_INVALID,
            f"{out} is not empty ({', '.join(sorted(names)[:3])}): empty it, or name another --out",
        )


def _take_back(out: Path, staging: Staging, contents: Contents) -> None:
    """Files that an earlier run had moved in before it was killed."""
    for entry in contents.files:
        placed, target = out / entry.path, staging.artifact / entry.path
        if is_plain(placed, out):
            make_parents(target, staging.root)
            with disk_errors(target):
                placed.rename(target)


def _move_in(sealed: Path, out: Path, contents: Contents) -> None:
    folders = {out}
    for path in [*(entry.path for entry in contents.files), MANIFEST_FILE]:
        make_parents(out / path, out)
        if path == MANIFEST_FILE:
            for folder in folders:
                sync_folder(folder)
        (sealed / path).rename(out / path)
        folders.add((out / path).parent)
    sync_folder(out)
