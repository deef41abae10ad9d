"""The artifact directory: opened, made whole or not at all, and sealed by its manifest."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import ValidationError

from numaserve_api.config import ConfigDeploy
from numaserve_api.manifest import CONFIG_FILE, MANIFEST_FILE, ArtifactFiles, Manifest, ModelFacts, manifest_digest
from numaserve_api.resource import dump
from numaserve_api.validate import InvalidDocument, parse_config, sentences
from numaserve_models.digest import entries
from numaserve_models.errors import ExportError
from numaserve_models.running import Array

SAMPLES, REFERENCE, SELFTEST = "samples.jsonl", "reference.npy", "selftest.json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact directory with its manifest and its config."""

    root: Path
    manifest: Manifest
    config: ConfigDeploy

    @property
    def graph(self) -> Path:
        """The OpenVINO graph."""
        return self.root / self.manifest.parts.graph

    @property
    def tokenizer(self) -> Path:
        """tokenizer.json."""
        return self.root / self.manifest.parts.tokenizer

    def samples(self) -> list[dict[str, Any]]:
        """The sample set: objects with ``text`` and, where known, labels or relevance; empty when there is none."""
        part = self.manifest.parts.samples
        if part is None:
            return []
        # Not splitlines: a text may hold U+2028, which JSON leaves unescaped.
        return [json.loads(line) for line in (self.root / part).read_bytes().split(b"\n") if line.strip()]

    def reference(self) -> Array | None:
        """FP32 answers of the samples, float32 [n, width]; token answers stand one token a row."""
        part = self.manifest.parts.reference
        return None if part is None else np.load(self.root / part, allow_pickle=False)


def open_artifact(root: Path) -> Artifact:
    """Read an artifact directory. Raises ExportError where it is none; files are not verified here."""
    manifest, config = root / MANIFEST_FILE, root / CONFIG_FILE
    for path in (manifest, config):
        if not path.is_file():
            raise ExportError(f"{root} has no {path.name}: it is no artifact directory; make one with `models export`")
    try:
        document = parse_config(config.read_text(encoding="utf-8"), deploy=False)
        return Artifact(root, Manifest.model_validate_json(manifest.read_bytes()), document)
    except ValidationError as error:
        raise ExportError("; ".join(sentences(error, MANIFEST_FILE)[:3])) from error
    except InvalidDocument as error:
        raise ExportError(f"{config}: {error}") from error


@contextmanager
def new_directory(out: Path) -> Iterator[Path]:
    """A folder to work in that becomes ``out`` when the block ends well and vanishes when it does not."""
    if out.exists():
        raise ExportError(f"{out} exists: remove it or name another directory")
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield work
        work.chmod(0o755)
        work.rename(out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def write_samples(folder: Path, samples: Sequence[Mapping[str, Any]], reference: Array | None) -> None:
    """samples.jsonl and reference.npy (little-endian float32)."""
    lines = "".join(json.dumps(dict(sample), ensure_ascii=False) + "\n" for sample in samples)
    (folder / SAMPLES).write_text(lines, encoding="utf-8")
    if reference is not None:
        np.save(folder / REFERENCE, reference.astype("<f4"))


def write_selftest(folder: Path, tests: Sequence[Mapping[str, Any]]) -> None:
    """selftest.json: what a server must reproduce before it is ready, one text for each bucket."""
    (folder / SELFTEST).write_text(json.dumps(list(tests), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def seal(folder: Path, facts: ModelFacts, config: ConfigDeploy, provenance: Mapping[str, Any]) -> str:
    """Write manifest.json over every file in the folder and config_deploy.yaml with its hash; returns the hash.

    ``config.model.hash`` is replaced, so any well-formed digest will do before.
    """
    present = {path.name for path in folder.iterdir()}
    parts = ArtifactFiles(
        samples=SAMPLES if SAMPLES in present else None,
        reference=REFERENCE if REFERENCE in present else None,
        selftest=SELFTEST if SELFTEST in present else None,
    )
    names = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != CONFIG_FILE]
    manifest = Manifest(
        version=1, files=entries(folder, names), parts=parts, model=facts, quantization=config.quantization,
        provenance=dict(provenance),
    )  # fmt: skip
    content = (json.dumps(dump(manifest), indent=2, ensure_ascii=False) + "\n").encode()
    (folder / MANIFEST_FILE).write_bytes(content)
    digest = manifest_digest(content)
    stamped = config.model_copy(update={"model": config.model.model_copy(update={"hash": digest})})
    (folder / CONFIG_FILE).write_text(yaml.safe_dump(dump(stamped), sort_keys=False, allow_unicode=True))
    return digest
