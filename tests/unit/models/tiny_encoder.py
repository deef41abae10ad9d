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
from numaserve_models.branches import combine, switch_of
from numaserve_models.digest import digest_file
from numaserve_models.running import Runner, Text, encode, load_tokenizer, rows, summary
from tests.unit.serving.conftest import WORDS, write_tokenizer

WIDTH, HEADS, MAX_TOKENS = 32, 2, 16
BUCKETS = (4, 8, 16)
BLOCK, SWITCH = 4, 8


def _texts(count: int = 24) -> list[str]:
    rng = random.Random(5)
    return [" ".join(rng.choices(WORDS[3:], k=1 + i % 14)) for i in range(count)]


TEXTS = _texts()


def two_forms(dense: ov.Model | None = None) -> ov.Model:
    """The tiny transformer dense up to 8 tokens and with its queries in blocks above."""
    return combine(dense or tiny_graph(), tiny_graph(by_blocks=True), SWITCH)


def tiny_graph(
    layers: int = 2, poison: bool = False, by_blocks: bool = False, seed: int = 11, pooled: bool = True
) -> ov.Model:
    """input_ids and attention_mask [b, n] to unit vectors [b, 32]. With ``poison`` the word `late` answers NaN.

    ``by_blocks`` computes the same function from the same weights by other operations; not ``pooled`` answers [b, n, 32].
    """
    rng = np.random.default_rng(seed)

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
    # As exports of PyTorch models write it.
    one, least = np.ones((1, 1), np.float32), np.full((1, 1), -1e9, np.float32)
    hide = op.multiply(op.subtract(one, op.multiply(op.convert(op.convert(mask, "boolean"), "f32"), one)), least)
    hide = op.unsqueeze(op.unsqueeze(hide, np.array(1)), np.array(2))
    for _ in range(layers):
        hidden = _block(hidden, hide, weight, _by_blocks if by_blocks else _at_once)
    hidden = _norm(hidden)
    result = op.result(_pool(hidden, kept) if pooled else hidden)
    result.output(0).get_tensor().set_names({"embedding"})
    return ov.Model([result], [ids, mask], "tiny")


def _block(hidden: Any, hide: Any, weight: Callable[..., Any], attend: Callable[..., Any]) -> Any:
    normed = _norm(hidden)
    query, key, value = (_heads(op.matmul(normed, weight(WIDTH, WIDTH), False, True)) for _ in range(3))
    context = op.transpose(attend(query, key, value, hide), np.array([0, 2, 1, 3]))
    joined = op.reshape(context, np.array([0, 0, WIDTH]), special_zero=True)
    hidden = op.add(hidden, op.matmul(joined, weight(WIDTH, WIDTH), False, True))
    inner = op.gelu(op.matmul(_norm(hidden), weight(2 * WIDTH, WIDTH), False, True), "erf")
    return op.add(hidden, op.matmul(inner, weight(WIDTH, 2 * WIDTH), False, True))


def _at_once(query: Any, key: Any, value: Any, hide: Any) -> Any:
    scores = op.add(op.matmul(query, key, False, True), hide)
    return op.matmul(op.softmax(scores, -1), value, False, False)


def _by_blocks(query: Any, key: Any, value: Any, hide: Any) -> Any:
    length = op.gather(op.shape_of(query), np.array([2]), np.int64(0))
    missing = op.mod(op.subtract(np.array([BLOCK]), op.mod(length, np.array([BLOCK]))), np.array([BLOCK]))
    after = op.concat([np.array([0, 0]), missing, np.array([0])], 0)
    padded = op.pad(query, np.zeros(4, np.int64), after, "constant", np.float32(0))
    third = op.multiply(key, np.float32(1 / 3))  # rounds otherwise, as real block-local attention does
    blocks = op.reshape(
        op.multiply(padded, np.float32(3)), np.array([0, HEADS, -1, BLOCK, WIDTH // HEADS]), special_zero=True
    )
    keys, values, hidden = (op.unsqueeze(x, np.array([2])) for x in (third, value, hide))
    answer = _at_once(blocks, keys, values, hidden)
    joined = op.reshape(answer, np.array([0, HEADS, -1, WIDTH // HEADS]), special_zero=True)
    return op.slice(joined, np.array([0]), length, np.array([1]), np.array([2]))


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


def write_tiny(
    folder: Path, model: ov.Model | None = None, texts: Sequence[Text] = TEXTS, lengths: Sequence[int] = BUCKETS
) -> str:
    """An FP32 artifact of the graph in ``folder`` with a self-test for each of ``lengths``; its hash."""
    folder.mkdir(parents=True)
    model = model or tiny_graph()
    graph.save(model, folder)
    write_tokenizer(folder)
    encoded = encode(load_tokenizer(folder / "tokenizer.json"), texts, MAX_TOKENS)
    answers = Runner(folder / "openvino_model.xml").answers(encoded)
    said = [{"text": t} if isinstance(t, str) else {"query": t[0], "text": t[1]} for t in texts]
    write_samples(folder, said, rows(answers))
    fitting = {
        b: max((i for i, e in enumerate(encoded) if len(e) <= b), key=lambda i: len(encoded[i])) for b in lengths
    }
    write_selftest(
        folder,
        [
            {"bucket": b, **said[i], "tokens": len(encoded[i]), "vector": summary(answers[i]).tolist()}
            for b, i in fitting.items()
        ],
    )
    task = Task.EMBEDDING if isinstance(texts[0], str) else Task.RERANK
    facts = ModelFacts(
        task=task, pooling=Pooling.MEAN, normalize=True, dimensions=[WIDTH], max_tokens=MAX_TOKENS,
        positions=MAX_TOKENS, layers=["full", "full"], switch_tokens=switch_of(model), space="tiny@1", weights_digest=digest_file(folder / "openvino_model.bin"),
        tokenizer_digest=digest_file(folder / "tokenizer.json"),
    )  # fmt: skip
    config = ConfigDeploy(
        version=1,
        model=ModelConfig(
            source="pvc://models/tiny",
            hash="sha256:" + "0" * 64,
            task=task,
            pooling=Pooling.MEAN,
            space="tiny@1",
        ),
        window=Window(max_tokens=MAX_TOKENS, buckets=list(BUCKETS)),
        quantization=Quantization(scheme=Scheme.NONE),
        threads=1,
    )
    return seal(folder, facts, config, {"source": "tiny"})
