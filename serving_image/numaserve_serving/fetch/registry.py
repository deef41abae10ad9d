"""oci:// artifacts: each file a layer that carries its path as title. oras brings the token exchange."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from numaserve_api.conditions import Reason
from numaserve_serving.fetch.credentials import Credentials
from numaserve_serving.fetch.errors import Dropped, FetchError, absent, untrusted
from numaserve_serving.fetch.location import RegistryLocation, is_loopback
from numaserve_serving.fetch.web import certificate_fault, check_status, first_byte, tls

TITLE = "org.opencontainers.image.title"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CHUNK = 64 * 1024
TIMEOUT = (10.0, 30.0)
MAX_MANIFEST = 4 * 1024 * 1024
_DIGEST = re.compile(r"sha256:[a-f0-9]{64}")


class _Adapter(HTTPAdapter):
    """Every request ends in time, and none leads from TLS to plain text, token servers and redirects included."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        self._plain = plain

    def send(self, request: requests.PreparedRequest, *args: Any, **keywords: Any) -> requests.Response:
        keywords["timeout"] = keywords.get("timeout") or TIMEOUT
        parts = urlsplit(request.url or "")
        if parts.scheme != "https" and not (self._plain and is_loopback(parts.hostname)):
            raise FetchError(
                Reason.SOURCE_UNREACHABLE, f"the registry leads to plain http at {parts.hostname}: it must use https"
            )
        return super().send(request, *args, **keywords)


class RegistrySource:
    """Files of one OCI artifact."""

    def __init__(self, location: RegistryLocation, credentials: Credentials) -> None:
        self.title = f"oci://{location.host}/{location.repository}"
        self.remedy = "check the registry's address and the network policies"
        self.connection = Connection(location.host, location.repository, credentials)
        self._reference = location.reference
        self._layers: dict[str, str] | None = None

    def stream(self, path: str, offset: int) -> Generator[bytes]:
        """Bytes of the layer whose title is ``path``."""
        if self._layers is None:
            self._layers = self._read_layers()
        if path not in self._layers:
            raise absent(f"{path} in {self.title}")
        url = self.connection.url(f"blobs/{self._layers[path]}")
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with transport(url), self.connection.request("GET", url, headers) as response:
            skip = offset - first_byte(response.status_code, response.headers, url, offset)
            for chunk in response.raw.stream(CHUNK, decode_content=False):
                if skip < len(chunk):
                    yield chunk[skip:]
                skip = max(0, skip - len(chunk))

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def _read_layers(self) -> dict[str, str]:
        url = self.connection.url(f"manifests/{self._reference}")
        with transport(url), self.connection.request("GET", url, {"Accept": MANIFEST_TYPE}) as response:
            check_status(response.status_code, response.headers, url)
            content: bytes = response.raw.read(MAX_MANIFEST, decode_content=False)
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        if self._reference.startswith("sha256:") and digest != self._reference:
            raise FetchError(
                Reason.DIGEST_MISMATCH, f"{self.title} answers manifest {digest} where {self._reference} was asked for"
            )
        return _titles(content, self.title)


class Connection:
    """HTTP to one repository, logged in when the registry asks for it."""

    def __init__(self, host: str, repository: str, credentials: Credentials) -> None:
        from oras.auth import TokenAuth
        from oras.auth.utils import get_basic_auth

        tls(credentials)
        plain = _plain(host, credentials)
        scheme = "http" if plain else "https"
        self._base = f"{scheme}://{host}/v2/{repository}"
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.max_redirects = 5
        for prefix in ("https://", "http://"):
            self._session.mount(prefix, _Adapter(plain))
        verify: bool | str = str(credentials.ca) if credentials.ca else True
        self._session.verify = verify
        self._auth = TokenAuth()
        self._auth.session, self._auth._tls_verify = self._session, verify
        login = credentials.login(host)
        self._basic = get_basic_auth(*login) if login else None
        if login:
            self._auth.set_basic_auth(*login)
        self._headers: dict[str, str] = {}

    def url(self, path: str) -> str:
        """URL of a part of the repository."""
        return f"{self._base}/{path}"

    def request(self, method: str, url: str, headers: dict[str, str], data: Any = None) -> requests.Response:
        """A request, sent a second time with credentials when the registry asks for them."""
        asked = {"Accept-Encoding": "identity", **headers}
        response = self._session.request(method, url, headers={**asked, **self._headers}, stream=True, data=data)
        if response.status_code != 401:
            return response
        response.close()
        self._headers = self._authenticate(response)
        if hasattr(data, "seek"):
            data.seek(0)
        return self._session.request(method, url, headers={**asked, **self._headers}, stream=True, data=data)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _authenticate(self, response: requests.Response) -> dict[str, str]:
        challenge = response.headers.get("WWW-Authenticate", "")
        if challenge.lower().startswith("basic"):
            return {"Authorization": f"Basic {self._basic}"} if self._basic else {}
        self._auth.token = None
        try:
            headers, _ = self._auth.authenticate_request(response, {})
        except (AttributeError, TypeError, KeyError):  # a challenge without a realm, a token answer that is no object
            return {}
        return {k: v for k, v in headers.items() if k == "Authorization"}


def _plain(host: str, credentials: Credentials) -> bool:
    # A registry on this machine speaks http unless an authority for it is given, as container tools assume.
    return is_loopback(urlsplit(f"//{host}").hostname) and credentials.ca is None


def _titles(content: bytes, title: str) -> dict[str, str]:
    try:
        layers = json.loads(content)["layers"]
        titled = {
            notes[TITLE]: layer["digest"] for layer in layers if TITLE in (notes := layer.get("annotations") or {})
        }
        if not titled or not all(_DIGEST.fullmatch(digest) for digest in titled.values()):
            raise ValueError("no titles, or a digest of another kind")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError(
            Reason.ARTIFACT_INVALID,
            f"{title} is not an artifact whose layers carry titles: push its files with `oras push`",
        ) from error
    return titled


@contextmanager
def transport(url: str) -> Iterator[None]:
    """Failures of a connection to a registry, in our words."""
    import urllib3

    try:
        yield
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        fault = certificate_fault(error)
        if fault or "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise untrusted(str(urlsplit(url).hostname), fault or "certificate verify failed") from error
        raise Dropped(f"{type(error).__name__} at {url}") from error
