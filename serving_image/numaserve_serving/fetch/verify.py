"""Whether a directory is a whole artifact: by its bytes, or by a mark that it was and has not been touched since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numaserve_api.manifest import MANIFEST_FILE
from numaserve_serving.fetch.disk import is_plain, write_file
from numaserve_serving.fetch.errors import FetchError
from numaserve_serving.fetch.staging import Contents, parse_manifest


def read_contents(folder: Path, digest: str) -> Contents:
    """The manifest of a directory. Raises FetchError when it is not that of ``digest``, OSError when there is none."""
    path = folder / MANIFEST_FILE
    if not is_plain(path, folder):
        raise FileNotFoundError(f"{path} is missing")
    return parse_manifest(path.read_bytes(), digest, str(folder))


def faults(folder: Path, digest: str) -> Iterator[str]:
    """What keeps a directory from being the artifact, found by reading every byte."""
    try:
        contents = read_contents(folder, digest)
    except (FetchError, OSError) as error:
        yield str(error)
        return
    for entry in contents.files:
        path = folder / entry.path
        if not is_plain(path, folder):
            yield f"{entry.path} is missing or a link"
        elif path.stat().st_size != entry.size or _digest(path) != entry.digest:
            yield f"{entry.path} has changed"


def mark(folder: Path, contents: Contents, marker: Path) -> None:
    """Note that the files were verified, and how they looked then. Raises FetchError."""
    write_file(marker, json.dumps(_looks(folder, contents)).encode())


def is_marked(folder: Path, digest: str, marker: Path) -> bool:
    """Whether the directory was verified before and no file has changed since: size, time or identity."""
    try:
        contents = read_contents(folder, digest)
        noted: Any = json.loads(marker.read_text())
        return bool(noted == _looks(folder, contents))
    except (FetchError, OSError, ValueError):
        return False


def _looks(folder: Path, contents: Contents) -> dict[str, list[int]]:
    looks = {}
    for entry in contents.files:
        status = (folder / entry.path).lstat()
        looks[entry.path] = [status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino]
    return looks


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
