"""A tiny transformer of random weights as an FP32 artifact: attention with a mask, norms, a feed-forward block, pooling."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from numaserve_api.config import ConfigDeploy, ModelConfig, Pooling, Quantization, Scheme, Task, Window
from numaserve_api.manifest import ModelFacts
from numaserve_models import graph
from numaserve_models.artifact import seal, write_samples, write_selftest
from numaserve_models.digest import digest_file
from numaserve_models.running import Runner, encode, load_tokenizer, rows
from tests.unit.serving.conftest import WORDS, write_tokenizer

WIDTH, HEADS, MAX_TOKENS = 32, 2, 16
BUCKETS = (4, 8, 16)


def _texts(count: int = 24) -> list[str]:
    rng = random.Random(5)
    return [" ".join(rng.choices(WORDS[3:], k=1 + i % 14)) for i in range(count)]


TEXTS = _texts()


def tiny_graph(layers: int = 2, poison: bool = False) -> ov.Model:
    """input_ids and attention_mask [b, n] to unit vectors [b, 32]. With ``poison`` the word `late` answers NaN."""
    rng = np.random.default_rng(11)

    def weight(*shape: int) -> Any:
        return op.constant((rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32))

    ids = op.parameter([-1, -1], np.int64, name="input_ids")
    mask = op.parameter([-1, -1], np.int64, name="attention_mask")
    for node in (ids, mask):
        node.output(0).get_tensor().set_names({node.get_friendly_name()})
    table = rng.normal(size=(len(WORDS), WIDTH)).astype(np.float32)
    if poison:
        table[WORDS.index("late")] = np.nan
    hidden = op.gather(op.constant(table), ids, op.constant(np.int64(0)))
    kept = op.convert(mask, "f32")
    hide = op.multiply(op.subtract(op.constant(np.float32(1)), kept), op.constant(np.float32(-1e4)))
    hide = op.unsqueeze(hide, op.constant(np.array([1, 2], dtype=np.int64)))
    for _ in range(layers):
        hidden = _block(hidden, hide, weight)
    hidden = _norm(hidden)
    result = op.result(_pool(hidden, kept))
    result.output(0).get_tensor().set_names({"embedding"})
    return ov.Model([result], [ids, mask], "tiny")


def _block(hidden: Any, hide: Any, weight: Callable[..., Any]) -> Any:
    normed = _norm(hidden)
    query, key, value = (_heads(op.matmul(normed, weight(WIDTH, WIDTH), False, True)) for _ in range(3))
    scores = op.add(op.matmul(query, key, False, True), hide)
    context = op.transpose(op.matmul(op.softmax(scores, -1), value, False, False), np.array([0, 2, 1, 3]))
    joined = op.reshape(context, np.array([0, 0, WIDTH]), special_zero=True)
    hidden = op.add(hidden, op.matmul(joined, weight(WIDTH, WIDTH), False, True))
    inner = op.gelu(op.matmul(_norm(hidden), weight(2 * WIDTH, WIDTH), False, True), "erf")
    return op.add(hidden, op.matmul(inner, weight(WIDTH, 2 * WIDTH), False, True))


def _heads(x: Any) -> Any:
    return op.transpose(
        op.reshape(x, np.array([0, 0, HEADS, WIDTH // HEADS]), special_zero=True), np.array([0, 2, 1, 3])
    )


def _norm(x: Any) -> Any:
    centred = op.mvn(x, np.array([-1], dtype=np.int64), True, 1e-6, "inside_sqrt")
    gain, bias = np.linspace(0.8, 1.2, WIDTH, dtype=np.float32), np.linspace(-0.1, 0.1, WIDTH, dtype=np.float32)
    return op.add(op.multiply(centred, op.constant(gain)), op.constant(bias))


def _pool(hidden: Any, kept: Any) -> Any:
    axis = op.constant(np.array([1], dtype=np.int64))
    weights = op.unsqueeze(kept, op.constant(np.array([2], dtype=np.int64)))
    mean = op.divide(op.reduce_sum(op.multiply(hidden, weights), axis), op.reduce_sum(weights, axis))
    return op.normalize_l2(mean, axis, 1e-12, "max")


def write_tiny(folder: Path, model: ov.Model | None = None, texts: Sequence[str] = TEXTS) -> str:
    """An FP32 artifact of the graph in ``folder``; its hash."""
    folder.mkdir(parents=True)
    graph.save(model or tiny_graph(), folder)
    write_tokenizer(folder)
    encoded = encode(load_tokenizer(folder / "tokenizer.json"), texts, MAX_TOKENS)
    answers = Runner(folder / "openvino_model.xml").answers(encoded)
    write_samples(folder, [{"text": text} for text in texts], rows(answers))
    fitting = {
        b: max((i for i, e in enumerate(encoded) if len(e) <= b), key=lambda i: len(encoded[i])) for b in BUCKETS
    }
    write_selftest(
        folder,
        [
            {"bucket": b, "text": texts[i], "tokens": len(encoded[i]), "vector": answers[i].tolist()}
            for b, i in fitting.items()
        ],
    )
    facts = ModelFacts(
        task=Task.EMBEDDING, pooling=Pooling.MEAN, normalize=True, dimensions=[WIDTH], max_tokens=MAX_TOKENS,
        positions=MAX_TOKENS, layers=["full", "full"], space="tiny@1", weights_digest=digest_file(folder / "openvino_model.bin"),
        tokenizer_digest=digest_file(folder / "tokenizer.json"),
    )  # fmt: skip
    config = ConfigDeploy(
        version=1,
        model=ModelConfig(
            source="pvc://models/tiny",
            hash="sha256:" + "0" * 64,
            task=Task.EMBEDDING,
            pooling=Pooling.MEAN,
            space="tiny@1",
        ),
        window=Window(max_tokens=MAX_TOKENS, buckets=list(BUCKETS)),
        quantization=Quantization(scheme=Scheme.NONE),
        threads=1,
    )
    return seal(folder, facts, config, {"source": "tiny"})
