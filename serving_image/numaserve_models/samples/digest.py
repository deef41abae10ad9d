"""The name of a sample set: one definition for `models samples`, calibration sets and reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable


def samples_digest(texts: Iterable[str]) -> str:
    """SHA-256 over the texts in order, each as its canonical JSON line.

    Canonical: the text alone as a JSON string in ASCII (everything else as ``\\uXXXX``) and one newline, so that
    neither a text's own line breaks nor an editor's encoding can make two sets look alike.
    """
    digest = hashlib.sha256()
    for text in texts:
        digest.update(json.dumps(text, ensure_ascii=True).encode("ascii") + b"\n")
    return "sha256:" + digest.hexdigest()
