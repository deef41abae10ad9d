"""decide(snapshot): everything a reconcile concludes, as a value. Pure: same snapshot, same decision."""

from __future__ import annotations

from dataclasses import dataclass, field

from numaserve_api.conditions import Reason
from numaserve_api.resource import EncoderDeploymentSpec, EncoderDeploymentStatus
from numaserve_operator.domain.conditions import previous
from numaserve_operator.domain.keys import start_mark
from numaserve_operator.domain.plan import Deletion, EventRecord, RevisionPatch
from numaserve_operator.domain.revisions import Target, cast, find_target
from numaserve_operator.domain.rollout import Transition, advance
from numaserve_operator.domain.scale import scale_of
from numaserve_operator.domain.snapshot import RevisionView, Snapshot
from numaserve_operator.domain.status import blocked_status, status
from numaserve_operator.domain.traffic import Router, Traffic, live, stuck

SOON_SECONDS = 1.0
PROBE_SECONDS = 2.0
FOREIGN_SECONDS = 10.0
"""A Service of somebody else is not among those we watch: look whether it has gone."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a reconcile concluded; builders turn it into manifests.

    ``target`` is None when there is nothing to build: an invalid spec, a foreign Service, a deletion.
    """

    status: EncoderDeploymentStatus | None = None
    spec: EncoderDeploymentSpec | None = None
    target: Target | None = None
    transition: Transition | None = None
    traffic: Traffic = field(default_factory=Traffic)
    patches: tuple[RevisionPatch, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    events: tuple[EventRecord, ...] = ()
    requeue_after: float | None = None


def decide(snapshot: Snapshot) -> Decision:
    """Conclude from one frozen picture what should be, what to tell, and when to look again."""
    parent = snapshot.parent
    if parent.deleting or snapshot.namespace_terminating:
        return Decision()
    if parent.spec is None:
        reason = Reason.NOT_SUPPORTED if parent.unsupported else Reason.INVALID_SPEC
        return _blocked(snapshot, reason, parent.spec_error or "spec cannot be read")
    foreign = next((s for s in snapshot.services if s.name == parent.name and not s.ours), None)
    if foreign:
        text = (
            f"Service {parent.namespace}/{foreign.name} exists and belongs to {foreign.owner}: it is left alone. "
            "Delete or rename that Service, or give this resource another name"
        )
        return _blocked(snapshot, Reason.NAME_CONFLICT, text, again=FOREIGN_SECONDS)
    return _proceed(snapshot, parent.spec)


def _blocked(snapshot: Snapshot, reason: Reason, message: str, again: float | None = None) -> Decision:
    told = blocked_status(snapshot, reason, message)
    return Decision(status=told, events=_problem_events(snapshot, told), requeue_after=again)


def _proceed(snapshot: Snapshot, spec: EncoderDeploymentSpec) -> Decision:
    target = find_target(snapshot, spec)
    step = advance(snapshot, spec, cast(snapshot, target))
    traffic = _route(snapshot, spec, step)
    told = status(snapshot, spec, step)
    return Decision(
        status=told,
        spec=spec,
        target=target,
        transition=step,
        traffic=traffic,
        patches=_patches(snapshot, step, traffic),
        deletions=(*traffic.deletions, *_unstartable(spec, target, step), *_outdated(snapshot, step)),
        events=(*step.events, *_problem_events(snapshot, told)),
        requeue_after=_again(snapshot, step, traffic),
    )


def _route(snapshot: Snapshot, spec: EncoderDeploymentSpec, step: Transition) -> Traffic:
    return Router(
        now=snapshot.now,
        scale=scale_of(spec),
        drain_seconds=snapshot.defaults.drain_seconds,
        stable=step.cast.stable,
        candidate=step.cast.candidate,
        losers=step.cast.losers,
        shifting=step.shifting,
        usable=step.usable,
    ).route()


def _patches(snapshot: Snapshot, step: Transition, traffic: Traffic) -> tuple[RevisionPatch, ...]:
    """What differs between each live ReplicaSet and what it should be; nothing at rest."""
    stable = step.cast.stable
    out = []
    for view in snapshot.revisions:
        serves = stable is not None and view.name == stable.name
        replicas = traffic.replicas.get(view.name, view.replicas)
        patch = RevisionPatch(
            name=view.name,
            uid=view.uid,
            replicas=replicas if replicas != view.replicas else None,
            annotations=step.changes.get(view.name, {}),
            template_serving=serves if serves != view.template_serving else None,
        )
        if not patch.empty:
            out.append(patch)
    return tuple(out)


def _unstartable(spec: EncoderDeploymentSpec, target: Target, step: Transition) -> list[Deletion]:
    """Pods of the revision asked for that a corrected source or placement makes obsolete."""
    tried = [v for v in (step.cast.candidate, step.cast.stable) if v and v.revision == target.revision]
    return [deletion for view in tried for deletion in stuck(view, start_mark(spec))]


def _outdated(snapshot: Snapshot, step: Transition) -> list[Deletion]:
    """Revisions beyond the history limit whose pods are gone, oldest first, with their ConfigMaps."""
    past: list[RevisionView] = [v for v in step.cast.losers if not live(v) and v.replicas == 0]
    past.sort(key=lambda v: v.outcome_at or v.created, reverse=True)
    old = past[snapshot.defaults.history_limit :]
    return [d for v in old for d in (Deletion("ReplicaSet", v.name, v.uid), Deletion("ConfigMap", v.name))]


def _problem_events(snapshot: Snapshot, told: EncoderDeploymentStatus) -> tuple[EventRecord, ...]:
    """One warning when a condition turns bad or its reason changes; none while it stays."""
    before = previous(snapshot.parent)
    out: dict[str, EventRecord] = {}
    for condition in told.conditions or ():
        old = before.get(condition.type)
        bad = condition.status == "False" and condition.type in (
            "ModelVerified",
            "Pinned",
            "GatesPassed",
            "Progressing",
        )
        waiting = condition.type == "Progressing" and condition.reason not in _CALM
        if (bad or waiting) and condition.reason not in _CALM and (old is None or old.reason != condition.reason):
            out.setdefault(condition.reason, EventRecord("Warning", condition.reason, condition.message[:1000]))
    return tuple(out.values())


_CALM = frozenset(
    reason.value
    for reason in (
        Reason.COMPLETE,
        Reason.STARTING,
        Reason.GATING,
        Reason.PROMOTING,
        Reason.DRAINING,
        Reason.PAUSED,
        Reason.SCALED_TO_ZERO,
        Reason.ROLLED_BACK,
    )
)


def _again(snapshot: Snapshot, step: Transition, traffic: Traffic) -> float | None:
    """When time alone could change the decision."""
    times = list(step.wake)
    if traffic.waiting:
        times.append(SOON_SECONDS)
    if traffic.held or step.cast.candidate or step.create:
        times.append(PROBE_SECONDS)
    if step.cast.stable:
        times.append(snapshot.defaults.rest_seconds)
    return max(min(times), 0.2) if times else None
