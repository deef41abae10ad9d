"""Classifiers, taggers and cross-encoders: logits as their class gives them, labels in order, segments of pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from numaserve_api.config import Pooling, Task
from numaserve_models.artifact import open_artifact
from numaserve_models.errors import ExportError
from numaserve_models.export import ExportRequest, export
from numaserve_models.network.heads import pool
from numaserve_models.running import Array, Runner, encode, load_tokenizer
from tests.unit.models.architectures import (
    SAMPLES,
    config_of,
    generic_tokenizer,
    randomise,
    save_directory,
    sentences,
    tiny,
    write_tiny_model,
    write_tokenizer,
)

LABELS = {0: "refund", 1: "outage", 2: "thanks"}
PAIRS = tuple({"query": q, "text": t} for q, t in zip(sentences((2, 3, 5, 4)), sentences((9, 30, 1, 60)), strict=True))


def model_directory(
    folder: Path, kind: str, auto: Any = AutoModelForSequenceClassification, **changes: Any
) -> tuple[Path, Any]:
    """A random classifier of the real class."""
    labels = changes.pop("labels", LABELS)
    config = config_of(tiny(kind), id2label=labels, label2id={v: k for k, v in labels.items()}, **changes)
    model = randomise(auto.from_config(config))
    return save_directory(folder, model), model


def own_logits(model: Any, tokenizer: Any, given: Any) -> Array:
    """The class's answer to one text or pair, with the tokenizer's own segments."""
    encoding = tokenizer.encode(*given) if isinstance(given, tuple) else tokenizer.encode(given)
    segments = {}
    if int(getattr(model.config, "type_vocab_size", 0) or 0) > 1:
        segments = {"token_type_ids": torch.tensor([encoding.type_ids])}
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([encoding.ids]),
            attention_mask=torch.ones(1, len(encoding.ids), dtype=torch.long),
            **segments,
        ).logits
    answer: Array = logits[0].numpy()
    return answer


def compare(out: Path, model: Any, inputs: list[Any]) -> None:
    """The artifact against the class."""
    artifact = open_artifact(out)
    tokenizer = load_tokenizer(artifact.tokenizer)
    answers = Runner(artifact.graph).answers(encode(tokenizer, inputs, artifact.manifest.model.max_tokens))
    for given, answer in zip(inputs, answers, strict=True):
        assert np.abs(answer - own_logits(model, tokenizer, given)).max() < 5e-5


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert", "longformer"])
def test_a_classifier_answers_its_class_logits_with_labels_in_order(tmp_path: Path, kind: str) -> None:
    folder, model = model_directory(tmp_path / "model", kind)
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES, switch=80))
    facts = open_artifact(tmp_path / "out").manifest.model
    assert (facts.task, facts.labels, facts.activation) == (
        Task.CLASSIFICATION,
        ["refund", "outage", "thanks"],
        "softmax",
    )
    if kind == "longformer":
        assert facts.layers == ["global+sliding:16"] * 2
    compare(tmp_path / "out", model, sentences())


def test_many_labels_at_once_are_sigmoids(tmp_path: Path) -> None:
    folder, _ = model_directory(tmp_path / "model", "bert", problem_type="multi_label_classification")
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))
    assert open_artifact(tmp_path / "out").manifest.model.activation == "sigmoid"


@pytest.mark.parametrize("kind", ["bert", "modernbert", "longformer"])
def test_a_tagger_answers_every_token(tmp_path: Path, kind: str) -> None:
    folder, model = model_directory(tmp_path / "model", kind, AutoModelForTokenClassification)
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES, switch=80))
    assert open_artifact(tmp_path / "out").manifest.model.task is Task.TOKEN_CLASSIFICATION
    compare(tmp_path / "out", model, sentences())


@pytest.mark.parametrize("kind", ["bert", "electra", "roberta", "distilbert", "modernbert"])
def test_a_cross_encoder_tells_query_and_text_apart(tmp_path: Path, kind: str) -> None:
    folder, model = model_directory(tmp_path / "model", kind, labels={0: "score"})
    export(ExportRequest(folder, tmp_path / "out", samples=PAIRS, switch=80))
    facts = open_artifact(tmp_path / "out").manifest.model
    assert (facts.task, facts.activation) == (Task.RERANK, "sigmoid")
    compare(tmp_path / "out", model, [(p["query"], p["text"]) for p in PAIRS])


def test_a_cross_encoder_whose_segments_no_separator_begins_is_refused(tmp_path: Path) -> None:
    folder, _ = model_directory(tmp_path / "model", "bert", labels={0: "score"})
    text = json.loads((folder / "tokenizer.json").read_text())
    for piece in text["post_processor"]["pair"]:
        if "SpecialToken" in piece:
            piece["SpecialToken"]["type_id"] = 1
    (folder / "tokenizer.json").write_text(json.dumps(text))
    generic_tokenizer(folder)
    with pytest.raises(ExportError, match="segments of sample 1 do not follow from its first separator"):
        export(ExportRequest(folder, tmp_path / "out", samples=PAIRS))
    with pytest.raises(ExportError, match="sample 1 has no query"):
        export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))


def test_one_segment_tokenizers_stay_one_segment(tmp_path: Path) -> None:
    folder, model = model_directory(tmp_path / "model", "bert", labels={0: "score"})
    write_tokenizer(folder, pair_types=False)
    generic_tokenizer(folder)
    export(ExportRequest(folder, tmp_path / "out", samples=PAIRS))
    compare(tmp_path / "out", model, [(p["query"], p["text"]) for p in PAIRS])


@pytest.mark.parametrize("stated", ["torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"])
def test_a_cross_encoder_says_its_activation(tmp_path: Path, stated: str) -> None:
    folder, _ = model_directory(
        tmp_path / "model", "bert", labels={0: "score"}, sentence_transformers={"activation_fn": stated}
    )
    export(ExportRequest(folder, tmp_path / "out", samples=PAIRS))
    expected = {"Identity": "none", "Sigmoid": "sigmoid"}[stated.rpartition(".")[2]]
    assert open_artifact(tmp_path / "out").manifest.model.activation == expected


def test_an_adapter_is_merged_or_refused_whole(tmp_path: Path) -> None:
    folder, model = write_tiny_model(tmp_path / "model", tiny("jina_embeddings_v3"))
    name = next(n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear))
    weight = model.get_submodule(name).weight
    rank = torch.randn(2, weight.shape[1]), torch.randn(weight.shape[0], 2)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    prefix = f"base_model.model.{name}.lora_"
    save_file({f"{prefix}A.weight": rank[0], f"{prefix}B.weight": rank[1]}, adapter / "adapter_model.safetensors")
    plain, adapted = (
        ExportRequest(folder, tmp_path / out, samples=SAMPLES, pooling=Pooling.MEAN, adapter=a)
        for out, a in (("plain", None), ("adapted", adapter))
    )
    assert export(plain) != export(adapted)
    facts = [open_artifact(tmp_path / out).manifest.model for out in ("plain", "adapted")]
    assert facts[0].space != facts[1].space
    with torch.no_grad():
        weight += 2.0 * (rank[1] @ rank[0])  # alpha / r
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    text = sentences()[2]
    ids = torch.tensor([tokenizer.encode(text).ids])
    with torch.no_grad():
        hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].mean(0)
    answer = Runner(open_artifact(tmp_path / "adapted").graph).answers([ids[0].tolist()])[0]
    assert np.abs(answer - torch.nn.functional.normalize(hidden, dim=0).numpy()).max() < 2e-5
    save_file({"base_model.model.nowhere.lora_A.weight": rank[0]}, adapter / "adapter_model.safetensors")
    with pytest.raises(ExportError, match="changes nowhere, which this model does not have"):
        export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES, pooling=Pooling.MEAN, adapter=adapter))


@pytest.mark.parametrize("how", [Pooling.MEAN, Pooling.CLS, Pooling.LAST])
def test_padding_on_either_side_gives_the_same_vector(how: Pooling) -> None:
    hidden = torch.randn(5, 8)
    junk = torch.full((3, 8), 1e6)
    right, left = torch.cat([hidden, junk]), torch.cat([junk, hidden])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]])
    pooled = pool(torch.stack([right, left]), mask, how)
    expected = {Pooling.MEAN: hidden.mean(0), Pooling.CLS: hidden[0], Pooling.LAST: hidden[-1]}[how]
    assert torch.allclose(pooled, expected.expand(2, 8), atol=1e-6)
