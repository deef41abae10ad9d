"""What every child has in common: labels, the owner, and the stamp that tells whether it changed."""

from __future__ import annotations

from typing import Any

from numaserve_api import names
from numaserve_api.revision import short_hash
from numaserve_operator.domain.plan import Manifest
from numaserve_operator.domain.snapshot import ParentView


def base_labels(name: str) -> dict[str, str]:
    """Labels of every child of a resource."""
    return {names.LABEL_NAME: name, names.LABEL_MANAGED_BY: names.MANAGED_BY}


def revision_labels(name: str, revision: str) -> dict[str, str]:
    """Labels of what belongs to one revision."""
    return {**base_labels(name), names.LABEL_REVISION: revision}


def metadata(parent: ParentView, name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Metadata with the owner reference that lets the garbage collector clean up without us."""
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": parent.name,
        "uid": parent.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {"name": name, "namespace": parent.namespace, "labels": labels, "ownerReferences": [owner]}


def stamp(manifest: Manifest) -> Manifest:
    """The manifest with its own hash as an annotation: an equal hash on the live object means nothing to write."""
    digest = short_hash(manifest)
    annotations = {**manifest["metadata"].get("annotations", {}), names.ANNOTATION_APPLIED_HASH: digest}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def applied_hash(manifest: Manifest) -> str:
    """The stamp of a stamped manifest."""
    return str(manifest["metadata"]["annotations"][names.ANNOTATION_APPLIED_HASH])
