"""What can be wrong with a revision's pods, as an ordered chain of small checks.

Each check looks for one thing and is named for it. ``fatal`` problems end a candidate at once: no
waiting cures a wrong digest. The others are told within seconds and end it at its deadline.
Shape: cert-manager's certificate policies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from numaserve_api import names
from numaserve_api.conditions import ConditionType, Reason
from numaserve_api.probe import StartupFailure
from numaserve_operator.domain.snapshot import PodView, RevisionView

ADMISSION_REASONS = frozenset(
    {
        "TopologyAffinityError",
        "SMTAlignmentError",
        "UnexpectedAdmissionError",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "NodeAffinity",
        "NodePorts",
        "AppArmor",
        "PodOSNotSupported",
    }
)
"""Reasons with which a kubelet fails a pod that never starts (k/k pkg/kubelet/lifecycle, topologymanager)."""
MAX_REJECTIONS = 3
CRASH_RESTARTS = 3
CURABLE_REASONS = frozenset({Reason.SOURCE_DENIED, Reason.SOURCE_UNREACHABLE, Reason.SECRET_NOT_FOUND, Reason.NO_SPACE})
"""Why an artifact is not to be had for now. A change outside the resource cures it, and the pod tries by itself."""
STARTUP_REASONS = CURABLE_REASONS | {
    Reason.DIGEST_MISMATCH,
    Reason.MANIFEST_MISMATCH,
    Reason.ARTIFACT_MISSING,
    Reason.ARTIFACT_INVALID,
    Reason.SELF_TEST_FAILED,
    Reason.PRECISION_MISMATCH,
    Reason.THREADS_MISMATCH,
}
"""Reasons that a fetch or a server that refuses to start writes to its termination log."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: reason and sentence, whether it ends a candidate now, and the condition it belongs to."""

    reason: Reason
    message: str
    fatal: bool = False
    condition: ConditionType = ConditionType.PROGRESSING


PodCheck = Callable[[PodView], Problem | None]


def model_refused(pod: PodView) -> Problem | None:
    """The server refused its artifact, or it cannot be fetched, and the termination log says why."""
    failure = startup_failure(pod)
    if failure is None or pod.ready:  # a ready pod's log tells of an earlier run
        return None
    reason = Reason(failure.reason)
    curable = reason in CURABLE_REASONS
    where = f"pod {pod.name} on node {pod.node}" if curable else f"pod {pod.name}"  # one node's disk or network
    again = " (the pod tries again by itself)" if curable else ""
    return Problem(reason, f"{where}: {failure.message}{again}", not curable, ConditionType.MODEL_VERIFIED)


def startup_failure(pod: PodView) -> StartupFailure | None:
    """The refusal in a pod's termination log, if it is one of ours."""
    try:
        failure = StartupFailure.model_validate(json.loads(pod.terminated_message or ""))
    except ValueError:
        return None
    return failure if failure.reason in STARTUP_REASONS else None


def claim_missing(pod: PodView) -> Problem | None:
    """The artifact's PersistentVolumeClaim does not exist, so the scheduler holds the pod."""
    text = pod.unscheduled_message or ""
    if pod.scheduled or "persistentvolumeclaim" not in text:
        return None
    return Problem(
        Reason.PVC_NOT_FOUND,
        f"pod {pod.name} cannot be scheduled: {text}. Create the claim named in spec.config.model.source in this namespace, or correct the source",
        condition=ConditionType.MODEL_VERIFIED,
    )


def no_free_cores(pod: PodView) -> Problem | None:
    """No node has the exclusive cores left."""
    text = pod.unscheduled_message or ""
    if pod.scheduled or "Insufficient cpu" not in text:
        return None
    return Problem(
        Reason.NO_FREE_CORES,
        f"pod {pod.name} waits for free cores: {text}. Free cores on a matching node, add a node, or ask for fewer spec.config.threads",
    )


def unschedulable(pod: PodView) -> Problem | None:
    """The scheduler found no node, for another reason."""
    if pod.scheduled or pod.unscheduled_reason != "Unschedulable":
        return None
    return Problem(
        Reason.UNSCHEDULABLE,
        f"pod {pod.name} fits no node: {pod.unscheduled_message}. Check spec.placement.nodeSelector, tolerations and spec.memory",
    )


def image_not_pulled(pod: PodView) -> Problem | None:
    """The node cannot pull the image."""
    if pod.waiting_reason not in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"):
        return None
    return Problem(
        Reason.IMAGE_PULL_FAILED,
        f"pod {pod.name} on node {pod.node}: {pod.waiting_reason}: {pod.waiting_message}. Correct spec.image or give the namespace pull access",
    )


def container_misconfigured(pod: PodView) -> Problem | None:
    """The kubelet cannot make the container, for example because a ConfigMap or Secret is gone."""
    if pod.waiting_reason not in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
        return None
    return Problem(
        Reason.CONTAINER_CONFIG_ERROR,
        f"pod {pod.name} on node {pod.node}: {pod.waiting_reason}: {pod.waiting_message}. A path missing in the claim or a missing object is the usual cause",
    )


def not_guaranteed(pod: PodView) -> Problem | None:
    """Something injected a container without equal requests and limits: no exclusive cores."""
    if pod.qos_class in (None, "Guaranteed"):
        return None
    others = ", ".join(c for c in pod.containers if c not in (names.SERVER_CONTAINER, names.FETCH_CONTAINER)) or "none"
    return Problem(
        Reason.NOT_GUARANTEED,
        f"pod {pod.name} has QoS class {pod.qos_class} instead of Guaranteed, so the kubelet gives it no exclusive cores. "
        f"Containers beside the server: {others}. Exclude the namespace from the injecting webhook or let it set equal CPU and memory requests and limits",
        True,
        ConditionType.PINNED,
    )


def crashed(pod: PodView) -> Problem | None:
    """The server, or what runs before it, ends again and again without a reason of its own."""
    if pod.restarts < CRASH_RESTARTS or pod.ready or startup_failure(pod):
        return None
    who = f"init container {pod.initializing} of pod" if pod.initializing else "pod"
    container = f" -c {pod.initializing}" if pod.initializing else ""
    detail = (pod.terminated_message or pod.terminated_reason or "no message").strip()[-400:]
    return Problem(
        Reason.CRASHED,
        f"{who} {pod.name} restarted {pod.restarts} times, last exit code {pod.exit_code}: {detail}. "
        f"See `kubectl logs --previous {pod.name}{container}`",
        True,
    )


POD_CHECKS: tuple[PodCheck, ...] = (
    model_refused,
    not_guaranteed,
    claim_missing,
    image_not_pulled,
    container_misconfigured,
    crashed,
    no_free_cores,
    unschedulable,
)


def rejected_pods(view: RevisionView) -> list[PodView]:
    """Pods that a kubelet or the scheduler's successor failed before they ever started."""
    return [p for p in view.pods if p.phase == "Failed" and (p.reason in ADMISSION_REASONS or not p.started)]


def admission_rejected(view: RevisionView) -> Problem | None:
    """Kubelets refused this revision's pods; a few times is bad luck, more is a fact."""
    rejected = rejected_pods(view)
    if not rejected:
        return None
    last = rejected[-1]
    return Problem(
        Reason.ADMISSION_REJECTED,
        f"{len(rejected)} of at most {MAX_REJECTIONS} pods were refused by a kubelet; the last by node {last.node}: {last.reason}: {last.message}. "
        "Free whole cores on one NUMA node, or change spec.config.threads, spec.placement.cpusPerThread or spec.placement.numa",
        len(rejected) >= MAX_REJECTIONS,
    )


def replica_failure(view: RevisionView) -> Problem | None:
    """The API server refuses the pods themselves: quota, policy or a webhook."""
    if not view.replica_failure:
        return None
    return Problem(
        Reason.REPLICA_FAILURE,
        f"pods of revision {view.revision} cannot be created: {view.replica_failure}. Raise the ResourceQuota or satisfy the policy named here",
    )


def find_problem(view: RevisionView) -> Problem | None:
    """The first fault of a revision in the chain's order; fatal ones come before the others."""
    found = list(_problems(view))
    return next((p for p in found if p.fatal), found[0] if found else None)


def _problems(view: RevisionView) -> Iterable[Problem]:
    live = [p for p in view.pods if not p.deleting and p.phase != "Failed"]
    for check in POD_CHECKS:
        yield from (problem for pod in live if (problem := check(pod)))
    for revision_check in (admission_rejected, replica_failure):
        problem = revision_check(view)
        if problem:
            yield problem
