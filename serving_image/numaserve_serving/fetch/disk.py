"""Files and folders that are only ever ours: no link is followed, names appear whole."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from numaserve_api.conditions import Reason
from numaserve_serving.fetch.errors import FetchError, disk_errors


def is_plain(path: Path, root: Path) -> bool:
    """Whether ``path`` is a regular file, reached from ``root`` without a link."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
    except OSError:
        return False
    return not any(folder.is_symlink() for folder in _between(path, root))


def make_parents(path: Path, root: Path) -> None:
    """The folders above ``path``, none of them a link out of ``root``. Raises FetchError."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    linked = next((folder for folder in _between(path, root) if folder.is_symlink()), None)
    if linked:
        raise FetchError(Reason.ARTIFACT_INVALID, f"{linked} is a link: remove it, files are never written through one")


def write_file(path: Path, content: bytes) -> None:
    """A small file, whole or not at all. Raises FetchError when the disk is full."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with disk_errors(path):
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a file, a link or a tree; what is not there is gone already. Raises OSError."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _between(path: Path, root: Path) -> list[Path]:
    """The folders from ``root`` (not itself) down to the one that holds ``path``."""
    return [folder for folder in path.parents if folder != root and folder.is_relative_to(root)]
