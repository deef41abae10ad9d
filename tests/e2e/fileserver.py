"""A web server with TLS and a bearer token, where pods can reach it: artifact directories for fetching."""

from __future__ import annotations

import base64
import ssl
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from localcluster import Cluster
from localcluster.network import API_ADDRESS

TOKEN = "let-me-in"


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.send_error(401)
            return
        server.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    def __init__(self, folder: Path, context: ssl.SSLContext) -> None:
        self.asked: list[str] = []
        super().__init__((API_ADDRESS, 0), partial(_Handler, directory=str(folder)))
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust us hangs up: that is what a test asks for."""


class FileServer:
    """Serves a folder while the block runs; its certificate is signed by the cluster's own authority."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._authority, self._folder = cluster.plane.authority, folder

    def __enter__(self) -> FileServer:
        pair = self._authority.issue("fileserver", "fileserver", hosts=(API_ADDRESS,))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        self._server = _Server(self._folder, context)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def asked(self) -> list[str]:
        """Paths that were asked for with the right token."""
        return list(self._server.asked)

    def url(self, path: str) -> str:
        """https:// address of a folder."""
        return f"https://{API_ADDRESS}:{self._server.server_address[1]}/{path}"

    def secret(self, name: str, token: str = TOKEN, ca: bool = True) -> dict[str, Any]:
        """A Secret with a token and the authority to trust."""
        values = {"token": token.encode()} | ({"ca.crt": self._authority.ca.cert.read_bytes()} if ca else {})
        data = {key: base64.b64encode(value).decode() for key, value in values.items()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
