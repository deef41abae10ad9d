"""Errors in the caller's dialect: OpenAI's error object, with a sentence that names the limit."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from numaserve_serving.engine.errors import InferenceError, InputError, QueueFull


class ApiError(Exception):
    """A refusal with an HTTP status."""

    def __init__(
        self, status: int, message: str, kind: str = "invalid_request_error", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def json_answer(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON response; orjson is several times faster than the framework's default."""
    return Response(orjson.dumps(document), status, headers, "application/json")


def answer(
    status: int, message: str, kind: str, param: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """An error response."""
    return json_answer(error_body(message, kind, param), status, headers)


async def on_api_error(_: Request, error: Exception) -> Response:
    """A refusal of ours."""
    assert isinstance(error, ApiError)  # noqa: S101 -- registered for this type only
    return answer(error.status, str(error), error.kind, error.param)


async def on_input_error(_: Request, error: Exception) -> Response:
    """A text that cannot be embedded."""
    return answer(400, str(error), "invalid_request_error", "input")


async def on_queue_full(_: Request, error: Exception) -> Response:
    """Too much waits; the header says when there is room again."""
    seconds = error.retry_after if isinstance(error, QueueFull) else 1.0
    return answer(429, str(error), "rate_limit_error", headers={"Retry-After": str(max(1, round(seconds)))})


async def on_inference_error(_: Request, error: Exception) -> Response:
    """The model gave nothing usable."""
    return answer(500, str(error), "server_error")


async def on_http_error(_: Request, error: Exception) -> Response:
    """An unknown path, a wrong method, a body that is too large."""
    assert isinstance(error, HTTPException)  # noqa: S101 -- registered for this type only
    return answer(error.status_code, str(error.detail), "invalid_request_error")


async def on_validation_error(_: Request, error: Exception) -> Response:
    """A body of the wrong shape: one sentence a fault, without echoing texts."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 -- registered for this type only
    faults = [f"{'.'.join(str(p) for p in e['loc'] if p != 'body')}: {e['msg']}" for e in error.errors()[:5]]
    param = next((str(p) for e in error.errors() for p in e["loc"] if p != "body"), None)
    return answer(400, "; ".join(faults) or "the body is not valid JSON", "invalid_request_error", param)


HANDLERS: dict[int | type[Exception], Any] = {
    ApiError: on_api_error,
    HTTPException: on_http_error,
    InputError: on_input_error,
    QueueFull: on_queue_full,
    InferenceError: on_inference_error,
    RequestValidationError: on_validation_error,
}
