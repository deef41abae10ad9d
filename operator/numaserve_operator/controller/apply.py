"""Apply: write a plan in its order, children before pods, status last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from numaserve_api.conditions import ConditionType, Reason
from numaserve_api.resource import EncoderDeploymentStatus
from numaserve_operator.controller import metrics
from numaserve_operator.controller.ports import ClusterPort, Json
from numaserve_operator.domain.errors import Conflict, OperatorError, Terminal, Transient
from numaserve_operator.domain.plan import Plan, PodTarget
from numaserve_operator.domain.snapshot import ParentView
from numaserve_operator.gates.client import ProbeClient
from numaserve_operator.kube.api import NotFound

logger = logging.getLogger(__name__)


async def apply_plan(
    plan: Plan, raw: Json, parent: ParentView, cluster: ClusterPort, probe: ProbeClient, token_of: Callable[[str], str]
) -> int:
    """Write everything a plan holds. Returns how many writes were made; a plan at rest makes none.

    A pod or ReplicaSet that changed or went since it was read raises Conflict: gather again.
    """
    namespace = parent.namespace
    count = 0
    refused = await _apply_children(plan, cluster)
    count += len(plan.apply) - len(refused)
    for patch in plan.revision_patches:
        count += await _write("ReplicaSet", cluster.patch_revision(namespace, patch))
    for pod_patch in plan.pod_patches:
        count += await _write("Pod", cluster.patch_pod(namespace, pod_patch))
    await _drain(plan.drains, probe, token_of)
    for deletion in plan.deletions:
        count += await _write(deletion.kind, cluster.delete(namespace, deletion))
    try:
        status = _with_refusals(plan.status, refused) if plan.status else None
        if status is not None and await cluster.write_status(raw, status):
            metrics.WRITES.labels("Status").inc()
            count += 1
    finally:
        # The annotations have moved already: the next pass would not tell of this step again.
        await _tell(plan, parent, cluster)
    if refused:
        raise refused[0]
    return count


def _with_refusals(status: EncoderDeploymentStatus, refused: Sequence[Terminal]) -> EncoderDeploymentStatus:
    """The status with the API server's own words where it refused a child."""
    if not refused:
        return status
    told = {
        "status": "False",
        "reason": Reason.REPLICA_FAILURE.value,
        "message": f"the API server refuses a child: {refused[0]}",
    }
    kinds = (ConditionType.READY, ConditionType.PROGRESSING)
    conditions = [c.model_copy(update=told) if c.type in kinds else c for c in status.conditions or ()]
    return status.model_copy(update={"conditions": conditions})


async def _apply_children(plan: Plan, cluster: ClusterPort) -> list[Terminal]:
    """Apply the children; those the API server refuses for good are told after the rest was written."""
    refused = []
    for manifest in plan.apply:
        try:
            await _write(manifest["kind"], cluster.apply(manifest))
        except Terminal as error:
            logger.error("%s %s was refused: %s", manifest["kind"], manifest["metadata"]["name"], error)
            refused.append(error)
    return refused


async def _write(kind: str, call: Awaitable[None]) -> int:
    metrics.WRITES.labels(kind).inc()
    try:
        await call
    except NotFound as error:
        raise Conflict(f"a {kind} went away while it was written: {error}") from error
    return 1


async def _drain(targets: Iterable[PodTarget], probe: ProbeClient, token_of: Callable[[str], str]) -> None:
    async def tell(target: PodTarget) -> None:
        try:
            await probe.drain(target, token_of(target.revision))
        except Transient as error:
            # A pod that does not listen is deleted after the drain time all the same.
            logger.info("pod %s could not be told to drain: %s", target.name, error)

    await asyncio.gather(*(tell(target) for target in targets))


async def _tell(plan: Plan, parent: ParentView, cluster: ClusterPort) -> None:
    """Events are for people: one that cannot be written must not repeat everything before it."""
    for event in plan.events:
        try:
            await cluster.emit(parent, event)
            metrics.WRITES.labels("Event").inc()
        except OperatorError as error:
            logger.warning("event %s of %s was not written: %s", event.reason, parent.key, error)
