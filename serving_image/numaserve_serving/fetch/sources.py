"""Which reader a source needs; the libraries of the others are never imported."""

from __future__ import annotations

from numaserve_serving.fetch.base import Source
from numaserve_serving.fetch.credentials import Credentials
from numaserve_serving.fetch.location import (
    BucketLocation,
    FolderLocation,
    HubLocation,
    RegistryLocation,
    UrlLocation,
    parse_location,
)


def open_source(source: str, credentials: Credentials) -> Source:
    """The reader of a source. Raises FetchError when the source or the credentials cannot be used; asks nobody yet."""
    match parse_location(source):
        case HubLocation() as location:
            from numaserve_serving.fetch.web import hub_source

            return hub_source(location, credentials)
        case UrlLocation() as location:
            from numaserve_serving.fetch.web import url_source

            return url_source(location, credentials)
        case BucketLocation() as location:
            from numaserve_serving.fetch.bucket import BucketSource

            return BucketSource(location, credentials)
        case RegistryLocation() as location:
            from numaserve_serving.fetch.registry import RegistrySource

            return RegistrySource(location, credentials)
        case FolderLocation() as location:
            from numaserve_serving.fetch.folder import FolderSource

            return FolderSource(location)
