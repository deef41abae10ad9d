"""The state machine of a rollout: which revision is tried, judged, promoted or rolled back.

Reads a frozen cast, returns a Transition; roles and phases live in ReplicaSet annotations, so the
same decision comes out after a restart or after `status` was erased.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from numaserve_api import names
from numaserve_api.conditions import ConditionType, Reason
from numaserve_api.resource import EncoderDeploymentSpec, Phase, Rollout
from numaserve_operator.domain import candidate as judging
from numaserve_operator.domain.keys import gates_hash
from numaserve_operator.domain.plan import EventRecord, GateRequest
from numaserve_operator.domain.problems import Problem, find_problem
from numaserve_operator.domain.revisions import Cast
from numaserve_operator.domain.scale import scale_of
from numaserve_operator.domain.snapshot import GateResult, RevisionView, Role, Snapshot, Verdict
from numaserve_operator.domain.traffic import count_in_service, live, proven

Annotations = dict[str, str | None]


@dataclass
class Transition:
    """What the rollout does next. Views carry the roles they have *after* this step."""

    cast: Cast
    phase: Phase
    changes: dict[str, Annotations] = field(default_factory=dict)
    create: bool = False
    shifting: bool = False
    usable: frozenset[str] = frozenset()
    problem: Problem | None = None
    gate: GateRequest | None = None
    result: GateResult | None = None
    overdue: bool = False
    events: list[EventRecord] = field(default_factory=list)
    wake: list[float] = field(default_factory=list)

    def annotate(self, view: RevisionView, changes: Annotations) -> None:
        """Add annotation changes for one revision."""
        self.changes.setdefault(view.name, {}).update(changes)

    def tell(self, kind: str, reason: str, message: str) -> None:
        """Add an event."""
        self.events.append(EventRecord("Warning" if kind == "Warning" else "Normal", reason, message))


def advance(snapshot: Snapshot, spec: EncoderDeploymentSpec, cast: Cast) -> Transition:
    """One step of the rollout."""
    step = _step(snapshot, spec, cast)
    _dismiss(snapshot.now, step)
    return step


def _step(snapshot: Snapshot, spec: EncoderDeploymentSpec, cast: Cast) -> Transition:
    view = cast.target.view
    if cast.stable and cast.stable.revision == cast.target.revision:
        return _settled(cast)
    if view and view.role is Role.FAILED and view.gates_hash == gates_hash(spec):
        return _refused(cast, view)
    if view is None or view.role is not Role.CANDIDATE:
        return _begin(snapshot, spec, cast)
    return _try(snapshot, spec, cast, view)


def _settled(cast: Cast) -> Transition:
    stable = cast.stable
    draining = any(live(v) for v in cast.losers)
    return Transition(
        cast,
        Phase.DRAINING if draining else Phase.COMPLETE,
        problem=find_problem(stable) if stable else None,
        result=stable.gate_result if stable else None,
    )


def _refused(cast: Cast, view: RevisionView) -> Transition:
    reason = Reason(view.outcome) if view.outcome in set(Reason) else Reason.ROLLED_BACK
    problem = Problem(reason, view.outcome_message or "rolled back", True, _condition_of(reason))
    return Transition(cast, Phase.ROLLED_BACK, problem=problem, result=view.gate_result)


def _condition_of(reason: Reason) -> ConditionType:
    for kind, reasons in judging.REASONS_BY_CONDITION.items():
        if reason in reasons:
            return kind
    return ConditionType.PROGRESSING


def _begin(snapshot: Snapshot, spec: EncoderDeploymentSpec, cast: Cast) -> Transition:
    rollout = spec.rollout or Rollout()
    if rollout.paused:
        return Transition(cast, Phase.PAUSED)
    view = cast.target.view
    step = Transition(cast, Phase.STARTING)
    step.tell("Normal", "RevisionCreated", f"trying revision {cast.target.revision}" + _against(cast))
    if view is None:
        step.create = True
        return step
    marks = _candidate_marks(snapshot.now, spec)
    step.annotate(view, {**marks, names.ANNOTATION_OUTCOME: None, names.ANNOTATION_OUTCOME_MESSAGE: None,
                         names.ANNOTATION_OUTCOME_AT: None, names.ANNOTATION_GATE_RESULT: None})  # fmt: skip
    again = replace(view, role=Role.CANDIDATE, phase=Phase.STARTING, phase_since=snapshot.now, gate_result=None)
    step.cast = replace(cast, candidate=again, losers=tuple(v for v in cast.losers if v.name != view.name))
    return step


def candidate_marks(now: datetime, spec: EncoderDeploymentSpec) -> dict[str, str]:
    """Annotations of a revision when it becomes the candidate."""
    return {
        names.ANNOTATION_ROLE: Role.CANDIDATE.value,
        names.ANNOTATION_PHASE: Phase.STARTING.value,
        names.ANNOTATION_PHASE_SINCE: now.isoformat(),
        names.ANNOTATION_GATES_HASH: gates_hash(spec),
    }


def _candidate_marks(now: datetime, spec: EncoderDeploymentSpec) -> Annotations:
    return dict(candidate_marks(now, spec))


def _against(cast: Cast) -> str:
    return f" beside stable revision {cast.stable.revision}" if cast.stable else ", the first of this name"


def _try(snapshot: Snapshot, spec: EncoderDeploymentSpec, cast: Cast, view: RevisionView) -> Transition:
    """Carry the candidate on: hold, fail, gate, shift or promote it."""
    rollout = spec.rollout or Rollout()
    step = Transition(cast, view.phase or Phase.STARTING, result=view.gate_result)
    if view.gates_hash != gates_hash(spec):
        step.annotate(view, {names.ANNOTATION_GATES_HASH: gates_hash(spec)})
    if rollout.paused:
        return _hold(snapshot, step, view)
    view = _resume(snapshot, step, view)
    if spec.replicas == 0:
        return step
    step.problem = judging.find_candidate_problem(spec, cast, view)
    passed_alone = cast.stable is None and view.phase is Phase.SHIFTING
    if step.problem and step.problem.fatal and not passed_alone:
        return _fail(snapshot, step, view, step.problem)
    step.usable = proven(view)
    if view.phase is Phase.SHIFTING:
        _shift(snapshot, spec, step, view)
    elif len(step.usable) >= judging.needed(spec, cast):
        _gate(snapshot, spec, step, view)
    if step.cast.candidate:
        _watch_deadline(snapshot, rollout, step, view)
    return step


def _hold(snapshot: Snapshot, step: Transition, view: RevisionView) -> Transition:
    if view.paused_at is None:
        step.annotate(view, {names.ANNOTATION_PAUSED_AT: snapshot.now.isoformat()})
    step.shifting = view.phase is Phase.SHIFTING
    step.phase = Phase.PAUSED
    return step


def _resume(snapshot: Snapshot, step: Transition, view: RevisionView) -> RevisionView:
    """The clock of a deadline stops while paused: move its start by the time of the pause."""
    if view.paused_at is None:
        return view
    since = (view.phase_since or view.created) + (snapshot.now - view.paused_at)
    step.annotate(view, {names.ANNOTATION_PAUSED_AT: None, names.ANNOTATION_PHASE_SINCE: since.isoformat()})
    return replace(view, paused_at=None, phase_since=since)


def _enter(snapshot: Snapshot, step: Transition, view: RevisionView, phase: Phase) -> None:
    step.phase = phase
    step.annotate(view, {names.ANNOTATION_PHASE: phase.value, names.ANNOTATION_PHASE_SINCE: snapshot.now.isoformat()})


def _gate(snapshot: Snapshot, spec: EncoderDeploymentSpec, step: Transition, view: RevisionView) -> None:
    """Ask for a gate run, or act on its stored result."""
    if view.phase is not Phase.GATING:
        _enter(snapshot, step, view, Phase.GATING)
    step.phase = Phase.GATING
    request, hindrance = judging.gate_request(snapshot, spec, step.cast, view, step.usable)
    if request is None:
        step.problem = hindrance
        return
    result = view.gate_result if view.gate_result and view.gate_result.key == request.key else None
    step.result = result
    if result is None:
        step.gate = request
    elif result.verdict is Verdict.PASSED:
        step.tell("Normal", "GatePassed", f"revision {view.revision}: {result.message}")
        _enter(snapshot, step, view, Phase.SHIFTING)
        step.shifting = True
    elif result.verdict is Verdict.FAILED:
        _fail(snapshot, step, view, Problem(result.reason, result.message, True, ConditionType.GATES_PASSED))
    else:
        _retry(snapshot, step, request, result)


def _retry(snapshot: Snapshot, step: Transition, request: GateRequest, result: GateResult) -> None:
    pause = min(2.0 * 2 ** min(result.attempts, 8), 60.0)
    due = (result.finished_at or snapshot.now) + timedelta(seconds=pause)
    step.problem = Problem(result.reason, result.message, condition=ConditionType.GATES_PASSED)
    if snapshot.now >= due:
        step.gate = replace(request, attempts=result.attempts + 1)
    else:
        step.wake.append((due - snapshot.now).total_seconds())


def _shift(snapshot: Snapshot, spec: EncoderDeploymentSpec, step: Transition, view: RevisionView) -> None:
    """Traffic moves; once the candidate carries all of it, it is the stable revision."""
    step.shifting = True
    step.phase = Phase.SHIFTING
    scale = scale_of(spec)
    # Where nothing served before, one good pod beats waiting for all of them.
    enough = scale.desired if step.cast.stable else 1
    if count_in_service([view]) < enough:
        return
    old = step.cast.stable
    space = next((p.report.space for p in view.pods if p.report), view.space)
    now = snapshot.now.isoformat()
    step.annotate(view, {
        names.ANNOTATION_ROLE: Role.STABLE.value, names.ANNOTATION_PROMOTED_AT: now, names.ANNOTATION_SPACE: space,
        names.ANNOTATION_OUTCOME: Reason.PROMOTED.value, names.ANNOTATION_OUTCOME_AT: now,
        names.ANNOTATION_OUTCOME_MESSAGE: view.gate_result.message if view.gate_result else "",
        names.ANNOTATION_PHASE: None, names.ANNOTATION_PHASE_SINCE: None,
    })  # fmt: skip
    promoted = replace(view, role=Role.STABLE, promoted_at=snapshot.now, space=space)
    losers = (*step.cast.losers, old) if old else step.cast.losers
    step.cast = replace(step.cast, stable=promoted, candidate=None, losers=losers)
    step.phase, step.shifting = (Phase.DRAINING if old else Phase.COMPLETE), False
    step.tell("Normal", "Promoted", f"revision {view.revision} serves" + (f", {old.revision} drains" if old else ""))


def _fail(snapshot: Snapshot, step: Transition, view: RevisionView, problem: Problem) -> Transition:
    """Roll back: the candidate loses its part, and its failure is remembered on its ReplicaSet."""
    now = snapshot.now.isoformat()
    step.annotate(view, {
        names.ANNOTATION_ROLE: Role.FAILED.value, names.ANNOTATION_OUTCOME: problem.reason.value,
        names.ANNOTATION_OUTCOME_MESSAGE: problem.message, names.ANNOTATION_OUTCOME_AT: now,
        names.ANNOTATION_PHASE: None, names.ANNOTATION_PHASE_SINCE: None,
    })  # fmt: skip
    failed = replace(view, role=Role.FAILED, outcome=problem.reason.value, outcome_message=problem.message)
    step.cast = replace(step.cast, candidate=None, losers=(*step.cast.losers, failed))
    step.phase, step.problem, step.shifting, step.gate = Phase.ROLLED_BACK, problem, False, None
    kept = f"; stable revision {step.cast.stable.revision} goes on serving" if step.cast.stable else ""
    step.tell("Warning", "RolledBack", f"revision {view.revision}: {problem.reason}: {problem.message}{kept}")
    return step


def _watch_deadline(snapshot: Snapshot, rollout: Rollout, step: Transition, view: RevisionView) -> None:
    """A phase that takes too long ends the candidate, unless there is nothing to go back to."""
    if step.phase is not view.phase:
        return
    since = view.phase_since or view.created
    left = (since + timedelta(seconds=rollout.progress_deadline_seconds) - snapshot.now).total_seconds()
    if left > 0:
        step.wake.append(left)
        return
    text = f"phase {view.phase} took longer than spec.rollout.progressDeadlineSeconds ({rollout.progress_deadline_seconds} s)"
    cause = step.problem
    problem = Problem(
        cause.reason if cause else Reason.DEADLINE_EXCEEDED,
        f"{text}: {cause.message}" if cause else text,
        True,
        cause.condition if cause else ConditionType.PROGRESSING,
    )
    if step.cast.stable:
        _fail(snapshot, step, view, problem)
    else:
        step.problem, step.overdue = replace(problem, fatal=False), True


def _dismiss(now: datetime, step: Transition) -> None:
    """Write down what became of revisions that lost their part to a newer spec or a later promotion."""
    for view in step.cast.losers:
        role = {Role.CANDIDATE: Role.ABANDONED, Role.STABLE: Role.RETIRED}.get(view.role)
        if role is None or names.ANNOTATION_ROLE in step.changes.get(view.name, {}):
            continue
        outcome = "Superseded" if role is Role.ABANDONED else "Replaced"
        step.annotate(view, {
            names.ANNOTATION_ROLE: role.value, names.ANNOTATION_OUTCOME: outcome, names.ANNOTATION_OUTCOME_AT: now.isoformat(),
            names.ANNOTATION_OUTCOME_MESSAGE: f"{outcome.lower()} by revision {step.cast.target.revision}",
            names.ANNOTATION_PHASE: None, names.ANNOTATION_PHASE_SINCE: None, names.ANNOTATION_PAUSED_AT: None,
        })  # fmt: skip
