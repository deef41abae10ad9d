"""Fetching as the init container and `numaserve fetch` do it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from numaserve_serving.fetch.base import Source
from numaserve_serving.fetch.cache import Cache
from numaserve_serving.fetch.credentials import read_credentials
from numaserve_serving.fetch.place import fetch_into
from numaserve_serving.fetch.progress import meter
from numaserve_serving.fetch.sources import open_source
from numaserve_serving.fetch.transfer import Job, Patience


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an artifact comes from: the source, and the mounted Secret (its folder and name) that opens it."""

    source: str
    credentials: Path | None = None
    secret: str | None = None

    @contextmanager
    def open(self) -> Iterator[Source]:
        """The source's reader. Raises FetchError."""
        source = open_source(self.source, read_credentials(self.credentials, self.secret))
        try:
            yield source
        finally:
            source.close()


def fetch_to(out: Path, digest: str, origin: Origin, patience: Patience | None = None) -> Path:
    """Fetch into a directory of its own. Raises FetchError."""
    return fetch_into(out, digest, origin.open, patience or Patience())


def fetch_cached(cache: Cache, digest: str, origin: Origin, patience: Patience | None = None) -> Path:
    """Fetch into the node's cache, or find it there without asking the source. Raises FetchError."""
    with cache.only_one(digest):
        found = cache.find(digest)
        if found:
            return found
        staging = cache.staging(digest)
        staging.prepare(digest)
        patience = patience or Patience()
        with origin.open() as source:
            contents = staging.contents(digest, source, patience)
            cache.reserve(digest, staging, contents)
            with meter(contents.total, source.title) as progress:
                staging.bring(Job(source, progress, patience), contents)
        return cache.add(digest, staging, contents)
