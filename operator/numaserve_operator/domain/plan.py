"""What one reconcile wants: children, pod patches, drains, a gate run, status, events, when to look again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from numaserve_api.resource import EncoderDeploymentStatus, Gates

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodPatch:
    """A merge patch of one pod's metadata, guarded by its uid. A None value removes the key."""

    name: str
    uid: str
    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodTarget:
    """A pod to talk to on its probe port."""

    name: str
    uid: str
    ip: str
    revision: str


@dataclass(frozen=True, slots=True)
class RevisionPatch:
    """A merge patch of one ReplicaSet: what changes on a revision after it was created.

    The pod template of a revision that is not the one asked for must not be rebuilt from today's
    spec, so replicas, annotations and the serving label are patched and nothing else is touched.
    """

    name: str
    uid: str
    replicas: int | None = None
    annotations: dict[str, str | None] = field(default_factory=dict)
    template_serving: bool | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing would be written."""
        return self.replicas is None and not self.annotations and self.template_serving is None


@dataclass(frozen=True, slots=True)
class Deletion:
    """A child to delete, guarded by its uid."""

    kind: Literal["Pod", "ReplicaSet", "ConfigMap", "Service", "NetworkPolicy"]
    name: str
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class GateRequest:
    """A gate run to start in the background, unless one with this key is running or stored.

    ``stable`` is empty for a first revision. The result is written to ``replicaset``'s
    annotation and the key re-enqueued.
    """

    key: str
    namespace: str
    name: str
    replicaset: str
    replicaset_uid: str
    gates: Gates
    candidate: tuple[PodTarget, ...]
    stable: tuple[PodTarget, ...]
    expected_space: str | None
    sample_digest: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A Kubernetes Event on the resource."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    action: str = "Reconcile"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one reconcile writes, in the order given: apply, patch, drain, delete, status, events.

    ``apply`` holds complete manifests for server-side apply, each stamped with its own hash
    (``numaserve.dev/applied-hash``) so that an unchanged child is not written again.
    """

    apply: tuple[Manifest, ...] = ()
    revision_patches: tuple[RevisionPatch, ...] = ()
    pod_patches: tuple[PodPatch, ...] = ()
    drains: tuple[PodTarget, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    gate: GateRequest | None = None
    cancel_gate: bool = False
    status: EncoderDeploymentStatus | None = None
    events: tuple[EventRecord, ...] = ()
    requeue_after: float | None = None
