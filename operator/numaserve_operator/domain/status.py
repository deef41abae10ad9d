"""Status: a view of the children, made anew each time."""

from __future__ import annotations

from datetime import UTC, datetime

from numaserve_api import names
from numaserve_api.conditions import Reason
from numaserve_api.resource import (
    EncoderDeploymentSpec,
    EncoderDeploymentStatus,
    HistoryEntry,
    Phase,
    PodPlacement,
    RolloutStatus,
)
from numaserve_operator.domain import pinning
from numaserve_operator.domain.candidate import stable_space
from numaserve_operator.domain.conditions import blocked, conditions
from numaserve_operator.domain.rollout import Transition
from numaserve_operator.domain.scale import Scale, scale_of
from numaserve_operator.domain.snapshot import PodView, RevisionView, Snapshot
from numaserve_operator.domain.traffic import count_in_service, in_service, live

MAX_PLACEMENTS = 64
_EPOCH = datetime.fromtimestamp(0, UTC)


def status(snapshot: Snapshot, spec: EncoderDeploymentSpec, step: Transition) -> EncoderDeploymentStatus:
    """The whole status of a resource that parsed."""
    cast = step.cast
    views = [v for v in (cast.stable, cast.candidate, *cast.losers) if v]
    pods = [p for v in views for p in live(v)]
    placements = [_placement(p, spec) for p in pods if p.node]
    promoted = max((v for v in views if v.promoted_at), key=lambda v: v.promoted_at or _EPOCH, default=None)
    space = stable_space(cast)
    return EncoderDeploymentStatus(
        observed_generation=snapshot.parent.generation,
        replicas=sum(p.serving_label for p in pods),
        ready_replicas=count_in_service(views),
        selector=f"{names.LABEL_NAME}={snapshot.parent.name},{names.LABEL_SERVING}={names.SERVING_TRUE}",
        stable_revision=cast.stable.revision if cast.stable else None,
        candidate_revision=cast.target.revision if _trying(step) else None,
        last_promoted=promoted.promoted_at.isoformat() if promoted and promoted.promoted_at else None,
        space=space,
        space_anchor=snapshot.parent.status.get("spaceAnchor") or space,
        conditions=conditions(snapshot.parent, spec, step, snapshot.now),
        placement=sorted(placements, key=lambda p: p.pod)[:MAX_PLACEMENTS] or None,
        placement_summary=_summary(placements),
        rollout=_rollout(step, scale_of(spec)),
        history=_history(snapshot, step) or None,
        handled_action=snapshot.parent.status.get("handledAction"),
    )


def blocked_status(snapshot: Snapshot, reason: Reason, message: str) -> EncoderDeploymentStatus:
    """Status of a resource that cannot be acted on: what was known stays, the conditions say why."""
    parent = snapshot.parent
    try:
        old = EncoderDeploymentStatus.model_validate(parent.status)
    except ValueError:
        old = EncoderDeploymentStatus()
    rollout = RolloutStatus(phase=Phase.BLOCKED, message=message)
    update = {
        "observed_generation": parent.generation,
        "conditions": blocked(parent, reason, message, snapshot.now),
        "rollout": rollout,
    }
    return old.model_copy(update=update)


def _trying(step: Transition) -> bool:
    return step.create or step.cast.candidate is not None


def _placement(pod: PodView, spec: EncoderDeploymentSpec) -> PodPlacement:
    report = pod.report
    single = spec.placement is None or spec.placement.numa == "single"
    return PodPlacement(
        pod=pod.name,
        node=pod.node or "",
        revision=pod.revision,
        cpuset=report.cpuset if report else None,
        numa_nodes=report.numa_nodes if report else None,
        physical_cores=report.physical_cores if report else None,
        threads=report.threads if report else None,
        pinned=report is not None and pinning.judge(pod, single) is None,
        fingerprint=report.fingerprint if report else None,
    )


def _summary(placements: list[PodPlacement]) -> str | None:
    if not placements:
        return None
    return f"{sum(p.pinned for p in placements)}/{len(placements)} pinned"


def _rollout(step: Transition, scale: Scale) -> RolloutStatus:
    result = step.result
    view = step.cast.candidate
    stable = count_in_service([step.cast.stable]) if step.cast.stable else 0
    moved = sum(in_service(p) for p in view.pods) if view else 0
    share = round(100 * moved / (moved + stable)) if moved + stable else 0
    text = step.problem.message if step.problem else f"{stable + moved} of {scale.desired} pods serve"
    return RolloutStatus(
        phase=step.phase,
        weight=share if view else None,
        gates=list(result.values) or None if result else None,
        sample_digest=result.sample_digest or None if result else None,
        sample_count=result.sample_count or None if result else None,
        message=text[:2000],
    )


def _history(snapshot: Snapshot, step: Transition) -> list[HistoryEntry]:
    views = [v for v in snapshot.revisions if v.outcome]
    views.sort(key=lambda v: v.outcome_at or _EPOCH, reverse=True)
    entries = [_entry(v) for v in views[: snapshot.defaults.history_limit]]
    return entries if not step.changes else _with_changes(entries, step, snapshot)


def _entry(view: RevisionView) -> HistoryEntry:
    at = view.outcome_at.isoformat() if view.outcome_at else None
    return HistoryEntry(
        revision=view.revision, outcome=view.outcome or "", message=(view.outcome_message or "")[:1000], at=at
    )


def _with_changes(entries: list[HistoryEntry], step: Transition, snapshot: Snapshot) -> list[HistoryEntry]:
    by_name = {v.name: v.revision for v in snapshot.revisions}
    fresh = []
    for name, changes in step.changes.items():
        outcome = changes.get(names.ANNOTATION_OUTCOME)
        if outcome and name in by_name:
            message = changes.get(names.ANNOTATION_OUTCOME_MESSAGE) or ""
            at = changes.get(names.ANNOTATION_OUTCOME_AT)
            fresh.append(HistoryEntry(revision=by_name[name], outcome=outcome, message=message[:1000], at=at))
    told = {e.revision for e in fresh}
    return [*fresh, *(e for e in entries if e.revision not in told)][: snapshot.defaults.history_limit]
