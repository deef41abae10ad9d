"""The demo's artifacts, built once and kept in the cache, and the sample resources that use them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from localcluster.paths import REPOSITORY, cache_root
from numaserve_api.manifest import CONFIG_FILE
from numaserve_models.demo import build_demo_artifacts, fetch_packages

SAMPLES = REPOSITORY / "deploy" / "samples"
REQUIREMENTS = REPOSITORY / "requirements" / "models-demo.txt"
EXPORTER = REPOSITORY / "serving_image" / "numaserve_models"
_CONTRACT = [REPOSITORY / "crds" / "numaserve_api" / name for name in ("manifest.py", "config.py", "base.py")]


def ensure(progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder with every artifact directory; another exporter or model gives another folder."""
    packages = fetch_packages(REQUIREMENTS, cache_root() / "models")
    folder = cache_root() / "artifacts" / _key()
    build_demo_artifacts(packages, folder, progress)
    return folder


def _key() -> str:
    digest = hashlib.sha256(REQUIREMENTS.read_bytes())
    for path in [*sorted(EXPORTER.glob("*.py")), *_CONTRACT]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def sample(name: str, artifacts: Path) -> dict[str, Any]:
    """A resource of deploy/samples with the hash of the artifact that lies on this machine."""
    document: dict[str, Any] = yaml.safe_load((SAMPLES / name).read_text())
    if document["kind"] != "EncoderDeployment":
        return document
    model = document["spec"]["config"]["model"]
    directory = artifacts / model["source"].removeprefix("pvc://models/")
    model["hash"] = yaml.safe_load((directory / CONFIG_FILE).read_text())["model"]["hash"]
    return document


if __name__ == "__main__":
    print(ensure(print))
