"""What the controller needs of the outside, as Protocols: the real gateway, or a small fake in tests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from numaserve_api.resource import EncoderDeploymentStatus
from numaserve_operator.domain.plan import Deletion, EventRecord, Manifest, PodPatch, RevisionPatch
from numaserve_operator.domain.snapshot import GateResult, ParentView
from numaserve_operator.kube.gateway import RawChildren

Json = dict[str, Any]
Now = Callable[[], datetime]


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


class ClusterPort(Protocol):
    """Reads and writes of one cluster (numaserve_operator.kube.gateway.Gateway)."""

    async def parent(self, namespace: str, name: str) -> Json | None: ...
    async def children(self, namespace: str, name: str, policy: str) -> RawChildren: ...
    async def configmap(self, namespace: str, name: str) -> Json | None: ...
    async def apply(self, manifest: Manifest) -> None: ...
    async def patch_revision(self, namespace: str, patch: RevisionPatch) -> None: ...
    async def patch_pod(self, namespace: str, patch: PodPatch) -> None: ...
    async def delete(self, namespace: str, deletion: Deletion) -> None: ...
    async def write_status(self, raw: Json, status: EncoderDeploymentStatus) -> bool: ...
    async def store_result(self, namespace: str, replicaset: str, uid: str, result: GateResult) -> None: ...
    async def emit(self, parent: ParentView, event: EventRecord) -> None: ...
