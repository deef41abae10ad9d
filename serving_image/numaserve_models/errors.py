"""What goes wrong while an artifact is made: one sentence a person can act on."""

from __future__ import annotations

import re

_WHERE = re.compile(r"^(Exception from|Check .* failed at|\s*at |Traceback|\[ ?ERROR ?\])")


class ExportError(RuntimeError):
    """The source cannot become an artifact; the message says what, where and the remedy."""


def said(error: BaseException) -> str:
    """What a library's error says, in one line: not where in its own source it was raised."""
    lines = [line.strip().rstrip(":") for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not _WHERE.match(line)]
    return (telling or lines or [type(error).__name__])[0]
