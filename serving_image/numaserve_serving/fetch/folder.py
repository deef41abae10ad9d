"""file:// directories: for a laptop; links are never followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from pathlib import Path

from numaserve_api.conditions import Reason
from numaserve_serving.fetch.errors import Dropped, FetchError, absent
from numaserve_serving.fetch.location import FolderLocation

CHUNK = 1024 * 1024


class FolderSource:
    """Files of a directory."""

    def __init__(self, location: FolderLocation) -> None:
        self.title = f"file://{location.path}"
        self.remedy = "check the path"
        self._root = Path(location.path)

    def stream(self, path: str, offset: int) -> Generator[bytes]:
        """Bytes of a file; a link, or a folder that is one, is refused."""
        file = self._root / path
        if any(p.is_symlink() for p in [file, *file.parents] if p.is_relative_to(self._root) and p != self._root):
            raise FetchError(Reason.ARTIFACT_INVALID, f"{file} is a link: copy the real file there")
        with os.fdopen(_open(file), "rb") as stream:
            stream.seek(offset)
            try:
                while chunk := stream.read(CHUNK):
                    yield chunk
            except OSError as error:
                raise Dropped(str(error)) from error

    def close(self) -> None:
        """Nothing is kept open."""


def _open(file: Path) -> int:
    """A descriptor of a regular file; a pipe must not hold us, so it is opened without waiting."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise FetchError(
                Reason.SOURCE_DENIED, f"{file} may not be read by uid {os.geteuid()}: change its permissions"
            ) from error
        raise absent(str(file)) from error
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FetchError(Reason.ARTIFACT_INVALID, f"{file} is not a regular file: copy the artifact there again")
