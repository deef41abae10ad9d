"""Judging the candidate's pods: fit to be compared, and what to compare them with."""

from __future__ import annotations

from numaserve_api.conditions import ConditionType, Reason
from numaserve_api.resource import EncoderDeploymentSpec
from numaserve_operator.domain import pinning
from numaserve_operator.domain.keys import effective_gates, gate_key, gates_hash
from numaserve_operator.domain.plan import GateRequest, PodTarget
from numaserve_operator.domain.problems import STARTUP_REASONS, Problem, find_problem
from numaserve_operator.domain.revisions import Cast
from numaserve_operator.domain.scale import scale_of
from numaserve_operator.domain.snapshot import PodView, RevisionView, Snapshot
from numaserve_operator.domain.traffic import active, proven

REASONS_BY_CONDITION: dict[ConditionType, frozenset[Reason]] = {
    ConditionType.MODEL_VERIFIED: (STARTUP_REASONS - {Reason.THREADS_MISMATCH}) | {Reason.PVC_NOT_FOUND},
    ConditionType.PINNED: frozenset(
        {
            Reason.SHARED_POOL,
            Reason.NOT_GUARANTEED,
            Reason.MISALIGNED,
            Reason.TOO_FEW_CPUS,
            Reason.THREADS_SHARE_CORES,
            Reason.THROTTLED,
            Reason.THREADS_MISMATCH,
        }
    ),
    ConditionType.GATES_PASSED: frozenset(
        {
            Reason.COSINE_BELOW_THRESHOLD,
            Reason.SHAPE_MISMATCH,
            Reason.NOT_FINITE,
            Reason.BELOW_NOISE_FLOOR,
            Reason.DIFFERENT_SPACE,
            Reason.DIFFERENT_EXECUTION,
            Reason.SAMPLES_UNREADABLE,
            Reason.SAMPLES_CHANGED,
            Reason.INCONCLUSIVE,
            Reason.NO_REFERENCE,
        }
    ),
}


def find_candidate_problem(spec: EncoderDeploymentSpec, cast: Cast, view: RevisionView) -> Problem | None:
    """The first thing wrong with the candidate: its pods, its cores, its space, its execution."""
    problem = find_problem(view)
    if problem and problem.fatal:
        return problem
    single = spec.placement is None or spec.placement.numa == "single"
    for pod in active(view):
        found = pinning.judge(pod, single) or _other_space(cast, pod)
        if found:
            return found
    return _different_execution(view) or problem


def _other_space(cast: Cast, pod: PodView) -> Problem | None:
    """Vectors of two spaces must never meet in one index."""
    space = stable_space(cast)
    if pod.report is None or space is None or pod.report.space == space:
        return None
    return Problem(
        Reason.DIFFERENT_SPACE,
        f"the candidate's embedding space is {pod.report.space}, stable serves {space}: an index holds one of them. "
        "Deploy it under another name, or set spec.config.model.space if the spaces are really one",
        True,
        ConditionType.GATES_PASSED,
    )


def stable_space(cast: Cast) -> str | None:
    """The space users' indexes were built with, as stable's pods report it."""
    if cast.stable is None:
        return None
    reported = next((p.report.space for p in cast.stable.pods if p.report), None)
    return reported or cast.stable.space


def _different_execution(view: RevisionView) -> Problem | None:
    prints = {p.report.fingerprint: p.name for p in active(view) if p.report}
    if len(prints) <= 1:
        return None
    what = "; ".join(f"pod {pod}: {fingerprint}" for fingerprint, pod in sorted(prints.items()))
    return Problem(
        Reason.DIFFERENT_EXECUTION,
        f"pods of one revision execute differently ({what}). Select nodes of one CPU type with spec.placement.nodeSelector",
        True,
        ConditionType.GATES_PASSED,
    )


def needed(spec: EncoderDeploymentSpec, cast: Cast) -> int:
    """Pods of the candidate that must be usable before it is compared."""
    scale = scale_of(spec)
    return max(1, min(scale.desired, scale.surge)) if cast.stable else 1


def gate_request(
    snapshot: Snapshot, spec: EncoderDeploymentSpec, cast: Cast, view: RevisionView, usable_uids: frozenset[str]
) -> tuple[GateRequest | None, Problem | None]:
    """The gate run this candidate needs, or why it cannot be asked for now."""
    gates = effective_gates(spec)
    samples = snapshot.samples
    if samples and samples.error:
        return None, _gate_problem(Reason.SAMPLES_UNREADABLE, samples.error)
    stable = _targets(cast.stable, proven(cast.stable)) if cast.stable else ()
    if cast.stable and gates.against == "stable" and not stable:
        text = (
            f"stable revision {cast.stable.revision} has no ready pod to compare with. Wait for it, or compare with "
            "the artifact's own vectors: spec.rollout.gates.against: reference"
        )
        return None, _gate_problem(Reason.INCONCLUSIVE, text)
    digest = samples.digest if samples else "artifact"
    # The oldest pods stand for the revision, so that a late pod does not start the comparison anew.
    candidates = _targets(view, usable_uids)[: needed(spec, cast)]
    stable_revision = cast.stable.revision if cast.stable else None
    key = gate_key(view.revision, stable_revision, digest, gates_hash(spec), [t.uid for t in candidates])
    request = GateRequest(
        key=key,
        namespace=snapshot.parent.namespace,
        name=snapshot.parent.name,
        replicaset=view.name,
        replicaset_uid=view.uid,
        gates=gates,
        candidate=candidates,
        stable=stable,
        expected_space=stable_space(cast),
        sample_digest=samples.digest if samples else "",
    )
    return request, None


def _gate_problem(reason: Reason, text: str) -> Problem:
    return Problem(reason, text, condition=ConditionType.GATES_PASSED)


def _targets(view: RevisionView, uids: frozenset[str]) -> tuple[PodTarget, ...]:
    pods = sorted((p for p in view.pods if p.uid in uids and p.ip), key=lambda p: (p.created, p.name))
    return tuple(PodTarget(p.name, p.uid, p.ip or "", p.revision) for p in pods)
