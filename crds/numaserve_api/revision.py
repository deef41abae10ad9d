"""Revision identity: a hash of everything that can change an output or its speed, and of nothing else.

The canonical form is versioned and holds only fields that are *set*, so a release that adds an
optional field changes no existing hash and an upgrade of the operator rolls nothing.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from numaserve_api.quantity import canonical_quantity
from numaserve_api.resource import EncoderDeploymentSpec, Gates, dump

FORM_VERSION = 1
LENGTH = 10
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own safe alphabet: no vowels, so a hash never spells a word."""


def canonical_form(spec: EncoderDeploymentSpec, image: str, cpus_per_thread: int) -> dict[str, Any]:
    """The hashed document: config without its source, image, cores, memory and what pins the runtime.

    ``image`` and ``cpus_per_thread`` are the resolved values, whether or not the user wrote them.
    """
    placement = dump(spec.placement) if spec.placement else {}
    form: dict[str, Any] = {
        "version": FORM_VERSION,
        "config": _written_config(spec),
        "image": image,
        "cpusPerThread": cpus_per_thread,
        "memory": canonical_quantity(spec.memory),
    }
    if placement.get("requireIsa"):
        form["requireIsa"] = sorted(placement["requireIsa"])
    return form | {key: placement[key] for key in ("runtimeClassName", "rdtClass") if key in placement}


def _written_config(spec: EncoderDeploymentSpec) -> dict[str, Any]:
    # Only what the user wrote: a default filled in at read must not enter the hash. Where the artifact lies is
    # no part of what it is: its digest is.
    written = spec.config.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    written["model"].pop("source", None)
    return written


def revision_hash(spec: EncoderDeploymentSpec, image: str, cpus_per_thread: int) -> str:
    """Ten characters naming a revision; equal for equal canonical forms."""
    return short_hash(canonical_form(spec, image, cpus_per_thread))


def gates_hash(gates: Gates) -> str:
    """Ten characters naming a set of gates: a failed revision is tried again when it changes."""
    return short_hash(dump(gates))


def short_hash(document: Any) -> str:
    """Ten safe characters of the SHA-256 of a document's canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    letters = []
    for _ in range(LENGTH):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)
