"""Resources that every reader must accept, and a way to change one field of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Resource = dict[str, Any]
HASH = "sha256:" + "1" * 64
REMOVED = object()
"""As the value of a change: the field is taken away."""

MINIMAL: Resource = {
    "apiVersion": "numaserve.dev/v1alpha1",
    "kind": "EncoderDeployment",
    "metadata": {"name": "ticket-router"},
    "spec": {
        "config": {
            "version": 1,
            "model": {"source": "pvc://models/ticket-router/3", "hash": HASH, "task": "embedding"},
            "window": {"maxTokens": 512},
            "quantization": {"scheme": "none"},
            "threads": 2,
        }
    },
}

FULL: Resource = {
    **MINIMAL,
    "spec": {
        "replicas": 2,
        "config": {
            "version": 1,
            "model": {
                "source": "pvc://models/ticket-router/3",
                "hash": HASH,
                "task": "embedding",
                "output": "pooled",
                "pooling": "mean",
                "normalize": True,
                "dimensions": [384, 128],
                "space": "minilm-l6@1",
                "trustRemoteCode": False,
            },
            "window": {
                "maxTokens": 512,
                "buckets": [64, 128, 256, 512],
                "overflow": "truncate",
                "truncateSide": "right",
            },
            "quantization": {"scheme": "int8-weights", "activations": "f32", "dynamicGroup": 128},
            "threads": 8,
        },
        "placement": {
            "numa": "single",
            "cpusPerThread": 2,
            "nodeSelector": {"numaserve.dev/cpu-manager": "static", "zone": ""},
            "tolerations": [
                {"key": "dedicated", "operator": "Equal", "value": "encoders", "effect": "NoSchedule"},
                {"key": "slow", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                {"operator": "Exists"},
            ],
        },
        "memory": "4Gi",
        "image": "registry.example/numaserve-serving@" + HASH,
        "podLabels": {"team": "support", "example.com/cost-centre": "42"},
        "rollout": {
            "strategy": "canary",
            "maxSurge": "25%",
            "maxUnavailable": 0,
            "mirrorPercent": 0,
            "gates": {
                "samples": {"configMapRef": {"name": "tickets.sample"}},
                "against": "stable",
                "cosine": {"min": 0.95, "p1": 0.98, "mean": 0.99},
                "allowDifferentHardware": False,
            },
            "autoRollback": True,
            "progressDeadlineSeconds": 900,
            "paused": False,
        },
        "service": {"port": 8080, "tokenIds": "refuse"},
        "terminationGracePeriodSeconds": 60,
    },
}


SOURCES = (
    "hf://owner/name@main",
    "hf://owner/name@0123abc/ticket-router/3",
    "s3://models/ticket-router/3",
    "s3://models",
    "https://files.example/models/ticket-router/3/",
    "https://[fd00::1]:8443/ticket-router",
    "oci://registry.example:5000/models/ticket-router:3",
    "oci://registry.example/ticket-router@" + HASH,
)
"""Sources that a pod fetches."""


def changed(resource: Resource, changes: Mapping[str, Any]) -> Resource:
    """A copy with dotted paths set (or removed); objects on the way are made."""
    copied = copy.deepcopy(resource)
    for path, value in changes.items():
        node = copied
        *parents, last = path.split(".")
        for key in parents:
            node = node.setdefault(key, {})
        if value is REMOVED:
            node.pop(last, None)
        else:
            node[last] = value
    return copied
