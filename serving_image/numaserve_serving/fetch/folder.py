"""file:// directories: for a laptop; links are never followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
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

    def stream(self, path: str, offset: int) -> Iterator[bytes]:
        """Bytes of a file; a link, or a folder that is one, is refused."""
        file = self._root / path
        if any(p.is_symlink() for p in [file, *file.parents] if p.is_relative_to(self._root) and p != self._root):
            raise FetchError(Reason.ARTIFACT_INVALID, f"{file} is a link: copy the real file there")
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise absent(str(file)) from error
        with os.fdopen(descriptor, "rb") as stream:
            stream.seek(offset)
            try:
                while chunk := stream.read(CHUNK):
                    yield chunk
            except OSError as error:
                raise Dropped(str(error)) from error

    def close(self) -> None:
        """Nothing is kept open."""
