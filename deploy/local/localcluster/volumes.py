"""PersistentVolumes of the local cluster: a folder of this machine, which every node shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def manifests(name: str, namespace: str, folder: Path) -> str:
    """PersistentVolume and bound claim, as YAML documents."""
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
