"""What a source means: its scheme decides who is asked, the rest where the files lie. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from numaserve_api.conditions import Reason
from numaserve_serving.fetch.errors import FetchError

_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[^/@\s]+)(?:/(?P<folder>[^\s]+))?")
_BUCKET = re.compile(r"(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[^\s]*))?")
_REGISTRY = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(?::[0-9]+)?|\[[0-9a-fA-F:]+\](?::[0-9]+)?)/(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?:(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[a-f0-9]{64}))?)"
)


@dataclass(frozen=True, slots=True)
class HubLocation:
    """A folder of a repository on a Hugging Face hub, at a revision."""

    repo: str
    revision: str
    folder: str


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A prefix in an S3 bucket, without slashes at its ends."""

    bucket: str
    prefix: str


@dataclass(frozen=True, slots=True)
class UrlLocation:
    """A directory URL that ends in a slash."""

    url: str


@dataclass(frozen=True, slots=True)
class RegistryLocation:
    """An artifact in an OCI registry; ``reference`` is a tag or a digest."""

    host: str
    repository: str
    reference: str


@dataclass(frozen=True, slots=True)
class FolderLocation:
    """A directory of this machine."""

    path: str


Location = HubLocation | BucketLocation | UrlLocation | RegistryLocation | FolderLocation


def parse_location(source: str) -> Location:
    """The location a source names. Raises FetchError with how it is written."""
    scheme, _, rest = source.partition("://")
    match scheme:
        case "hf":
            return _hub(rest)
        case "s3":
            return _bucket(rest)
        case "oci":
            return _registry(rest)
        case "https" | "http":
            return _url(source)
        case "file":
            return _local(rest)
        case "pvc":
            raise _wrong(source, "a claim is mounted, not fetched: leave out `fetch`")
    raise _wrong(source, "write hf://, s3://, https://, oci:// or file://")


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine; only there may a connection go without TLS."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address((host or "").strip("[]")).is_loopback
    except ValueError:
        return False


def _hub(rest: str) -> Location:
    found = _HUB.fullmatch(rest)
    if not found:
        raise _wrong(f"hf://{rest}", "write hf://OWNER/NAME@REVISION or hf://OWNER/NAME@REVISION/FOLDER")
    return HubLocation(found["repo"], found["revision"], _folder(f"hf://{rest}", found["folder"]))


def _bucket(rest: str) -> Location:
    found = _BUCKET.fullmatch(rest)
    if not found:
        raise _wrong(f"s3://{rest}", "write s3://BUCKET/PREFIX")
    return BucketLocation(found["bucket"], _folder(f"s3://{rest}", found["prefix"]))


def _registry(rest: str) -> Location:
    found = _REGISTRY.fullmatch(rest)
    if not found or not (found["tag"] or found["digest"]):
        raise _wrong(f"oci://{rest}", "write oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:…")
    return RegistryLocation(found["host"], found["repository"], found["digest"] or found["tag"])


def _local(path: str) -> Location:
    if not path.startswith("/"):
        raise _wrong(f"file://{path}", "write file:///PATH, three slashes and an absolute path")
    return FolderLocation(path)


def _url(source: str) -> Location:
    if "@" in source.partition("://")[2].partition("/")[0]:
        host = source.rpartition("@")[2]
        raise _wrong(
            f"https://…@{host}", "credentials belong into the Secret of spec.sourceSecretRef, not into the URL"
        )
    try:
        parts = urlsplit(source)
        usable = bool(parts.hostname) and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:  # a port that is none, an address that is none
        usable = False
    if not usable:
        raise _wrong(source.partition("?")[0], "write https://HOST/PATH/, the directory that holds manifest.json")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise _wrong(source, "plain http is for this machine only: use https://")
    return UrlLocation(source.rstrip("/") + "/")


def _folder(source: str, text: str | None) -> str:
    folder = (text or "").strip("/")
    if any(part in ("", ".", "..") for part in folder.split("/")) and folder:
        raise _wrong(source, "the path must not contain empty, `.` or `..` folders")
    return folder


def _wrong(source: str, remedy: str) -> FetchError:
    return FetchError(Reason.ARTIFACT_MISSING, f"spec.config.model.source {source} cannot be fetched: {remedy}")
