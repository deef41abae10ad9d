"""Condition types and reasons, one place for every one-word CamelCase string users can match on.

Convention: Kubernetes API conventions, "Typical status properties" (metav1.Condition).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from numaserve_api.base import Lenient


class ConditionType(StrEnum):
    """The conditions of an EncoderDeployment."""

    AVAILABLE = "Available"
    READY = "Ready"
    PROGRESSING = "Progressing"
    STALLED = "Stalled"
    MODEL_VERIFIED = "ModelVerified"
    PINNED = "Pinned"
    GATES_PASSED = "GatesPassed"


class Reason(StrEnum):
    """Why a condition has its status. Grouped by the condition that mostly carries it."""

    # Available / Ready / Progressing
    SERVING = "Serving"
    NO_READY_PODS = "NoReadyPods"
    BELOW_FLOOR = "BelowFloor"
    PROMOTED = "Promoted"
    STARTING = "Starting"
    GATING = "Gating"
    PROMOTING = "Promoting"
    DRAINING = "Draining"
    COMPLETE = "Complete"
    PAUSED = "Paused"
    SCALED_TO_ZERO = "ScaledToZero"
    ROLLED_BACK = "RolledBack"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    NOT_STALLED = "NotStalled"
    # what stops a rollout before or while pods start
    INVALID_SPEC = "InvalidSpec"
    NOT_SUPPORTED = "NotSupported"
    NAME_CONFLICT = "NameConflict"
    PVC_NOT_FOUND = "PVCNotFound"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    NO_FREE_CORES = "NoFreeCores"
    UNSCHEDULABLE = "Unschedulable"
    ADMISSION_REJECTED = "AdmissionRejected"
    REPLICA_FAILURE = "ReplicaFailure"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    CRASHED = "Crashed"
    # ModelVerified
    VERIFIED = "Verified"
    NOT_VERIFIED_YET = "NotVerifiedYet"
    FETCHING = "Fetching"
    DIGEST_MISMATCH = "DigestMismatch"
    MANIFEST_MISMATCH = "ManifestMismatch"
    ARTIFACT_MISSING = "ArtifactMissing"
    ARTIFACT_INVALID = "ArtifactInvalid"
    SOURCE_DENIED = "SourceDenied"
    SOURCE_UNREACHABLE = "SourceUnreachable"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 -- a reason's name
    NO_SPACE = "NoSpace"
    SELF_TEST_FAILED = "SelfTestFailed"
    PRECISION_MISMATCH = "PrecisionMismatch"
    THREADS_MISMATCH = "ThreadsMismatch"
    # Pinned
    EXCLUSIVE = "Exclusive"
    NOT_KNOWN_YET = "NotKnownYet"
    SHARED_POOL = "SharedPool"
    NOT_GUARANTEED = "NotGuaranteed"
    MISALIGNED = "Misaligned"
    TOO_FEW_CPUS = "TooFewCPUs"
    THREADS_SHARE_CORES = "ThreadsShareCores"
    THROTTLED = "Throttled"
    QUOTA_PRESENT = "QuotaPresent"
    # GatesPassed
    PASSED = "Passed"
    NO_CANDIDATE = "NoCandidate"
    FIRST_REVISION = "FirstRevision"
    COSINE_BELOW_THRESHOLD = "CosineBelowThreshold"
    SHAPE_MISMATCH = "ShapeMismatch"
    NOT_FINITE = "NotFinite"
    BELOW_NOISE_FLOOR = "BelowNoiseFloor"
    DIFFERENT_SPACE = "DifferentSpace"
    DIFFERENT_EXECUTION = "DifferentExecution"
    SAMPLES_UNREADABLE = "SamplesUnreadable"
    SAMPLES_CHANGED = "SamplesChanged"
    INCONCLUSIVE = "Inconclusive"
    NO_REFERENCE = "NoReference"


class Condition(Lenient):
    """metav1.Condition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None
