"""s3:// buckets through s3fs, read block by block, so that every block is a range request of its own."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from numaserve_api.conditions import Reason
from numaserve_serving.fetch.credentials import ACCESS_KEY, ENDPOINT, REGION, SECRET_KEY, SESSION_TOKEN, Credentials
from numaserve_serving.fetch.errors import Dropped, Ended, FetchError, absent, denied, untrusted
from numaserve_serving.fetch.location import BucketLocation, is_loopback
from numaserve_serving.fetch.web import BUSY, certificate_fault, tls

BLOCK = 8 * 1024 * 1024
DEFAULT_REGION = "us-east-1"
_DENIED = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"})
_UNKNOWN_KEY = "XAdminUserNotFound"
"""What versitygw answers, with HTTP 404, to an access key it does not know."""
_ENDED = frozenset({"InvalidRange", "416"})


class BucketSource:
    """Files under a prefix of a bucket. A custom endpoint is addressed path-style, as S3-compatible servers expect."""

    def __init__(self, location: BucketLocation, credentials: Credentials) -> None:
        self.title = f"s3://{location.bucket}/{location.prefix}"
        self.remedy = "check the key endpoint of the Secret of spec.sourceSecretRef and the network policies"
        self._root = "/".join(part for part in (location.bucket, location.prefix) if part)
        self._files = filesystem(credentials)

    def stream(self, path: str, offset: int) -> Generator[bytes]:
        """Bytes of an object from ``offset`` on."""
        first = offset
        while True:
            try:
                with _failures(f"s3://{self._root}/{path}"):
                    block = self._files.cat_file(f"{self._root}/{path}", start=offset, end=offset + BLOCK)
            except Ended:
                if offset == first and offset > 0:
                    raise
                return  # an empty object, or one of whole blocks: there is no range behind its last byte
            yield block
            offset += len(block)
            if len(block) < BLOCK:
                return

    def close(self) -> None:
        """Close the connections."""
        close(self._files)


def filesystem(credentials: Credentials) -> Any:
    """An s3fs file system that knows these credentials and no others. Raises FetchError for a plain http endpoint."""
    import s3fs

    endpoint, key, secret = credentials.get(ENDPOINT), credentials.get(ACCESS_KEY), credentials.get(SECRET_KEY)
    parts = urlsplit(endpoint or "")
    if endpoint and not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))):
        raise FetchError(Reason.SOURCE_UNREACHABLE, f"the key endpoint {endpoint} must be an https:// address")
    if bool(key) != bool(secret):
        raise FetchError(
            Reason.SOURCE_DENIED,
            f"the Secret of spec.sourceSecretRef has only one of the keys {ACCESS_KEY} and {SECRET_KEY}: add the other one",
        )
    tls(credentials)  # says what is wrong with ca.crt before botocore does
    client: dict[str, Any] = {"region_name": credentials.get(REGION) or DEFAULT_REGION}
    if credentials.ca:
        client["verify"] = str(credentials.ca)
    files = s3fs.S3FileSystem(
        anon=not (key and secret), key=key, secret=secret, token=credentials.get(SESSION_TOKEN), endpoint_url=endpoint,
        client_kwargs=client, skip_instance_cache=True, use_listings_cache=False,
        config_kwargs={
            "s3": {"addressing_style": "path" if endpoint else "auto"}, "ignore_configured_endpoint_urls": True,
            "connect_timeout": 10, "read_timeout": 30, "retries": {"max_attempts": 1, "mode": "standard"},
        },
    )  # fmt: skip
    files.retries = 1  # whoever reads decides how often and when to try again
    return files


def close(files: Any) -> None:
    """Close an s3fs file system's session."""
    if files._s3 is not None:
        files.close_session(files.loop, files._s3creator)


@contextmanager
def _failures(what: str) -> Iterator[None]:
    from aiohttp import ClientError as TransportError
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]

    try:
        yield
    except FileNotFoundError as error:
        raise absent(what) from error
    except (OSError, BotoCoreError, TransportError) as error:
        fault = certificate_fault(error)
        if fault or "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise untrusted(what, fault or "certificate verify failed") from error
        code, status = _answer(error)
        if code in _ENDED:
            raise Ended(f"{what} has no byte at this offset") from error
        if code in _DENIED or code == _UNKNOWN_KEY or status in (401, 403) or isinstance(error, PermissionError):
            raise denied(what, code or "access denied") from error
        if 300 <= status < 500 and status not in BUSY and code != "RequestTimeout":
            raise FetchError(
                Reason.SOURCE_UNREACHABLE,
                f"{what} answers {code} (HTTP {status}): check the source and the keys {ENDPOINT} and {REGION} of its Secret",
            ) from error
        raise Dropped(f"{type(error).__name__}: {error}") from error


def _answer(error: BaseException) -> tuple[str, int]:
    """Code and HTTP status of the server's answer; empty and 0 when there was none."""
    response = getattr(error.__cause__, "response", None) or getattr(error, "response", None)
    if not isinstance(response, dict):
        return "", 0
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(response.get("Error", {}).get("Code", "")), int(status)
