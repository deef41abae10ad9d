"""Manifests of the children: a ReplicaSet and a ConfigMap for each revision, one Service, one NetworkPolicy."""

from __future__ import annotations

import json
from typing import Any

import yaml

from numaserve_api import names
from numaserve_api.resource import EncoderDeploymentSpec, dump
from numaserve_api.revision import canonical_form
from numaserve_operator.builders.common import applied_hash, base_labels, metadata, revision_labels, stamp
from numaserve_operator.builders.podtemplate import child_name, pod_template, service_port
from numaserve_operator.domain.plan import Manifest
from numaserve_operator.domain.snapshot import ArtifactCache, ParentView


def replicaset(
    parent: ParentView,
    spec: EncoderDeploymentSpec,
    *,
    revision: str,
    image: str,
    cpus_per_thread: int,
    token_digest: str,
    replicas: int,
    serving: bool,
    annotations: dict[str, str],
    cache: ArtifactCache | None = None,
) -> Manifest:
    """The ReplicaSet of one revision.

    Its stamp covers only what comes from the spec; replicas, role annotations and the serving label
    change along the rollout and are compared one by one.
    """
    selector = {names.LABEL_NAME: parent.name, names.LABEL_REVISION: revision}
    template = pod_template(
        spec, parent.name, revision, image, cpus_per_thread, token_digest, serving=False, cache=cache
    )
    fixed: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": metadata(parent, child_name(parent.name, revision), revision_labels(parent.name, revision)),
        "spec": {"selector": {"matchLabels": selector}, "template": template},
    }
    stamped = stamp(fixed)
    stamped["metadata"]["annotations"] |= {**annotations, names.ANNOTATION_IMAGE: image}
    stamped["spec"] = {**stamped["spec"], "replicas": replicas}
    if serving:
        template["metadata"]["labels"][names.LABEL_SERVING] = names.SERVING_TRUE
    return stamped


def configmap(
    parent: ParentView, spec: EncoderDeploymentSpec, *, revision: str, image: str, cpus_per_thread: int
) -> Manifest:
    """The immutable ConfigMap of one revision: the mounted config_deploy.yaml and the inputs of its hash."""
    form = canonical_form(spec, image, cpus_per_thread)
    config = yaml.safe_dump(dump(spec.config), sort_keys=False, allow_unicode=True)
    return stamp(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(parent, child_name(parent.name, revision), revision_labels(parent.name, revision)),
            "immutable": True,
            "data": {
                names.CONFIG_KEY: config,
                names.HASH_INPUTS_KEY: json.dumps(form, indent=2, sort_keys=True) + "\n",
            },
        }
    )


def service(parent: ParentView, spec: EncoderDeploymentSpec) -> Manifest:
    """The Service `<name>`: exactly the pods that may serve."""
    port: dict[str, Any] = {
        "name": names.SERVING_PORT_NAME,
        "port": service_port(spec),
        "targetPort": names.SERVING_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    selector = {names.LABEL_NAME: parent.name, names.LABEL_SERVING: names.SERVING_TRUE}
    return stamp(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(parent, parent.name, base_labels(parent.name)),
            "spec": {"selector": selector, "ports": [port], "type": "ClusterIP"},
        }
    )


def network_policy(parent: ParentView, operator_namespace: str) -> Manifest:
    """Only the operator's namespace reaches the probe port; the serving port is open to everyone.

    What leaves a pod is not restricted: where its artifact is fetched from may be anywhere.
    """
    operator = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator_namespace}}}
    rules: list[dict[str, Any]] = [
        {"ports": [{"port": names.SERVING_PORT, "protocol": "TCP"}]},
        {"from": [operator], "ports": [{"port": names.PROBE_PORT, "protocol": "TCP"}]},
    ]
    return stamp(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(parent, policy_name(parent.name), base_labels(parent.name)),
            "spec": {
                "podSelector": {"matchLabels": {names.LABEL_NAME: parent.name}},
                "policyTypes": ["Ingress"],
                "ingress": rules,
            },
        }
    )


def policy_name(name: str) -> str:
    """Name of the NetworkPolicy."""
    return f"{name}-probe"


__all__ = ["applied_hash", "child_name", "configmap", "network_policy", "policy_name", "replicaset", "service"]
