"""An artifact of random bytes, and a small HTTP server on loopback that misbehaves as it is told."""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from numaserve_api.manifest import MANIFEST_FILE, manifest_digest
from numaserve_serving.fetch.transfer import Patience

ZERO = "sha256:" + "0" * 64
SIZES = {"openvino_model.xml": 900, "openvino_model.bin": 300_000, "tokenizer.json": 0, "samples/texts.jsonl": 70_000}
FACTS: dict[str, Any] = {
    "task": "embedding",
    "pooling": "mean",
    "normalize": True,
    "dimensions": [8],
    "maxTokens": 16,
    "positions": 16,
    "layers": ["full"],
    "space": "tiny@1",
    "weightsDigest": ZERO,
    "tokenizerDigest": ZERO,
}


def hurried(waits: list[float] | None = None, tries: int = 6, total: int = 100) -> Patience:
    """Patience that does not wait; the seconds it would have waited are added to ``waits``."""
    return Patience(tries, total, (waits if waits is not None else []).append)


def manifest(files: list[dict[str, Any]]) -> bytes:
    """The bytes of a manifest.json that lists these files."""
    document = {
        "version": 1,
        "files": files,
        "parts": {},
        "model": FACTS,
        "quantization": {"scheme": "none"},
        "provenance": {},
    }
    return json.dumps(document).encode()


def listed(path: str, content: bytes) -> dict[str, Any]:
    """A file's entry in a manifest."""
    return {"path": path, "size": len(content), "digest": "sha256:" + hashlib.sha256(content).hexdigest()}


def write_artifact(folder: Path, seed: int = 1, sizes: dict[str, int] | None = None) -> str:
    """Write an artifact of random bytes; its digest."""
    rng = random.Random(seed)
    entries = []
    for path, size in (sizes or SIZES).items():
        content = rng.randbytes(size)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        entries.append(listed(path, content))
    raw = manifest(entries)
    (folder / MANIFEST_FILE).write_bytes(raw)
    return manifest_digest(raw)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones included."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if not p.is_dir()}


@dataclass
class Asked:
    """A request as it arrived; header names are compared without case."""

    path: str
    start: int | None
    headers: Message


Answer = Callable[["Handler", Asked], bool]
"""Answers a request in its own way and says so; False leaves it to the server."""


@dataclass
class Site:
    """Files by name, and what goes wrong. ``url`` is of its directory; ``asked`` are the requests in order."""

    files: dict[str, bytes]
    url: str = ""
    ranges: bool = True
    answer: Answer = lambda *_: False
    asked: list[Asked] = field(default_factory=list)

    def starts(self, path: str) -> list[int | None]:
        """From which byte on a file was asked for, request by request."""
        return [a.start for a in self.asked if a.path == path]


class Handler(BaseHTTPRequestHandler):
    """Serves a Site."""

    site: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        asked = Asked(self.path.removeprefix("/a/"), int(found[1]) if found else None, self.headers)
        self.site.asked.append(asked)
        if self.site.answer(self, asked):
            return
        content = self.site.files.get(asked.path)
        if content is None:
            self.status(404)
        else:
            self.content(content, asked.start)

    def status(self, code: int, **headers: str) -> None:
        """An empty answer."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def content(self, content: bytes, start: int | None, cut: int | None = None) -> None:
        """A file from ``start`` on; with ``cut`` the connection ends after so many bytes of the answer."""
        if start is not None and self.site.ranges:
            if start >= len(content):
                self.status(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            content = content[start:]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content if cut is None else content[:cut])
        if cut is not None and cut < len(content):
            self.close_connection = True

    def log_message(self, *words: Any) -> None:
        """Be quiet."""


@contextmanager
def served(folder: Path | None = None, **changes: Any) -> Iterator[Site]:
    """A site that serves a folder's files under http://127.0.0.1:PORT/a/."""
    site = Site(tree(folder) if folder else {}, **changes)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"site": site}))
    site.url = f"http://127.0.0.1:{server.server_address[1]}/a/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def dropping(path: str, cut: int, times: int = 1) -> Answer:
    """Break the connection after ``cut`` bytes of the answer, so many times."""
    left = [times]

    def answer(handler: Handler, asked: Asked) -> bool:
        if asked.path != path or left[0] == 0:
            return False
        left[0] -= 1
        handler.content(handler.site.files[path], asked.start, cut)
        return True

    return answer
