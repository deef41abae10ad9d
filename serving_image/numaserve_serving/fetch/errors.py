"""Errors of fetching.

::

    FetchError    the artifact cannot be had: a condition reason and a sentence; trying again at once is no use
    Dropped       the connection broke or the source was busy: the same request may succeed in a moment
    └── Ended     the source has no byte at the offset asked for: its file is shorter than expected
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from numaserve_api.conditions import Reason

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class FetchError(RuntimeError):
    """Why the artifact is not here, with the reason a condition will carry."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Dropped(RuntimeError):
    """A transfer that ended early; what arrived so far is kept. ``after`` is the wait in seconds the source asks for."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Ended(Dropped):
    """The file ended before the bytes that were asked for."""


def denied(what: str, status: str) -> FetchError:
    """The source asks who we are, or says no."""
    return FetchError(
        Reason.SOURCE_DENIED,
        f"{what} answers {status}: the Secret of spec.sourceSecretRef must hold credentials that may read it",
    )


def absent(what: str) -> FetchError:
    """The source is there, the file is not."""
    return FetchError(
        Reason.ARTIFACT_MISSING, f"{what} does not exist: correct spec.config.model.source or copy the artifact there"
    )


def untrusted(what: str, why: str) -> FetchError:
    """The certificate is not signed by an authority we trust; encryption without it protects nothing."""
    return FetchError(
        Reason.SOURCE_UNREACHABLE,
        f"the certificate of {what} is not trusted ({why}): put its authority under the key ca.crt of the Secret of "
        "spec.sourceSecretRef",
    )


def changed(what: str, why: str) -> FetchError:
    """The bytes that arrive are not those the digest names."""
    return FetchError(
        Reason.DIGEST_MISMATCH,
        f"{what} {why}: copy the artifact to its source again, or paste the hash the export printed",
    )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """A full or refusing disk, in words."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise FetchError(
                Reason.NO_SPACE,
                f"the disk of {path.parent} is full while {path.name} is written: free space there, or lower "
                "artifactCache.limit",
            ) from error
        raise FetchError(
            Reason.NO_SPACE, f"{path} cannot be written ({error.strerror}): make the directory writable for uid 65532"
        ) from error
