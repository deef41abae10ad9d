"""Models that cannot be exported: one clear sentence each, and no directory left behind."""

from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from numaserve_api.config import Pooling
from numaserve_models.artifact import open_artifact
from numaserve_models.cli import app
from numaserve_models.errors import ExportError
from numaserve_models.export import ExportRequest, export
from numaserve_models.running import Runner
from numaserve_models.texts import read_samples
from tests.unit.models.architectures import SAMPLES, WORDS, batch, tiny, write_tiny_model, write_tokenizer

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4aa4b0cf1f427c3a\nsize 117979485\n"
Spoil = Callable[[Path], None]


def cut(folder: Path) -> None:
    """Half of the weights."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def pickled(folder: Path) -> None:
    """Weights only as a pickle."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"w": 1}))


def panicking(folder: Path) -> None:
    """A tokenizer.json on which the Rust side panics or fails: a vocabulary with a merge that names no piece."""
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"] = {"type": "BPE", "vocab": {"a": 0}, "merges": ["b c"]}
    (folder / "tokenizer.json").write_text(json.dumps(document))


def larger_vocabulary(folder: Path) -> None:
    """A token more than there are rows."""
    write_tokenizer(folder, [*WORDS, "surplus"])


def poisoned(folder: Path) -> None:
    """One weight is not a number."""
    tensors = load_file(folder / "model.safetensors")
    name = next(n for n in tensors if "query" in n)
    tensors[name].view(-1)[7] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def missing_layer(folder: Path) -> None:
    """The weights of another class: transformers would fill in random numbers."""
    tensors = load_file(folder / "model.safetensors")
    kept = {n: t for n, t in tensors.items() if "layer.1." not in n}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def no_tokenizer(folder: Path) -> None:
    """Only the slow tokenizer's files."""
    (folder / "tokenizer.json").unlink()


def broken_config(folder: Path) -> None:
    """config.json cut short."""
    (folder / "config.json").write_text('{"model_type": "bert"')


def pointer(folder: Path) -> None:
    """What git leaves where a large file was not fetched."""
    (folder / "model.safetensors").write_text(POINTER)


def pointed_tokenizer(folder: Path) -> None:
    """The same for the tokenizer."""
    (folder / "tokenizer.json").write_text(POINTER)


def no_weights(folder: Path) -> None:
    """config.json alone."""
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cut, r"model.safetensors is not a whole safetensors file .*copy it again"),
        (pickled, r"only as pytorch_model.bin: pickles execute code .* are refused"),
        (panicking, r"tokenizer.json is not a usable tokenizer.json"),
        (larger_vocabulary, r"ids up to 120 \('surplus'\), the embedding table 120 rows"),
        (poisoned, r"weight .*query.* holds NaN or infinity"),
        (missing_layer, r"no weights for encoder.layer.1.*they would be random numbers"),
        (no_tokenizer, r"has no tokenizer.json: save it with transformers' fast tokenizer"),
        (broken_config, r"config.json cannot be used"),
        (pointer, r"model.safetensors is a Git LFS pointer of 86 bytes, not the file: run `git lfs pull`"),
        (pointed_tokenizer, r"tokenizer.json is a Git LFS pointer"),
        (no_weights, r"has no \*.safetensors weights: copy the whole model"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_spoilt_model_is_refused_in_one_sentence(tmp_path: Path, spoil: Spoil, words: str) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    spoil(folder)
    with pytest.raises(ExportError, match=words) as caught:
        export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES, pooling=Pooling.MEAN))
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_directory_that_does_not_say_its_pooling_asks_for_it(tmp_path: Path) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    with pytest.raises(ExportError, match="does not say how its authors pool tokens: name --pooling cls, mean or last"):
        export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere", "no model directory, no .onnx or .xml file and no owner/name@revision"),
        ("owner/name", "the revision is needed"),
        ("nowhere.onnx", "does not exist"),
    ],
)
def test_a_source_that_is_none_says_what_one_is(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        export(ExportRequest(source, tmp_path / "out"))


def test_pickles_and_directories_without_a_config_say_what_to_give_instead(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, words in (
        ("notes.txt", "copy the whole directory"),
        ("model.pt", "model.pt are pickles"),
        ("model.onnx", "name the graph in it: model.onnx"),
    ):
        (folder / name).write_text("x")
        with pytest.raises(ExportError, match=rf"has no config.json, so it is no model directory: .*{words}"):
            export(ExportRequest(folder, tmp_path / "out"))
    with pytest.raises(ExportError, match=r"model.pt is a pickle, which executes code when it is read, and is refused"):
        export(ExportRequest(folder / "model.pt", tmp_path / "out"))


def test_a_graph_that_is_none_and_a_graph_without_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_text(POINTER)
    with pytest.raises(ExportError, match=r"broken.onnx is a Git LFS pointer"):
        export(ExportRequest(tmp_path / "broken.onnx", tmp_path / "out"))
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    with pytest.raises(ExportError, match=r"broken.onnx has no tokenizer.json beside it"):
        export(ExportRequest(tmp_path / "broken.onnx", tmp_path / "out"))
    write_tokenizer(tmp_path)
    with pytest.raises(ExportError, match=r"broken.onnx cannot be read as ONNX"):
        export(ExportRequest(tmp_path / "broken.onnx", tmp_path / "out", pooling=Pooling.MEAN))


CUSTOM_CONFIG = """
from transformers import PretrainedConfig

class OwnConfig(PretrainedConfig):
    model_type = "own_encoder"
"""
CUSTOM_MODEL = """
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from .configuration_own import OwnConfig

class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.table

    def forward(self, input_ids, attention_mask=None):
        return BaseModelOutput(last_hidden_state=torch.tanh(self.table(input_ids)))
"""


def write_custom(folder: Path) -> Path:
    """A model whose class comes with it."""
    folder.mkdir()
    (folder / "configuration_own.py").write_text(CUSTOM_CONFIG)
    (folder / "modeling_own.py").write_text(CUSTOM_MODEL)
    config = {
        "model_type": "own_encoder", "architectures": ["OwnModel"], "vocab_size": len(WORDS), "hidden_size": 16,
        "num_hidden_layers": 0, "max_position_embeddings": 64,
        "auto_map": {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    table = torch.randn(len(WORDS), 16, generator=torch.Generator().manual_seed(1))
    save_file({"table.weight": table}, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder)
    return folder


def test_code_of_a_model_runs_only_when_it_is_trusted_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = write_custom(tmp_path / "model")
    samples = tmp_path / "samples.jsonl"
    samples.write_text("".join(json.dumps(s) + "\n" for s in SAMPLES))
    words = ["export", str(folder), "--out", str(tmp_path / "out"), "--pooling", "mean", "--samples", str(samples)]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "--trust-remote-code" in refused.output
    done = CliRunner().invoke(app, [*words, "--trust-remote-code"])
    assert done.exit_code == 0, done.output
    assert "configuration_own.py, modeling_own.py" in done.output
    artifact = open_artifact(tmp_path / "out")
    assert set(artifact.manifest.provenance["remoteCode"]) == {"configuration_own.py", "modeling_own.py"}
    ids, mask = batch(5, 2)
    table = np.tanh(load_file(folder / "model.safetensors")["table.weight"].numpy())
    expected = np.stack([table[row[:n]].mean(0) for row, n in zip(ids, mask.sum(1), strict=True)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(Runner(artifact.graph)(ids, mask) - expected).max() < 1e-5


def test_a_disk_that_fills_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    words = ["export", str(folder), "--out", str(tmp_path / "out"), "--pooling", "mean"]
    script = (
        "import signal, resource, sys\n"
        "from numaserve_models.cli import app\n"
        "import numaserve_models.export, numaserve_models.network, torch, transformers\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({40 * 1024}, {resource.RLIM_INFINITY}))\n"
        f"app({words!r})\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2, done.stderr
    assert "disk" in done.stderr or "large" in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_sample_set_says_which_line_is_wrong_and_passes_over_empty_ones(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('{"text": "one"}\n\n   \n{"text": "two", "label": "x"}\n')
    assert [s["text"] for s in read_samples(path)] == ["one", "two"]
    for content, words in (
        ('{"text": "one"}\n{"text": 5}\n', "line 2 has no text"),
        ('{"text": "one"}\nplain\n', "line 2 is not JSON"),
        ("\n\n", "holds no samples"),
    ):
        path.write_text(content)
        with pytest.raises(ExportError, match=words):
            read_samples(path)
    path.write_bytes(b'{"text": "\xff"}\n')
    with pytest.raises(ExportError, match="cannot be read as UTF-8"):
        read_samples(path)
