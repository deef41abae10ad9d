"""Digests of artifacts: every file in the manifest, and the manifest itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from numaserve_api.manifest import MANIFEST_FILE, FileEntry, Manifest, manifest_digest
from numaserve_api.revision import short_hash
from numaserve_models.errors import ExportError


def digest_file(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(4 * 1024 * 1024):
            digest.update(chunk)
    return "sha256:" + digest.hexdigest()


def entries(root: Path, names: Iterable[str]) -> list[FileEntry]:
    """File entries, by name."""
    return [FileEntry(path=n, size=(root / n).stat().st_size, digest=digest_file(root / n)) for n in sorted(names)]


def artifact_hash(root: Path) -> str:
    """``model.hash`` of an artifact directory. Raises ExportError where there is none."""
    path = root / MANIFEST_FILE
    if not path.is_file():
        raise ExportError(f"{root} has no {MANIFEST_FILE}: it is no artifact directory")
    return manifest_digest(path.read_bytes())


def find_faults(root: Path) -> list[str]:
    """Files that were changed, are missing, were added, are links or lead out of the artifact; empty when it is whole."""
    artifact_hash(root)
    manifest = Manifest.model_validate_json((root / MANIFEST_FILE).read_bytes())
    known = {entry.path: entry for entry in manifest.files}
    faults = [fault for entry in known.values() if (fault := _fault(root, entry))]
    found = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() or p.is_symlink()}
    extra = sorted(found - set(known) - {MANIFEST_FILE, "config_deploy.yaml"})
    return faults + [f"added: {name}" for name in extra]


def _fault(root: Path, entry: FileEntry) -> str | None:
    path = root / entry.path
    if path.is_symlink():
        return f"linked: {entry.path} leads to {path.readlink()}"
    if not path.is_file():
        return f"missing: {entry.path}"
    if path.stat().st_size != entry.size or digest_file(path) != entry.digest:
        return f"changed: {entry.path}"
    return None


def default_space(weights: str, tokenizer: str, pooling: str, dimension: int) -> str:
    """Name of an embedding space nobody named: a digest of what decides where a text lands."""
    return "space-" + short_hash([weights, tokenizer, pooling, dimension])
