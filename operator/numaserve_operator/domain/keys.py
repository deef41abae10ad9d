"""Keys under which gate runs are stored, so a result is never used for anything else than it compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numaserve_api.resource import EncoderDeploymentSpec, Gates, dump
from numaserve_api.revision import gates_hash as _gates_hash
from numaserve_api.revision import short_hash


def effective_gates(spec: EncoderDeploymentSpec) -> Gates:
    """The gates of a resource; defaults where it names none."""
    rollout = spec.rollout
    return rollout.gates if rollout and rollout.gates else Gates()


def gates_hash(spec: EncoderDeploymentSpec) -> str:
    """Hash of the effective gates and of what makes no revision but can cure a failure: source, Secret and placement.

    A failed revision is tried again when it changes, so that following a remedy has an effect.
    """
    return short_hash([_gates_hash(effective_gates(spec)), *_curable(spec)])


def start_mark(spec: EncoderDeploymentSpec) -> str:
    """Hash of what a pod is started with beside its revision: one that cannot start is replaced when it changes."""
    return short_hash(_curable(spec))


def _curable(spec: EncoderDeploymentSpec) -> list[Any]:
    placement = dump(spec.placement) if spec.placement else {}
    secret = [spec.source_secret_ref.name] if spec.source_secret_ref else []
    return [spec.config.model.source, placement, *secret]


def gate_key(candidate: str, stable: str | None, samples: str, gates: str, pod_uids: Iterable[str]) -> str:
    """Key of one gate run: both revisions, sample digest, gates and the candidate's pods."""
    return short_hash([candidate, stable or "", samples, gates, sorted(pod_uids)])
