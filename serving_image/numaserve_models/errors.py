"""What goes wrong while an artifact is made: one sentence a person can act on."""

from __future__ import annotations


class ExportError(RuntimeError):
    """The source cannot become an artifact; the message says what, where and the remedy."""
