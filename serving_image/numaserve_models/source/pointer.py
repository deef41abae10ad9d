"""Files that are not what their name says: Git LFS leaves a note in place of a large file that was not fetched."""

from __future__ import annotations

from pathlib import Path

from numaserve_models.errors import ExportError

_POINTER = b"version https://git-lfs"


def refuse_pointer(path: Path) -> None:
    """Refuse a Git LFS pointer by name. A file that cannot be read is left to whoever reads it."""
    try:
        with path.open("rb") as stream:
            begin = stream.read(len(_POINTER))
    except OSError:
        return
    if begin == _POINTER:
        raise ExportError(
            f"{path.name} is a Git LFS pointer of {path.stat().st_size} bytes, not the file: run `git lfs pull`, or download it again"
        )
