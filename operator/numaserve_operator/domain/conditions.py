"""Conditions of the resource: what is true now, why, with numbers and a remedy.

kstatus-friendly: `Ready` speaks of this generation's revision, `Stalled` is true when only a change can
help. Source: Kubernetes API conventions; sigs.k8s.io/cli-utils/pkg/kstatus.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from numaserve_api import names
from numaserve_api.conditions import Condition, ConditionType, Reason
from numaserve_api.resource import EncoderDeploymentSpec, Phase
from numaserve_operator.domain import pinning
from numaserve_operator.domain.keys import effective_gates
from numaserve_operator.domain.problems import Problem, find_problem, startup_failure
from numaserve_operator.domain.rollout import Transition
from numaserve_operator.domain.scale import Scale, scale_of
from numaserve_operator.domain.snapshot import ParentView, RevisionView, Verdict
from numaserve_operator.domain.traffic import active, count_in_service

Status = Literal["True", "False", "Unknown"]
Finding = tuple[Status, str, str]
_PHASE_REASONS = {
    Phase.STARTING: Reason.STARTING,
    Phase.GATING: Reason.GATING,
    Phase.SHIFTING: Reason.PROMOTING,
    Phase.PROMOTING: Reason.PROMOTING,
    Phase.DRAINING: Reason.DRAINING,
    Phase.PAUSED: Reason.PAUSED,
    Phase.COMPLETE: Reason.COMPLETE,
}


def conditions(parent: ParentView, spec: EncoderDeploymentSpec, step: Transition, now: datetime) -> list[Condition]:
    """Every condition, in a fixed order; transition times are kept where the status did not change."""
    scale = scale_of(spec)
    found: dict[ConditionType, Finding] = {
        ConditionType.READY: _ready(step, scale),
        ConditionType.AVAILABLE: _available(step, scale),
        ConditionType.PROGRESSING: _progressing(step, scale, spec),
        ConditionType.STALLED: _stalled(step),
        ConditionType.MODEL_VERIFIED: _verified(step, spec),
        ConditionType.PINNED: _pinned(step, spec),
        ConditionType.GATES_PASSED: _gates(step, spec),
    }
    return stamp(parent, found.items(), now)


def blocked(parent: ParentView, reason: Reason, message: str, now: datetime) -> list[Condition]:
    """Conditions of a resource that cannot be acted on at all; what serves is left alone and its conditions kept."""
    held: list[tuple[ConditionType, Finding]] = [
        (ConditionType.READY, ("False", reason, message)),
        (ConditionType.PROGRESSING, ("False", reason, message)),
        (ConditionType.STALLED, ("True", reason, message)),
    ]
    names = {kind.value for kind, _ in held}
    kept = [c for c in previous(parent).values() if c.type not in names]
    return [*stamp(parent, held, now), *kept]


def previous(parent: ParentView) -> dict[str, Condition]:
    """Conditions in the status as read; anything unreadable there counts as absent."""
    found = {}
    for raw in parent.status.get("conditions") or ():
        try:
            condition = Condition.model_validate(raw)
        except ValueError:
            continue
        found[condition.type] = condition
    return found


def stamp(parent: ParentView, findings: Iterable[tuple[ConditionType, Finding]], now: datetime) -> list[Condition]:
    """Findings as conditions of this generation."""
    before = previous(parent)
    out = []
    for kind, (status, reason, message) in findings:
        old = before.get(kind.value)
        since = old.last_transition_time if old and old.status == status else None
        out.append(
            Condition(
                type=kind.value,
                status=status,
                reason=str(reason),
                message=message[:32000],
                last_transition_time=since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                observed_generation=parent.generation,
            )
        )
    return out


def _serving(step: Transition) -> int:
    views = [v for v in (step.cast.stable, step.cast.candidate, *step.cast.losers) if v]
    return count_in_service(views)


def _available(step: Transition, scale: Scale) -> Finding:
    serving = _serving(step)
    if scale.desired == 0:
        return "True", Reason.SCALED_TO_ZERO, "spec.replicas is 0: nothing serves, as asked"
    text = f"{serving} pods serve, {scale.desired} wanted, at least {scale.floor}"
    if serving == 0:
        return "False", Reason.NO_READY_PODS, "no pod serves" + _because(step.problem)
    if serving < scale.floor:
        return "False", Reason.BELOW_FLOOR, text + _because(step.problem)
    return "True", Reason.SERVING, text


def _because(problem: Problem | None) -> str:
    return f": {problem.message}" if problem else ""


def _ready(step: Transition, scale: Scale) -> Finding:
    stable, target = step.cast.stable, step.cast.target.revision
    if stable and stable.revision == target:
        if scale.desired == 0:
            return "True", Reason.SCALED_TO_ZERO, "spec.replicas is 0"
        serving = count_in_service([stable])
        if serving >= max(scale.floor, 1):
            return "True", Reason.PROMOTED, f"revision {target} serves with {serving} of {scale.desired} pods"
        return (
            "False",
            step.problem.reason if step.problem else Reason.NO_READY_PODS,
            (f"revision {target} serves with {serving} of {scale.desired} pods" + _because(step.problem)),
        )
    beside = f" (stable revision {stable.revision} goes on serving)" if stable else ""
    if step.phase is Phase.ROLLED_BACK and step.problem:
        reason = Reason.ROLLED_BACK if stable else step.problem.reason
        return "False", reason, f"revision {target} was refused: {step.problem.reason}: {step.problem.message}{beside}"
    if step.problem:
        return "False", step.problem.reason, f"revision {target}: {step.problem.message}{beside}"
    if scale.desired == 0:
        return "False", Reason.SCALED_TO_ZERO, f"revision {target} is tried once spec.replicas is above 0"
    return (
        "False",
        _PHASE_REASONS.get(step.phase, Reason.STARTING),
        f"revision {target} is {step.phase.lower()}{beside}",
    )


def _progressing(step: Transition, scale: Scale, spec: EncoderDeploymentSpec) -> Finding:
    problem = step.problem
    if step.phase is Phase.ROLLED_BACK and problem:
        return "False", Reason.ROLLED_BACK, f"{problem.reason}: {problem.message}"
    if step.phase is Phase.PAUSED:
        return "False", Reason.PAUSED, "spec.rollout.paused is true: nothing is tried or moved"
    if step.phase is Phase.COMPLETE:
        status: Status = "True" if problem else "False"
        return status, problem.reason if problem else Reason.COMPLETE, problem.message if problem else "nothing to do"
    if step.overdue and problem:
        return "False", problem.reason, problem.message
    if problem:
        return "True", problem.reason, problem.message
    if scale.desired == 0:
        return "False", Reason.SCALED_TO_ZERO, "spec.replicas is 0"
    fetching = _fetching(step.cast.candidate, spec) if step.cast.candidate else None
    return (
        "True",
        _PHASE_REASONS.get(step.phase, Reason.STARTING),
        f"revision {step.cast.target.revision} is {step.phase.lower()}" + (f": {fetching}" if fetching else ""),
    )


def _stalled(step: Transition) -> Finding:
    if step.problem and (step.phase is Phase.ROLLED_BACK or step.overdue):
        return "True", step.problem.reason, step.problem.message
    return "False", Reason.NOT_STALLED, ""


def subject(step: Transition) -> RevisionView | None:
    """The revision that ModelVerified, Pinned and GatesPassed speak of: the one asked for, tried or refused."""
    views = [v for v in (step.cast.candidate, step.cast.stable, *step.cast.losers) if v]
    return next((v for v in views if v.revision == step.cast.target.revision), step.cast.stable)


def _of(step: Transition, kind: ConditionType) -> Finding | None:
    problem = step.problem
    return ("False", problem.reason, problem.message) if problem and problem.condition is kind else None


def _fetching(view: RevisionView, spec: EncoderDeploymentSpec) -> str | None:
    """Who fetches the artifact, while somebody does."""
    pods = sorted((p.name, p.node) for p in active(view) if p.initializing == names.FETCH_CONTAINER and p.node)
    if not pods:
        return None
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f"pod {pods[0][0]} on node {pods[0][1]}{more} fetches the artifact from {spec.config.model.source}"


def _verified(step: Transition, spec: EncoderDeploymentSpec) -> Finding:
    told = _of(step, ConditionType.MODEL_VERIFIED)
    view = subject(step)
    if told or view is None:
        return told or ("Unknown", Reason.NOT_VERIFIED_YET, "no pod has checked the artifact yet")
    for pod in active(view):
        failure = startup_failure(pod)
        if failure and not pod.ready:
            return "False", failure.reason, f"pod {pod.name}: {failure.message}"
    reports = [p.report for p in active(view) if p.report and p.report.ready]
    if reports:
        return (
            "True",
            Reason.VERIFIED,
            f"{len(reports)} pods of revision {view.revision} verified artifact {reports[0].artifact}",
        )
    if view.promoted_at or view.gate_result:
        return "True", Reason.VERIFIED, f"revision {view.revision} was verified before it was compared"
    fetching = _fetching(view, spec)
    if fetching:
        return "Unknown", Reason.FETCHING, fetching
    return "Unknown", Reason.NOT_VERIFIED_YET, f"no pod of revision {view.revision} has checked the artifact yet"


def _pinned(step: Transition, spec: EncoderDeploymentSpec) -> Finding:
    told = _of(step, ConditionType.PINNED)
    view = subject(step)
    if told or view is None:
        return told or ("Unknown", Reason.NOT_KNOWN_YET, "no pod has reported its cores yet")
    single = spec.placement is None or spec.placement.numa == "single"
    pods = [p for p in active(view) if p.report]
    problem = next((p for pod in pods if (p := pinning.judge(pod, single))), None) or _guaranteed(view)
    if problem:
        return "False", problem.reason, problem.message
    if not pods:
        return "Unknown", Reason.NOT_KNOWN_YET, f"no pod of revision {view.revision} reports its cores"
    where = "; ".join(f"{p.name} on {p.node}: CPUs {p.report.cpuset}" for p in pods if p.report)
    notes = [text for pod in pods if (text := pinning.warning(pod))]
    return "True", Reason.EXCLUSIVE, "; ".join([where, *notes])


def _guaranteed(view: RevisionView) -> Problem | None:
    problem = find_problem(view)
    return problem if problem and problem.condition is ConditionType.PINNED else None


def _gates(step: Transition, spec: EncoderDeploymentSpec) -> Finding:
    told = _of(step, ConditionType.GATES_PASSED)
    view = subject(step)
    if told:
        return told
    result = view.gate_result if view else None
    if result and result.verdict is Verdict.PASSED:
        return "True", result.reason, result.message
    if result and result.verdict is Verdict.FAILED:
        return "False", result.reason, result.message
    if step.cast.candidate:
        against = effective_gates(spec).against
        return (
            "Unknown",
            Reason.GATING,
            f"revision {step.cast.candidate.revision} is not compared yet (against {against})",
        )
    return "Unknown", Reason.NO_CANDIDATE, "no revision has been compared"
