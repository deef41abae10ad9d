"""The pod template: Guaranteed in every container, and whole CPUs for the server alone.

That is what makes the kubelet's static CPU manager hand out exclusive cores (Kubernetes docs, "Control
CPU Management Policies on the Node"). Pod-level resources are never set: they switch it off.
"""

from __future__ import annotations

from typing import Any

from numaserve_api import names
from numaserve_api.resource import EncoderDeploymentSpec, Placement, Service, dump
from numaserve_operator.builders.fetch import (
    artifact_mount,
    artifact_path,
    artifact_volumes,
    fetch_containers,
    hardened,
)
from numaserve_operator.domain.keys import start_mark
from numaserve_operator.domain.snapshot import ArtifactCache

USER = 65532
PRE_STOP_SECONDS = 3
"""Time for kube-proxy everywhere to forget a pod that is deleted without having been withdrawn."""
MESH_OFF = {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}


def pod_template(
    spec: EncoderDeploymentSpec,
    name: str,
    revision: str,
    image: str,
    cpus_per_thread: int,
    token_digest: str,
    serving: bool,
    cache: ArtifactCache | None = None,
) -> dict[str, Any]:
    """Template of one revision. ``serving`` puts the label that brings a new pod straight into the Service.

    ``cache`` is the node's, for artifacts that are fetched.
    """
    labels = {
        **(spec.pod_labels or {}),
        names.LABEL_NAME: name,
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_REVISION: revision,
        "sidecar.istio.io/inject": "false",
    }
    if serving:
        labels[names.LABEL_SERVING] = names.SERVING_TRUE
    return {
        "metadata": {"labels": labels, "annotations": {**MESH_OFF, names.ANNOTATION_START: start_mark(spec)}},
        "spec": _pod_spec(spec, name, revision, image, cpus_per_thread, token_digest, cache),
    }


def _pod_spec(
    spec: EncoderDeploymentSpec,
    name: str,
    revision: str,
    image: str,
    cpus_per_thread: int,
    token_digest: str,
    cache: ArtifactCache | None,
) -> dict[str, Any]:
    cpus = spec.config.threads * cpus_per_thread
    placement = spec.placement or Placement()
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_server(spec, name, revision, image, cpus, token_digest, cache)],
        "volumes": _volumes(spec, name, revision, cache),
    }
    if fetching := fetch_containers(spec, image, cache):
        pod["initContainers"] = fetching
    if placement.node_selector:
        pod["nodeSelector"] = dict(placement.node_selector)
    if placement.tolerations:
        pod["tolerations"] = [dump(t) for t in placement.tolerations]
    return pod


def _server(
    spec: EncoderDeploymentSpec,
    name: str,
    revision: str,
    image: str,
    cpus: int,
    token_digest: str,
    cache: ArtifactCache | None,
) -> dict[str, Any]:
    resources = {"cpu": str(cpus), "memory": spec.memory}
    port = names.SERVING_PORT
    return {
        "name": names.SERVER_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["--config", names.CONFIG_FILE, "--artifact", artifact_path(spec, cache)],
        "env": _environment(name, revision, cpus, token_digest),
        "ports": [
            {"name": names.SERVING_PORT_NAME, "containerPort": port},
            {"name": names.PROBE_PORT_NAME, "containerPort": names.PROBE_PORT},
        ],
        "resources": {"requests": resources, "limits": dict(resources)},
        "startupProbe": _probe("/v2/health/ready", period=1, failures=600),
        "readinessProbe": _probe("/v2/health/ready", period=2, failures=2),
        "livenessProbe": _probe("/v2/health/live", period=10, failures=3),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "terminationMessagePath": names.TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": hardened(),
        "volumeMounts": _mounts(spec, cache),
    }


def _probe(path: str, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": names.SERVING_PORT_NAME},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": 5,
    }


def _environment(name: str, revision: str, cpus: int, token_digest: str) -> list[dict[str, Any]]:
    fixed = {
        names.ENV_NAME: name,
        names.ENV_REVISION: revision,
        names.ENV_CPUS: str(cpus),
        names.ENV_PROBE_TOKEN_DIGEST: token_digest,
    }
    downward = {
        names.ENV_NAMESPACE: "metadata.namespace",
        names.ENV_POD: "metadata.name",
        names.ENV_NODE: "spec.nodeName",
    }
    return [
        *({"name": key, "value": value} for key, value in fixed.items()),
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in downward.items()),
    ]


def _mounts(spec: EncoderDeploymentSpec, cache: ArtifactCache | None) -> list[dict[str, Any]]:
    return [
        artifact_mount(spec, cache),
        {"name": "config", "mountPath": names.CONFIG_FILE.rpartition("/")[0], "readOnly": True},
        {"name": "cache", "mountPath": names.CACHE_DIR},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 -- the container's own emptyDir
    ]


def _volumes(
    spec: EncoderDeploymentSpec, name: str, revision: str, cache: ArtifactCache | None
) -> list[dict[str, Any]]:
    return [
        *artifact_volumes(spec, cache),
        {"name": "config", "configMap": {"name": child_name(name, revision)}},
        {"name": "cache", "emptyDir": {"sizeLimit": "2Gi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]


def child_name(name: str, revision: str) -> str:
    """Name of a revision's ReplicaSet and ConfigMap: at most 52 + 1 + 10 characters."""
    return f"{name}-{revision}"


def service_port(spec: EncoderDeploymentSpec) -> int:
    """Port of the Service."""
    return (spec.service or Service()).port
