"""Verifying an artifact before anything of it is used: manifest digest, every file, agreement with the config."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from numaserve_api.conditions import Reason
from numaserve_api.config import Calibration, ConfigDeploy, Pooling
from numaserve_api.manifest import MANIFEST_FILE, FileEntry, Manifest, manifest_digest
from numaserve_api.validate import sentences
from numaserve_serving.engine.errors import StartupError

CHUNK = 4 * 1024 * 1024
_IGNORED = {MANIFEST_FILE, "config_deploy.yaml"}
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A verified artifact: its folder, its manifest and the digest that names it."""

    root: Path
    manifest: Manifest
    digest: str

    def path(self, part: str) -> Path:
        """Absolute path of a file of the manifest."""
        return self.root / part


def load_artifact(root: Path, config: ConfigDeploy, progress: Progress = lambda _: None) -> Artifact:
    """Verify everything and return the artifact. Raises StartupError with the first fault found."""
    manifest, digest = read_manifest(root)
    if digest != config.model.hash:
        raise StartupError(
            Reason.DIGEST_MISMATCH,
            f"the artifact's manifest.json has digest {digest}, spec.config.model.hash asks for {config.model.hash}. "
            "Deploy the artifact that belongs to this hash, or paste the hash the export printed",
        )
    verify_files(root, manifest.files, progress)
    _check_parts(manifest)
    _check_agreement(manifest, config)
    return Artifact(root, manifest, digest)


def read_manifest(root: Path) -> tuple[Manifest, str]:
    """The manifest and its digest. Raises StartupError when it is missing or not a manifest."""
    path = root / MANIFEST_FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        listing = (
            ", ".join(sorted(p.name for p in root.iterdir())[:8]) if root.is_dir() else "the directory does not exist"
        )
        raise StartupError(
            Reason.ARTIFACT_MISSING,
            f"no manifest.json in the artifact directory ({error.strerror}; found there: {listing or 'nothing'}). "
            "Check the path after pvc://CLAIM/ in spec.config.model.source",
        ) from error
    try:
        return Manifest.model_validate_json(content), manifest_digest(content)
    except ValidationError as error:
        raise StartupError(Reason.ARTIFACT_INVALID, "; ".join(sentences(error, "manifest.json")[:3])) from error


def verify_files(root: Path, entries: Iterable[FileEntry], progress: Progress = lambda _: None) -> None:
    """Every file present, unchanged, no link, and nothing beside them. Raises StartupError naming the file."""
    known = set()
    for entry in entries:
        known.add(entry.path)
        progress(f"verifying {entry.path}")
        _verify(root, entry)
    extra = sorted(
        str(p.relative_to(root))
        for p in root.rglob("*")
        if (p.is_file() or p.is_symlink()) and str(p.relative_to(root)) not in known | _IGNORED
    )
    if extra:
        raise StartupError(
            Reason.ARTIFACT_INVALID,
            f"files that manifest.json does not list: {', '.join(extra[:5])}. Remove them or export the artifact again",
        )


def _verify(root: Path, entry: FileEntry) -> None:
    path = root / entry.path
    if path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
        raise StartupError(
            Reason.ARTIFACT_INVALID, f"{entry.path} is a link or leads out of the artifact: copy the real file there"
        )
    if not path.is_file():
        raise StartupError(
            Reason.ARTIFACT_MISSING, f"{entry.path} is listed in manifest.json but missing: copy the artifact again"
        )
    size = path.stat().st_size
    if size != entry.size:
        raise StartupError(
            Reason.DIGEST_MISMATCH,
            f"{entry.path} has {size} bytes, manifest.json says {entry.size}: copy the artifact again",
        )
    digest = file_digest(path)
    if digest != entry.digest:
        raise StartupError(
            Reason.DIGEST_MISMATCH,
            f"{entry.path} has digest {digest}, manifest.json says {entry.digest}: the file was changed",
        )


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces. Raises StartupError when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise StartupError(Reason.ARTIFACT_MISSING, f"{path.name} cannot be read: {error.strerror}") from error
    return "sha256:" + digest.hexdigest()


def _check_parts(manifest: Manifest) -> None:
    """What is used must be what was verified."""
    listed = {entry.path for entry in manifest.files}
    missing = sorted(part for part in manifest.parts.model_dump().values() if part and part not in listed)
    if missing or manifest.version != 1:
        raise StartupError(
            Reason.ARTIFACT_INVALID,
            f"manifest.json is of version {manifest.version} and does not list {missing or 'nothing'}: export the artifact again",
        )


def _check_agreement(manifest: Manifest, config: ConfigDeploy) -> None:
    """Config and artifact must speak of the same model: a claim the graph does not honour is refused."""
    facts, model = manifest.model, config.model
    claims = [
        ("model.task", model.task, facts.task),
        ("model.output", model.output, facts.output),
        ("model.normalize", model.normalize, facts.normalize),
        ("quantization.scheme", config.quantization.scheme, manifest.quantization.scheme),
        ("quantization.calibration", config.quantization.calibration, manifest.quantization.calibration),
    ]
    if model.pooling is not Pooling.AUTO:
        claims.append(("model.pooling", model.pooling, facts.pooling))
    wrong = [f"{name} is {_said(asked)}, the artifact has {_said(has)}" for name, asked, has in claims if asked != has]
    if config.window.max_tokens > facts.max_tokens:
        wrong.append(f"window.maxTokens is {config.window.max_tokens}, the model takes at most {facts.max_tokens}")
    missing = sorted(set(model.dimensions or ()) - set(facts.dimensions))
    if missing:
        wrong.append(f"model.dimensions names {missing}, the artifact offers {facts.dimensions}")
    if wrong:
        raise StartupError(
            Reason.MANIFEST_MISMATCH,
            f"config_deploy.yaml and the artifact disagree: {'; '.join(wrong)}. Paste the config the export wrote",
        )


def _said(value: object) -> str:
    if isinstance(value, Calibration):
        return f"{value.samples} samples with hash {value.hash}"
    return "absent" if value is None else str(value)
