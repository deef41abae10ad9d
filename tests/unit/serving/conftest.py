"""A tiny real model: an embedding table, masked mean and L2 in an OpenVINO graph, and a word tokenizer."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import openvino as ov
import pytest
import uvicorn
from openvino import opset13 as op
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from demo.world import wait_for
from numaserve_api.config import ConfigDeploy
from numaserve_api.manifest import manifest_digest
from numaserve_serving.engine.engine import Engine
from numaserve_serving.engine.startup import load
from numaserve_serving.http.probe import probe_app
from numaserve_serving.http.serving import serving_app
from numaserve_serving.http.state import Identity, ServerState

WORDS = ["[UNK]", "[CLS]", "[SEP]", "hello", "world", "invoice", "late", "a", "b", "c"]
DIMENSION = 8
TOKEN = "probe-token"


def write_graph(folder: Path, poison: bool = False) -> None:
    """The graph. With ``poison`` the word `late` answers NaN."""
    table = np.random.default_rng(1).normal(size=(len(WORDS), DIMENSION)).astype(np.float32)
    if poison:
        table[WORDS.index("late")] = np.nan
    ids = op.parameter([-1, -1], np.int64, name="input_ids")
    mask = op.parameter([-1, -1], np.int64, name="attention_mask")
    for node in (ids, mask):
        node.output(0).get_tensor().set_names({node.get_friendly_name()})
    vectors = op.gather(op.constant(table), ids, op.constant(np.int64(0)))
    weights = op.convert(op.unsqueeze(mask, op.constant(np.array([2], dtype=np.int64))), "f32")
    axis = op.constant(np.array([1], dtype=np.int64))
    mean = op.divide(op.reduce_sum(op.multiply(vectors, weights), axis), op.reduce_sum(weights, axis))
    result = op.result(op.normalize_l2(mean, axis, 1e-12, "max"))
    ov.save_model(ov.Model([result], [ids, mask], "tiny"), str(folder / "openvino_model.xml"), compress_to_fp16=False)


def write_tokenizer(folder: Path) -> None:
    """A word tokenizer with special tokens."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def write_artifact(folder: Path, poison: bool = False) -> str:
    """An artifact directory; its hash."""
    folder.mkdir(parents=True)
    write_graph(folder, poison)
    write_tokenizer(folder)
    (folder / "samples.jsonl").write_text(
        "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in ("hello", "a\u2028b", "c"))
    )
    np.save(folder / "reference.npy", np.eye(3, DIMENSION, dtype="<f4"))
    names = ["openvino_model.xml", "openvino_model.bin", "tokenizer.json", "samples.jsonl", "reference.npy"]
    files = [{"path": n, "size": (folder / n).stat().st_size, "digest": sha256(folder / n)} for n in names]
    model = {
        "task": "embedding", "output": "pooled", "pooling": "mean", "normalize": True, "dimensions": [DIMENSION], "maxTokens": 16,
        "positions": 16, "layers": ["full"], "space": "tiny@1", "weightsDigest": sha256(folder / names[1]),
        "tokenizerDigest": sha256(folder / names[2]),
    }  # fmt: skip
    parts = {"samples": "samples.jsonl", "reference": "reference.npy"}
    manifest = {
        "version": 1,
        "files": files,
        "parts": parts,
        "model": model,
        "quantization": {"scheme": "none"},
        "provenance": {},
    }
    content = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(content)
    return manifest_digest(content)


def sha256(path: Path) -> str:
    """Digest of a file."""
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def make_config(digest: str, **window: object) -> ConfigDeploy:
    """A config for the tiny artifact."""
    document = {
        "version": 1,
        "model": {"source": "pvc://models/tiny", "hash": digest, "task": "embedding"},
        "window": {"maxTokens": 16, "buckets": [8, 16], **window},
        "quantization": {"scheme": "none"},
        "threads": 1,
    }
    return ConfigDeploy.model_validate(document)


@dataclass
class Running:
    """A server on loopback: both ports, and its state."""

    url: str
    probe_url: str
    state: ServerState

    def embed(self, **body: object) -> httpx.Response:
        """POST /v1/embeddings."""
        return httpx.post(f"{self.url}/v1/embeddings", json=body, timeout=20)

    def probe(self, method: str, path: str, token: str = TOKEN, **keywords: object) -> httpx.Response:
        """A request to the probe port."""
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.request(method, f"{self.probe_url}{path}", headers=headers, timeout=20, **keywords)  # type: ignore[arg-type]


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """The tiny artifact."""
    write_artifact(tmp_path / "artifact")
    return tmp_path / "artifact"


def serve(folder: Path, config: ConfigDeploy, tmp_path: Path) -> Iterator[Running]:
    """Serve an artifact until the test is over."""
    identity = Identity("tiny", "rev1", hashlib.sha256(TOKEN.encode()).hexdigest(), 1)
    state = ServerState(config, identity)
    loaded = load(config, folder, tmp_path / "cache")
    ports = [free_port(), free_port()]
    servers = [
        uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, lifespan="off"))  # type: ignore[arg-type]
        for app, port in zip((serving_app(state), probe_app(state)), ports, strict=True)
    ]
    thread = threading.Thread(target=_run, args=(state, loaded, servers), daemon=True)
    thread.start()
    running = Running(f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}", state)
    wait_for(lambda: (all(s.started for s in servers) and state.ready) or None, 20, "a ready server")
    yield running
    for server in servers:
        server.should_exit = True
    thread.join(20)


def _run(state: ServerState, loaded: object, servers: list[uvicorn.Server]) -> None:
    import asyncio

    async def main() -> None:
        state.loaded = loaded  # type: ignore[assignment]
        state.engine = Engine(loaded.backend, loaded.tokenizer, 16, state.metrics)  # type: ignore[attr-defined]
        state.engine.start()
        state.step = "ready"
        await asyncio.gather(*(server._serve() for server in servers))
        await state.engine.close()

    asyncio.run(main())


def free_port() -> int:
    """A port nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def server(artifact: Path, tmp_path: Path) -> Iterator[Running]:
    """The tiny artifact, served."""
    yield from serve(artifact, make_config(manifest_digest((artifact / "manifest.json").read_bytes())), tmp_path)
