"""Which revision is asked for, and what every existing revision is to the resource."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from numaserve_api.resource import EncoderDeploymentSpec
from numaserve_api.revision import revision_hash
from numaserve_operator.domain.snapshot import Defaults, RevisionView, Role, Snapshot

_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Target:
    """The revision today's spec asks for; ``view`` is None until it has a ReplicaSet."""

    revision: str
    image: str
    cpus_per_thread: int
    view: RevisionView | None


@dataclass(frozen=True, slots=True)
class Cast:
    """Every revision in its part: the serving one, the one being tried, and the rest on their way out."""

    target: Target
    stable: RevisionView | None
    candidate: RevisionView | None
    losers: tuple[RevisionView, ...]


def find_target(snapshot: Snapshot, spec: EncoderDeploymentSpec) -> Target:
    """The revision asked for. An existing revision keeps the image and cores it was made with.

    So an operator upgrade, which changes the default image, rolls nothing.
    """
    for view in sorted(snapshot.revisions, key=_preference):
        image, cpus = _as_made(view, spec, snapshot.defaults)
        if revision_hash(spec, image, cpus) == view.revision:
            return Target(view.revision, image, cpus, view)
    image = spec.image or snapshot.defaults.image
    cpus = _cpus_per_thread(spec, snapshot.defaults)
    return Target(revision_hash(spec, image, cpus), image, cpus, None)


def cast(snapshot: Snapshot, target: Target) -> Cast:
    """Give every revision its part; of two that claim to be stable the later promoted one is."""
    claims = [v for v in snapshot.revisions if v.role is Role.STABLE]
    stable = max(claims, key=lambda v: v.promoted_at or _EPOCH, default=None)
    wanted = target.view if target.view and target.view.role is Role.CANDIDATE else None
    candidate = None if stable and wanted and wanted.revision == stable.revision else wanted
    parts = {v.revision for v in (stable, candidate) if v}
    losers = tuple(v for v in snapshot.revisions if v.revision not in parts)
    return Cast(target, stable, candidate, losers)


def _preference(view: RevisionView) -> tuple[bool, float]:
    return (view.role not in (Role.STABLE, Role.CANDIDATE), -view.created.timestamp())


def _as_made(view: RevisionView, spec: EncoderDeploymentSpec, defaults: Defaults) -> tuple[str, int]:
    made = (view.config or {}).get("cpusPerThread")
    asked = spec.placement.cpus_per_thread if spec.placement else None
    cpus = asked or (made if isinstance(made, int) else defaults.threads_per_core)
    return spec.image or view.image, cpus


def _cpus_per_thread(spec: EncoderDeploymentSpec, defaults: Defaults) -> int:
    asked = spec.placement.cpus_per_thread if spec.placement else None
    return asked or defaults.threads_per_core
