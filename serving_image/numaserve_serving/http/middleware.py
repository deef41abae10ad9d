"""ASGI middleware: body limit while reading, headers of every answer, counts, and `Connection: close` when draining."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException

from numaserve_api import names
from numaserve_serving.http.errors import error_body
from numaserve_serving.http.state import ServerState

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 32 * 1024 * 1024
logger = logging.getLogger("numaserve.access")
_OURS = ("/v1/embeddings",)


class BodyTooLarge(HTTPException):
    """Raised while reading, before the whole body is in memory; FastAPI lets only HTTP exceptions through there."""

    def __init__(self) -> None:
        super().__init__(413, f"the body is larger than {MAX_BODY_BYTES} bytes")


class ServerMiddleware:
    """Wraps the serving port's app."""

    def __init__(self, app: App, state: ServerState) -> None:
        self.app, self.state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["path"] in _OURS:
            await self._counted(scope, receive, send)
        else:
            await self.app(scope, receive, self._stamped(send, str(uuid.uuid4()), {}))

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, seen = self.state, {"status": 500}
        request_id = _header(scope, b"x-request-id") or str(uuid.uuid4())
        begin = time.perf_counter()
        state.in_flight += 1
        state.requests_total += 1
        state.metrics.in_flight.inc()
        stamped = self._stamped(send, request_id, seen)
        try:
            refused = self._refusal(scope)
            if refused:
                await _send_json(stamped, *refused)
                return
            await self.app(scope, _limited(receive), stamped)
        finally:
            seconds = time.perf_counter() - begin
            state.in_flight -= 1
            state.metrics.in_flight.dec()
            state.metrics.requests.labels(scope["path"], str(seen["status"])).inc()
            state.metrics.seconds.labels(scope["path"]).observe(seconds)
            extra = {
                "request_id": request_id,
                "status": seen["status"],
                "seconds": round(seconds, 6),
                "path": scope["path"],
            }
            logger.info("request", extra=extra)

    def _refusal(self, scope: Scope) -> tuple[int, dict[str, Any]] | None:
        state = self.state
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > MAX_BODY_BYTES:
            return 413, error_body(
                f"the body has {length} bytes, at most {MAX_BODY_BYTES} are read", "invalid_request_error"
            )
        if state.engine is None:
            return 503, error_body(f"not ready: {state.step}", "server_error")
        wanted = _header(scope, names.HEADER_EXPECT_SPACE.lower().encode())
        if wanted and wanted != state.space:
            text = f"this server answers in embedding space {state.space}, the request expects {wanted}: query the index built with it"
            return 412, error_body(text, "invalid_request_error", names.HEADER_EXPECT_SPACE, "different_space")
        return None

    def _stamped(self, send: Send, request_id: str, seen: dict[str, int]) -> Send:
        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                headers = list(message.get("headers") or ())
                headers += [
                    (names.HEADER_REVISION.lower().encode(), self.state.identity.revision.encode()),
                    (names.HEADER_SPACE.lower().encode(), self.state.space.encode()),
                    (b"x-request-id", request_id.encode("latin-1", "replace")),
                ]
                if self.state.draining:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        return wrapped


def _header(scope: Scope, name: bytes) -> str:
    return next((v.decode("latin-1") for k, v in scope["headers"] if k == name), "")


def _limited(receive: Receive) -> Receive:
    total = 0

    async def wrapped() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BODY_BYTES:
            raise BodyTooLarge
        return message

    return wrapped


async def _send_json(send: Send, status: int, body: dict[str, Any]) -> None:
    content = orjson.dumps(body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
