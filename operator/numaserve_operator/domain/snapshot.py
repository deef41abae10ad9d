"""What one reconcile sees: a frozen picture of the resource, its children and their pods.

Shape follows cert-manager's policy inputs: everything a decision needs is in here, so decide() is
a pure function and a test builds any situation by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from numaserve_api.conditions import Reason
from numaserve_api.probe import PlacementReport
from numaserve_api.resource import EncoderDeploymentSpec, GateValue, Phase


class Role(StrEnum):
    """What a revision is to the resource. Kept as an annotation on its ReplicaSet."""

    CANDIDATE = "candidate"
    STABLE = "stable"
    RETIRED = "retired"
    """Promoted once, replaced since."""
    FAILED = "failed"
    """Rolled back; not tried again until the revision, its gates or a `retry` says so."""
    ABANDONED = "abandoned"
    """A candidate that a newer spec replaced before it was judged."""


class Verdict(StrEnum):
    """How a gate run ended. Inconclusive never passes and is run again."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class GateResult:
    """A finished gate run, stored on the candidate's ReplicaSet before any label moves."""

    key: str
    verdict: Verdict
    reason: Reason
    message: str
    values: tuple[GateValue, ...] = ()
    sample_digest: str = ""
    sample_count: int = 0
    finished_at: datetime | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class PodView:
    """The fields of a pod that decisions use.

    ``in_endpoints`` is true while an EndpointSlice of the resource's Service lists the pod as ready.
    ``waiting``, ``terminated`` and ``restarts`` are of the init container named by ``initializing``, and of the
    server once there is none; ``terminated_message`` is its termination log (numaserve_api.probe.StartupFailure).
    """

    name: str
    uid: str
    revision: str
    created: datetime
    phase: str = "Pending"
    ready: bool = False
    deleting: bool = False
    serving_label: bool = False
    in_endpoints: bool = False
    node: str | None = None
    ip: str | None = None
    qos_class: str | None = None
    reason: str | None = None
    message: str | None = None
    scheduled: bool = False
    unscheduled_reason: str | None = None
    unscheduled_message: str | None = None
    initializing: str | None = None
    """The init container that has still to succeed before the server may start."""
    waiting_reason: str | None = None
    waiting_message: str | None = None
    terminated_reason: str | None = None
    terminated_message: str | None = None
    exit_code: int | None = None
    restarts: int = 0
    containers: tuple[str, ...] = ()
    """Names of all containers, init containers first."""
    started: bool = False
    """Whether any container ever ran: a Failed pod that never started was refused by its kubelet."""
    start_mark: str | None = None
    """What it was started with, see domain.keys.start_mark; None for a pod of an earlier release."""
    withdrawn_at: datetime | None = None
    drain_told_at: datetime | None = None
    report: PlacementReport | None = None
    report_error: str | None = None

    @property
    def available(self) -> bool:
        """Ready and staying: what may count towards the floor."""
        return self.ready and not self.deleting and self.phase == "Running"


@dataclass(frozen=True, slots=True)
class RevisionView:
    """One revision: its ReplicaSet and pods."""

    name: str
    uid: str
    revision: str
    created: datetime
    role: Role
    replicas: int
    template_serving: bool
    image: str
    generation: int = 0
    space: str | None = None
    applied_hash: str | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    """Our annotations as read, so that applying a new template keeps them."""
    outcome: str | None = None
    outcome_message: str | None = None
    outcome_at: datetime | None = None
    gates_hash: str | None = None
    gate_result: GateResult | None = None
    promoted_at: datetime | None = None
    phase: Phase | None = None
    """Where a candidate stands: Starting, Gating or Shifting. Kept as an annotation."""
    phase_since: datetime | None = None
    paused_at: datetime | None = None
    replica_failure: str | None = None
    config: dict[str, Any] | None = None
    """Parsed revision.json of the revision's ConfigMap; None when the ConfigMap is gone."""
    pods: tuple[PodView, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceView:
    """A Service of the resource's name: ours, or somebody else's."""

    name: str
    ours: bool
    owner: str
    applied_hash: str | None = None


@dataclass(frozen=True, slots=True)
class SamplesView:
    """The sample set named by the gates, read live. ``digest`` is of the ordered texts."""

    digest: str = ""
    count: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ParentView:
    """The resource as read. ``spec`` is None when it does not parse; ``spec_error`` then says why."""

    name: str
    namespace: str
    uid: str
    generation: int
    resource_version: str
    spec: EncoderDeploymentSpec | None
    spec_error: str | None = None
    unsupported: tuple[str, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    deleting: bool = False

    @property
    def key(self) -> str:
        """namespace/name, the work queue's key."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ArtifactCache:
    """A folder of every node that keeps fetched artifacts.

    ``limit`` is a quantity; ``namespaces`` are those whose pods use it, none for all: PodSecurity `baseline` and
    `restricted` forbid host paths.
    """

    path: str
    limit: str
    namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the operator fills in: images resolved to a digest where the registry tells one."""

    image: str
    operator_namespace: str
    drain_seconds: float = 10.0
    """Longest wait for a withdrawn pod's requests and connections before it is deleted."""
    threads_per_core: int = 1
    rest_seconds: float = 20.0
    """How often a resource at rest is looked at for drift in its pods."""
    history_limit: int = 10
    artifact_cache: ArtifactCache | None = None

    def cache_of(self, namespace: str) -> ArtifactCache | None:
        """The node cache that pods of a namespace use, if any."""
        cache = self.artifact_cache
        return cache if cache and (not cache.namespaces or namespace in cache.namespaces) else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One frozen picture; times are timezone-aware UTC."""

    now: datetime
    parent: ParentView
    defaults: Defaults
    revisions: tuple[RevisionView, ...] = ()
    services: tuple[ServiceView, ...] = ()
    other_children: tuple[tuple[str, str, str | None], ...] = ()
    """(kind, name, applied hash) of owned ConfigMaps and NetworkPolicies."""
    samples: SamplesView | None = None
    gate_running: str | None = None
    """Key of the gate run in this process for this resource, if one is under way."""
    probe_tokens: dict[str, str] = field(default_factory=dict)
    """SHA-256 hex digest of the probe token by revision, for the pod's environment."""
    namespace_terminating: bool = False
