"""Structured JSON logs: one object a line, with request ids and never a text."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson

_FIELDS = ("request_id", "status", "seconds", "path")


class JsonFormatter(logging.Formatter):
    """A record as one JSON line."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: getattr(record, key) for key in _FIELDS if hasattr(record, key)},
        }
        if record.exc_info:
            document["error"] = self.formatException(record.exc_info)
        return orjson.dumps(document).decode()


def configure(level: str = "INFO") -> None:
    """Send every log to standard error as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
