"""https:// directories and Hugging Face hubs: HTTP with ranges."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager

import httpx

from numaserve_api.conditions import Reason
from numaserve_serving.fetch.credentials import ENDPOINT, TOKEN, Credentials
from numaserve_serving.fetch.errors import Dropped, Ended, FetchError, absent, denied, untrusted
from numaserve_serving.fetch.location import HubLocation, UrlLocation, is_loopback

HUB = "https://huggingface.co"
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes ([0-9]+)-")


class WebSource:
    """Files under URLs. ``address`` gives the URL of a file of the artifact."""

    def __init__(
        self, title: str, address: Callable[[str], str], credentials: Credentials, headers: dict[str, str], remedy: str
    ) -> None:
        self.title = title
        self.remedy = remedy
        self._address = address
        self._client = httpx.Client(
            verify=tls(credentials), headers={"Accept-Encoding": "identity", **headers}, timeout=TIMEOUT, trust_env=False,
            follow_redirects=True, max_redirects=5, event_hooks={"request": [self._only_encrypted]},
        )  # fmt: skip

    def stream(self, path: str, offset: int) -> Generator[bytes]:
        """Bytes of a file; a server that ignores ranges is read from the start and its first bytes are dropped."""
        url = self._address(path)
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with _transport(url), self._client.stream("GET", url, headers=headers) as response:
            skip = offset - first_byte(response.status_code, response.headers, url, offset)
            # As it arrives: a chunk size would hold back what came before the connection broke.
            for chunk in response.iter_raw():
                if skip < len(chunk):
                    yield chunk[skip:]
                skip = max(0, skip - len(chunk))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _only_encrypted(self, request: httpx.Request) -> None:
        # Called for redirects too: none may lead from TLS to plain text, or from outside to this machine.
        plain_start = self._address("").startswith("http://")
        if request.url.scheme == "https" or (plain_start and is_loopback(request.url.host)):
            return
        raise FetchError(
            Reason.SOURCE_UNREACHABLE, f"{self.title} leads to plain http at {request.url.host}: it must serve https"
        )


def url_source(location: UrlLocation, credentials: Credentials) -> WebSource:
    """A directory URL; the key `token` is sent as a bearer token, to that host only."""
    token = credentials.get(TOKEN)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return WebSource(
        location.url, lambda path: location.url + path, credentials, headers, "check the host and the network policies"
    )


def hub_source(location: HubLocation, credentials: Credentials) -> WebSource:
    """A repository on a hub; `endpoint` names another hub than the public one, `token` opens private repositories."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    endpoint = (credentials.get(ENDPOINT) or HUB).rstrip("/")
    if endpoint.startswith("http://") and not is_loopback(httpx.URL(endpoint).host):
        raise FetchError(Reason.SOURCE_UNREACHABLE, f"the hub {endpoint} must be an https:// address")

    def address(path: str) -> str:
        name = f"{location.folder}/{path}" if location.folder else path
        return str(hf_hub_url(location.repo, name, revision=location.revision, endpoint=endpoint))

    headers = build_hf_headers(token=credentials.get(TOKEN) or False, library_name="numaserve")
    return WebSource(
        f"hf://{location.repo}@{location.revision}", address, credentials, headers,
        f"the hub {endpoint} must be reachable from the pod; where it is not, copy the artifact to s3://, oci:// or a claim (pvc://)",
    )  # fmt: skip


def tls(credentials: Credentials) -> ssl.SSLContext | bool:
    """How servers are verified: by ca.crt where given, else by the public authorities."""
    if credentials.ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(credentials.ca))
    except (ssl.SSLError, OSError) as error:
        raise FetchError(
            Reason.SOURCE_DENIED, f"ca.crt of the Secret is not a PEM certificate ({type(error).__name__})"
        ) from error


def check_status(status: int, headers: Mapping[str, str], url: str) -> None:
    """An HTTP status that is no answer. Raises Dropped and FetchError."""
    where = url.partition("?")[0]
    if status in (401, 403):
        raise denied(where, f"HTTP {status}")
    if status in (404, 410):
        raise absent(where)
    if status == 416:
        raise Ended(f"{where} has no byte at this offset")
    if status in BUSY:
        after = headers.get("Retry-After", "")
        raise Dropped(f"{where} answers HTTP {status}", float(after) if after.isdecimal() else None)
    if status not in (200, 206):
        raise FetchError(
            Reason.SOURCE_UNREACHABLE, f"{where} answers HTTP {status}: check spec.config.model.source and its server"
        )


def first_byte(status: int, headers: Mapping[str, str], url: str, offset: int) -> int:
    """Which byte of the file the answer begins with. Raises Dropped and FetchError for anything but plain content."""
    check_status(status, headers, url)
    coding = headers.get("Content-Encoding", "identity")
    if coding != "identity":
        raise FetchError(
            Reason.SOURCE_UNREACHABLE,
            f"{url.partition('?')[0]} is sent with Content-Encoding {coding}: let its server send the file as it is",
        )
    if status == 200:
        return 0
    found = _CONTENT_RANGE.match(headers.get("Content-Range") or "")
    start = int(found[1]) if found else -1
    if start != offset:
        raise Dropped(f"{url.partition('?')[0]} answers bytes from {start} on instead of {offset}")
    return start


def certificate_fault(error: BaseException | None) -> str | None:
    """What is wrong with a certificate, where that is why a connection failed; None for other failures."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return getattr(error, "verify_message", None) or "certificate verify failed"  # aiohttp's own kind has none
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def _transport(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.TooManyRedirects as error:
        raise FetchError(Reason.SOURCE_UNREACHABLE, f"{url} redirects more than five times") from error
    except httpx.HTTPError as error:
        fault = certificate_fault(error)
        if fault:
            raise untrusted(httpx.URL(url).host, fault) from error
        raise Dropped(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error
