"""Probe tokens: derived from the operator's own key, so no tenant's Secret is ever read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from numaserve_operator.gates.client import probe_token, token_digest


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens under one key."""

    key: bytes

    def of(self, parent_uid: str) -> Callable[[str], str]:
        """A function from revision to token, for one resource."""
        return lambda revision: probe_token(self.key, parent_uid, revision)

    def digest(self, parent_uid: str, revision: str) -> str:
        """What a pod of the revision is given."""
        return token_digest(probe_token(self.key, parent_uid, revision))
