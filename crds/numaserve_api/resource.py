"""The EncoderDeployment resource: spec as users write it, status as the operator reports it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from numaserve_api.base import Digest, IntOrPercent, Lenient, Matches, Quantity, ShortText, Strict
from numaserve_api.conditions import Condition
from numaserve_api.config import ConfigDeploy

_DNS_LABEL = "must be 1 to 63 lowercase letters, digits and dashes, beginning and ending with a letter or digit"
_OBJECT_NAME = "must be lowercase letters, digits, dashes and dots, beginning and ending with a letter or digit"
_LABEL_KEY = "must be a label key: an optional DNS prefix and a slash, then 1 to 63 letters, digits and . _ -"
_LABEL_VALUE = "must be a label value: at most 63 letters, digits and . _ - beginning and ending with a letter or digit"

DnsLabel = Annotated[str, StringConstraints(max_length=63), Matches(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", _DNS_LABEL)]
ObjectName = Annotated[
    str, StringConstraints(max_length=253), Matches(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", _OBJECT_NAME)
]
LabelKey = Annotated[
    str,
    StringConstraints(max_length=317),
    Matches(
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        _LABEL_KEY,
    ),
]
LabelValue = Annotated[
    str, StringConstraints(max_length=63), Matches(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", _LABEL_VALUE)
]
Image = Annotated[
    str,
    StringConstraints(max_length=512),
    Matches(r"^[^\s]+$", "must be an image reference without spaces, e.g. registry/name@sha256:…"),
]
SampleUri = Annotated[
    str,
    StringConstraints(max_length=1024),
    Matches(
        r"^(pvc|hf|s3|oci|https|file)://[^\s]+$", "must be a pvc://, hf://, s3://, oci://, https:// or file:// URI"
    ),
]
IsaName = Annotated[
    str,
    StringConstraints(max_length=32),
    Matches(r"^[a-z0-9_]+$", "must be a CPU flag of /proc/cpuinfo, e.g. amx_int8"),
]
MetricName = Annotated[
    str,
    StringConstraints(max_length=32),
    Matches(r"^[a-z0-9]+(@[0-9]+)?$", "must be a metric with an optional cut-off, e.g. recall@10"),
]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64)]
Cosine = Annotated[float, Field(ge=-1, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class Toleration(Strict):
    """A pod toleration, as in core/v1."""

    key: Annotated[str, StringConstraints(max_length=317)] | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=0, le=2_147_483_647)] | None = None


class TopologySpread(Strict):
    """How replicas spread over failure domains."""

    topology_key: LabelKey
    max_skew: Annotated[int, Field(ge=1, le=64)] = 1
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"


class Placement(Strict):
    """Where pods may run and how their cores lie."""

    numa: Literal["single", "any"] = Field(default="single", description="Whether all cores must lie on one NUMA node.")
    cpus_per_thread: Annotated[int, Field(ge=1, le=8)] | None = Field(
        default=None, description="Logical CPUs each thread owns; default: threads per core of the nodes it may use."
    )
    require_isa: Annotated[list[IsaName], Field(max_length=16)] | None = Field(
        default=None, description="CPU flags every node must have, e.g. amx_int8."
    )
    node_selector: Labels | None = Field(default=None, description="Labels a node must carry.")
    tolerations: Annotated[list[Toleration], Field(max_length=32)] | None = Field(
        default=None, description="Taints of nodes that pods accept."
    )
    topology_spread: Annotated[list[TopologySpread], Field(max_length=8)] | None = None
    priority_class_name: DnsLabel | None = None
    runtime_class_name: DnsLabel | None = None
    rdt_class: DnsLabel | None = None


class LocalName(Strict):
    """The name of an object in the resource's own namespace."""

    name: ObjectName


class SecretKey(Strict):
    """A key of a Secret in the resource's own namespace."""

    name: ObjectName
    key: ShortText


class GatewayRef(Strict):
    """The Gateway an HTTPRoute attaches to."""

    name: DnsLabel
    namespace: DnsLabel | None = None


class SampleSource(Strict):
    """A fetched sample set."""

    uri: SampleUri
    hash: Digest


class Samples(Strict):
    """Where the gate's sample texts come from: exactly one of the three."""

    config_map_ref: LocalName | None = None
    artifact: Literal[True] | None = None
    source: SampleSource | None = None


class CosineGate(Strict):
    """Cosine similarity of candidate and baseline vectors of the same text."""

    min: Cosine = Field(default=0.95, description="Smallest cosine over all samples.")
    p1: Cosine = Field(default=0.98, description="First percentile of the cosines.")
    mean: Cosine = Field(default=0.99, description="Mean of the cosines.")


class DriftGate(Strict):
    """(1 - cosine) / (1 - median cosine of unrelated samples): comparable across models."""

    max_mean: Annotated[float, Field(ge=0, le=10)] | None = None
    max_p99: Annotated[float, Field(ge=0, le=10)] | None = None


class NeighboursGate(Strict):
    """Overlap of the k nearest stable documents for candidate and stable queries."""

    min_overlap: Share
    k: Annotated[int, Field(ge=1, le=1000)] = 10


class MinShareGate(Strict):
    """A share of samples that must agree."""

    min: Share


class RanksGate(Strict):
    """Kendall's tau of candidate and stable rankings."""

    min_tau: Cosine


class QualityGate(Strict):
    """A retrieval or classification metric on labelled samples."""

    metric: MetricName
    max_drop: Share


class LatencyGate(Strict):
    """How much slower the candidate's p99 may be, in percent."""

    max_p99_regression_percent: Annotated[float, Field(ge=0, le=10000)]


class ErrorRateGate(Strict):
    """How many answers may be errors while traffic shifts, in percent."""

    max_percent: Annotated[float, Field(ge=0, le=100)]


class Gates(Strict):
    """What a candidate must show before it takes traffic."""

    samples: Samples | None = Field(default=None, description="Sample texts; default: those of the stable artifact.")
    against: Literal["stable", "reference"] = Field(
        default="stable", description="Compare with the stable revision, or with the artifact's own FP32 vectors."
    )
    cosine: CosineGate | None = None
    drift: DriftGate | None = None
    neighbours: NeighboursGate | None = None
    label_agreement: MinShareGate | None = None
    ranks: RanksGate | None = None
    quality: QualityGate | None = None
    latency: LatencyGate | None = None
    error_rate: ErrorRateGate | None = None
    allow_different_hardware: bool = False


class Step(Strict):
    """One step of a traffic shift after the gates."""

    weight: Annotated[int, Field(ge=1, le=100)]
    pause_seconds: Annotated[int, Field(ge=0, le=86400)] | None = None
    manual: Literal[True] | None = None


class Rollout(Strict):
    """How a new revision takes over."""

    strategy: Literal["canary", "sideBySide", "recreate"] = "canary"
    max_surge: IntOrPercent = Field(
        default=1, description="Pods above replicas while a revision takes over: a count or a percentage (default 1)."
    )
    max_unavailable: IntOrPercent = Field(
        default=0, description="Pods below replicas while a revision takes over: a count or a percentage (default 0)."
    )
    steps: Annotated[list[Step], Field(max_length=20)] | None = None
    mirror_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    gates: Gates | None = None
    auto_rollback: bool = True
    progress_deadline_seconds: int = Field(
        default=900,
        ge=30,
        le=86400,
        description="Longest time without progress in one phase, in seconds (default 900).",
    )
    paused: bool = Field(default=False, description="Hold the rollout where it is.")
    adopt_image: bool | None = None


class Service(Strict):
    """How the encoder is reached."""

    port: int = Field(default=8080, ge=1, le=65535, description="Port of the Service (default 8080).")
    gateway_ref: GatewayRef | None = None
    api_key_secret_ref: SecretKey | None = None
    tls_secret_ref: LocalName | None = None
    token_ids: Literal["refuse", "model"] | None = None


class EncoderDeploymentSpec(Strict):
    """What a user asks for."""

    replicas: int = Field(default=1, ge=0, le=1000, description="Pods that serve.")
    config: ConfigDeploy
    placement: Placement | None = None
    memory: Quantity = Field(default="4Gi", description="Memory of one pod, request and limit (default 4Gi).")
    image: Image | None = Field(default=None, description="Serving image; default: the operator's, kept by a revision.")
    source_secret_ref: LocalName | None = None
    pod_labels: Labels | None = Field(default=None, description="Labels on future pods.")
    rollout: Rollout | None = None
    service: Service | None = None
    termination_grace_period_seconds: int = Field(
        default=60, ge=1, le=3600, description="Time a pod has to finish its requests, in seconds (default 60)."
    )


class Phase(StrEnum):
    """Where a rollout stands; a summary of the conditions for people."""

    STARTING = "Starting"
    GATING = "Gating"
    SHIFTING = "Shifting"
    PROMOTING = "Promoting"
    DRAINING = "Draining"
    COMPLETE = "Complete"
    PAUSED = "Paused"
    ROLLED_BACK = "RolledBack"
    BLOCKED = "Blocked"


class GateValue(Lenient):
    """One compared number: what was measured, what was asked, and whether it held."""

    name: str
    value: float | None = None
    threshold: float | None = None
    noise_floor: float | None = None
    passed: bool
    message: str | None = None


class RolloutStatus(Lenient):
    """The rollout under way, or how the last one ended."""

    phase: Phase
    step: int | None = None
    weight: int | None = None
    measured_weight: float | None = None
    gates: list[GateValue] | None = None
    sample_digest: str | None = None
    sample_count: int | None = None
    message: str | None = None


class PodPlacement(Lenient):
    """Where one pod runs, as proved in the pod."""

    pod: str
    node: str
    revision: str
    cpuset: str | None = None
    numa_nodes: list[int] | None = None
    physical_cores: int | None = None
    threads: int | None = None
    pinned: bool = False
    fingerprint: str | None = None


class HistoryEntry(Lenient):
    """How one revision ended."""

    revision: str
    outcome: str
    message: str | None = None
    at: str | None = None


class EncoderDeploymentStatus(Lenient):
    """What the operator last saw; a view that can be rebuilt from children."""

    observed_generation: int | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    selector: str | None = None
    stable_revision: str | None = None
    candidate_revision: str | None = None
    last_promoted: str | None = None
    space: str | None = None
    space_anchor: str | None = None
    conditions: list[Condition] | None = None
    placement: list[PodPlacement] | None = None
    placement_summary: str | None = None
    rollout: RolloutStatus | None = None
    history: list[HistoryEntry] | None = None
    handled_action: str | None = None


def dump(model: Strict) -> dict[str, Any]:
    """The JSON form of a model as the API server stores it: camelCase keys, set fields only, no nulls."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
