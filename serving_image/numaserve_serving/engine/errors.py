"""Errors of the engine.

::

    EngineError
    ├── StartupError      the server refuses to start; carries a condition reason
    ├── InputError        the caller's fault: a 4xx that names the limit
    ├── QueueFull         too many tokens wait: 429 with the time to come again
    └── InferenceError    the graph gave nothing usable: 500, never a wrong vector
"""

from __future__ import annotations

from numaserve_api.conditions import Reason


class EngineError(RuntimeError):
    """Base of the engine's errors."""


class StartupError(EngineError):
    """Why the server will not serve this artifact."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class InputError(EngineError):
    """A text that cannot be embedded; ``index`` is its place in the request."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class QueueFull(EngineError):
    """The queue holds as many tokens as it may; ``retry_after`` in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InferenceError(EngineError):
    """The graph failed or gave a vector that is not one."""
