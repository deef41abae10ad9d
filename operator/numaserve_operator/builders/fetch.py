"""How the artifact comes into the pod: a claim that is mounted, or an init container that fetches.

The init container asks for a fraction of a CPU, request = limit: the pod stays Guaranteed, the CPU manager gives
no exclusive core away for it, and since the server alone asks for more CPU, the pod asks for no more with it than
without. Credentials are mounted into it alone.
"""

from __future__ import annotations

from typing import Any

from numaserve_api import names
from numaserve_api.resource import EncoderDeploymentSpec
from numaserve_operator.domain.snapshot import ArtifactCache

RESOURCES = {"cpu": "500m", "memory": "512Mi"}
"""The fetcher streams; its memory is for the libraries and the pages the kernel has yet to write."""
OWNER_READS = 0o400
"""Mode of the Secret's files; fsGroup adds the pod's own group to it, which is how the pod's user reads them."""
PYTHON = "/opt/numaserve/bin/python3"
"""Where the serving image keeps its interpreter (serving_image/Dockerfile)."""
_TMP = "/tmp"  # noqa: S108 -- the container's own emptyDir


def hardened() -> dict[str, Any]:
    """Security context of every container, each its own object: a dump of shared ones is full of anchors."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def is_fetched(spec: EncoderDeploymentSpec) -> bool:
    """Whether the pod fetches its artifact; a claim is mounted as it is."""
    return not spec.config.model.source.startswith("pvc://")


def artifact_path(spec: EncoderDeploymentSpec, cache: ArtifactCache | None) -> str:
    """Where the server finds its artifact."""
    if is_fetched(spec) and cache:
        return f"{names.ARTIFACT_CACHE_DIR}/{spec.config.model.hash.replace(':', '-')}"
    return names.ARTIFACT_DIR


def artifact_mount(spec: EncoderDeploymentSpec, cache: ArtifactCache | None) -> dict[str, Any]:
    """The server's read-only view. Of a cache it is the whole: the lease that keeps an artifact lies beside it."""
    mount: dict[str, Any] = {"name": "artifact", "mountPath": _mount_path(spec, cache), "readOnly": True}
    _, path = claim_and_path(spec.config.model.source)
    if path and not is_fetched(spec):
        mount["subPath"] = path
    return mount


def artifact_volumes(spec: EncoderDeploymentSpec, cache: ArtifactCache | None) -> list[dict[str, Any]]:
    """The volume of the artifact, and what fetching it needs beside."""
    if not is_fetched(spec):
        claim, _ = claim_and_path(spec.config.model.source)
        return [{"name": "artifact", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}]
    # Made by the kubelet where it is missing: the fetcher can then say what is wrong with it, a mount could not.
    kept = {"hostPath": {"path": cache.path, "type": "DirectoryOrCreate"}} if cache else {"emptyDir": {}}
    volumes: list[dict[str, Any]] = [
        {"name": "artifact", **kept},
        {"name": "fetch-tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if spec.source_secret_ref:
        # Optional, so that a Secret that is missing is told by name instead of holding the pod without a word.
        secret = {"secretName": spec.source_secret_ref.name, "optional": True, "defaultMode": OWNER_READS}
        volumes.append({"name": "credentials", "secret": secret})
    return volumes


def fetch_containers(spec: EncoderDeploymentSpec, image: str, cache: ArtifactCache | None) -> list[dict[str, Any]]:
    """The init container that fetches; none for a claim."""
    if not is_fetched(spec):
        return []
    mounts: list[dict[str, Any]] = [
        {"name": "artifact", "mountPath": _mount_path(spec, cache)},
        {"name": "fetch-tmp", "mountPath": _TMP},
    ]
    if spec.source_secret_ref:
        mounts.append({"name": "credentials", "mountPath": names.CREDENTIALS_DIR, "readOnly": True})
    return [
        {
            "name": names.FETCH_CONTAINER,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": [PYTHON, "-m", "numaserve_serving.fetch"],
            "args": _arguments(spec, cache),
            "env": [{"name": "HOME", "value": _TMP}],
            "resources": {"requests": dict(RESOURCES), "limits": dict(RESOURCES)},
            "terminationMessagePath": names.TERMINATION_LOG,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": hardened(),
            "volumeMounts": mounts,
        }
    ]


def _arguments(spec: EncoderDeploymentSpec, cache: ArtifactCache | None) -> list[str]:
    words = ["--source", spec.config.model.source, "--hash", spec.config.model.hash]
    if cache:
        words += ["--cache", names.ARTIFACT_CACHE_DIR, "--cache-limit", cache.limit]
    else:
        words += ["--out", names.ARTIFACT_DIR]
    if spec.source_secret_ref:
        words += ["--credentials", names.CREDENTIALS_DIR, "--secret-name", spec.source_secret_ref.name]
    return words


def _mount_path(spec: EncoderDeploymentSpec, cache: ArtifactCache | None) -> str:
    return names.ARTIFACT_CACHE_DIR if cache and is_fetched(spec) else names.ARTIFACT_DIR


def claim_and_path(source: str) -> tuple[str, str]:
    """Claim name and path inside it of a ``pvc://CLAIM/PATH`` source; the path may be empty."""
    claim, _, path = source.removeprefix("pvc://").partition("/")
    return claim, path.strip("/")
