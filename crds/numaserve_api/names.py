"""Names shared by the operator, the server and the manifests: labels, annotations, ports, paths."""

from __future__ import annotations

from typing import Final

GROUP: Final = "numaserve.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "EncoderDeployment"
PLURAL: Final = "encoderdeployments"
SINGULAR: Final = "encoderdeployment"
SHORT_NAME: Final = "encdep"
MAX_NAME_LENGTH: Final = 52
"""DNS-1035 names of at most 52 characters leave room for ``-<revision>`` within 63."""

FIELD_MANAGER: Final = "numaserve-operator"

# Labels. Pods of one resource share NAME; pods of one revision share NAME and REVISION.
LABEL_NAME: Final = f"{GROUP}/name"
LABEL_REVISION: Final = f"{GROUP}/revision"
LABEL_SERVING: Final = f"{GROUP}/serving"
SERVING_TRUE: Final = "true"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "numaserve"

# Annotations on a revision's ReplicaSet: the whole state of a rollout, so that losing
# `status` or restarting the operator loses nothing.
ANNOTATION_ROLE: Final = f"{GROUP}/role"
ANNOTATION_OUTCOME: Final = f"{GROUP}/outcome"
ANNOTATION_OUTCOME_MESSAGE: Final = f"{GROUP}/outcome-message"
ANNOTATION_OUTCOME_AT: Final = f"{GROUP}/outcome-at"
ANNOTATION_PROMOTED_AT: Final = f"{GROUP}/promoted-at"
ANNOTATION_PHASE: Final = f"{GROUP}/phase"
ANNOTATION_PAUSED_AT: Final = f"{GROUP}/paused-at"
ANNOTATION_PHASE_SINCE: Final = f"{GROUP}/phase-since"
ANNOTATION_GATES_HASH: Final = f"{GROUP}/gates-hash"
ANNOTATION_GATE_RESULT: Final = f"{GROUP}/gate-result"
ANNOTATION_IMAGE: Final = f"{GROUP}/image"
ANNOTATION_SPACE: Final = f"{GROUP}/space"
ANNOTATION_GENERATION: Final = f"{GROUP}/generation"
ANNOTATION_APPLIED_HASH: Final = f"{GROUP}/applied-hash"

# Annotations on a pod, written by the operator while it withdraws the pod from traffic.
ANNOTATION_WITHDRAWN_AT: Final = f"{GROUP}/withdrawn-at"
ANNOTATION_DRAIN_TOLD_AT: Final = f"{GROUP}/drain-told-at"
ANNOTATION_POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

# Annotation on a pod: what it was started with that makes no revision (source, Secret, placement), as a short hash.
ANNOTATION_START: Final = f"{GROUP}/start"

# Annotation on the resource for one-off verbs (see docs: actions).
ANNOTATION_ACTION: Final = f"{GROUP}/action"

SERVER_CONTAINER: Final = "server"
FETCH_CONTAINER: Final = "fetch"
SERVING_PORT: Final = 8080
PROBE_PORT: Final = 8090
SERVING_PORT_NAME: Final = "http"
PROBE_PORT_NAME: Final = "probe"

# Paths inside the containers of a pod.
CONFIG_FILE: Final = "/etc/numaserve/config_deploy.yaml"
CONFIG_KEY: Final = "config_deploy.yaml"
HASH_INPUTS_KEY: Final = "revision.json"
ARTIFACT_DIR: Final = "/artifact"
ARTIFACT_CACHE_DIR: Final = "/artifacts"
"""The node's cache of artifacts, where one is used; each lies in a folder named by its digest."""
CREDENTIALS_DIR: Final = "/etc/numaserve-credentials"
CACHE_DIR: Final = "/var/cache/numaserve"
TERMINATION_LOG: Final = "/dev/termination-log"

# Environment of the server container.
ENV_REVISION: Final = "NUMASERVE_REVISION"
ENV_NAME: Final = "NUMASERVE_NAME"
ENV_NAMESPACE: Final = "NUMASERVE_NAMESPACE"
ENV_POD: Final = "NUMASERVE_POD"
ENV_NODE: Final = "NUMASERVE_NODE"
ENV_PROBE_TOKEN_DIGEST: Final = "NUMASERVE_PROBE_TOKEN_DIGEST"  # noqa: S105 -- a variable's name
ENV_CPUS: Final = "NUMASERVE_CPUS"
"""Whole CPUs the container was given, so the server can tell ``cpuset narrower than asked``."""
ENV_TERMINATION_LOG: Final = "NUMASERVE_TERMINATION_LOG"

# Headers of every answer of the server.
HEADER_REVISION: Final = "X-Numaserve-Revision"
HEADER_SPACE: Final = "X-Numaserve-Space"
HEADER_EXPECT_SPACE: Final = "X-Numaserve-Expect-Space"
HEADER_TRUNCATED: Final = "X-Numaserve-Truncated-Tokens"
