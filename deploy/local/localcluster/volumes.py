"""PersistentVolumes of the local cluster: a folder of this machine, which every node shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def manifests(name: str, namespace: str, folder: Path) -> str:
    """PersistentVolume and the claim it is kept for, as YAML documents. ``folder`` is a path every node sees."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}"},
        "spec": {
            **spec,
            "capacity": {"storage": "10Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": name},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, "resources": {"requests": {"storage": "10Gi"}}, "volumeName": f"{namespace}-{name}"},
    }
    return yaml.safe_dump_all([volume, claim])


def claim_with_loader(name: str, namespace: str, image: str, storage_class: str | None = None) -> str:
    """A claim and a pod that keeps it mounted while files are copied in.

    Without a storage class the default one is asked for a volume of one node, with one for a volume of many nodes.
    """
    mode = {"accessModes": ["ReadWriteMany"], "storageClassName": storage_class}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            **(mode if storage_class else {"accessModes": ["ReadWriteOnce"]}),
            "resources": {"requests": {"storage": "2Gi"}},
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-loader", "namespace": namespace},
        "spec": {
            "containers": [
                {
                    "name": "loader",
                    "image": image,
                    "command": ["sleep", "3600"],
                    "volumeMounts": [{"name": "volume", "mountPath": "/volume"}],
                }
            ],
            "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": name}}],
        },
    }
    return yaml.safe_dump_all([claim, pod])
