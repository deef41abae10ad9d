"""Settings that change an answer are honoured or refused by name: each of these once gave other vectors without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from numaserve_api.config import Output, Pooling, Task
from numaserve_models.artifact import open_artifact
from numaserve_models.errors import ExportError
from numaserve_models.export import ExportRequest, export
from numaserve_models.running import Runner, encode, load_tokenizer
from tests.unit.models.architectures import (
    SAMPLES,
    config_of,
    randomise,
    save_directory,
    sentences,
    tiny,
    write_chain,
    write_onnx,
    write_tiny_model,
    write_tokenizer,
)
from tests.unit.models.test_chain import DENSE, MEAN, answers, shipped, write_dense

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
PAIRS = tuple({"query": q, "text": t} for q, t in zip(sentences((2, 3, 5, 4)), sentences((9, 30, 1, 60)), strict=True))
IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A random encoder with mean pooling."""
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    write_chain(folder, [("Transformer", None), ("Pooling", MEAN)])
    return folder


def classifier(folder: Path, **changes: Any) -> tuple[Path, Any]:
    """A random cross-encoder of one label."""
    config = config_of(tiny("bert"), **{"num_labels": 1, **changes})
    model = randomise(AutoModelForSequenceClassification.from_config(config))
    return save_directory(folder, model), model


def refused(tmp_path: Path, source: Path, words: str, **changes: Any) -> None:
    """Refused in one sentence, nothing left."""
    with pytest.raises(ExportError, match=words) as caught:
        export(ExportRequest(source, tmp_path / "out", **{"samples": SAMPLES, **changes}))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"processing_kwargs": {"text": {"add_special_tokens": False}}}, "sets processing_kwargs to"),
        ({"tokenizer_args": {"truncation_side": "left"}}, "sets tokenizer_args to"),
        ({"config_args": {"num_hidden_layers": 1}}, "sets config_args to"),
        (
            {"modality_config": {"text": {"method": "forward", "method_output_name": ["hidden_states", 1]}}},
            "modality_config",
        ),
        ({"transformer_task": "text-generation"}, "transformer_task text-generation"),
        ({"max_seq_length": "128"}, "max_seq_length '128'"),
        ({"max_seq_length": -1}, "max_seq_length -1"),
        ({"something_new": 3}, "sets something_new to 3, which is not understood"),
    ],
)
def test_a_setting_of_the_encoder_that_is_not_understood_is_named(
    tmp_path: Path, bert: Path, settings: dict[str, Any], words: str
) -> None:
    (bert / "sentence_bert_config.json").write_text(json.dumps(settings))
    refused(tmp_path, bert, words)


def test_settings_at_their_defaults_are_taken(tmp_path: Path, bert: Path) -> None:
    settings = {
        "transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "max_seq_length": 64,
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "model_args": {"torch_dtype": "float32"}, "tokenizer_args": {}, "config_args": None,
    }  # fmt: skip
    (bert / "sentence_distilbert_config.json").write_text(json.dumps(settings))
    export(ExportRequest(bert, tmp_path / "out", samples=SAMPLES))
    assert open_artifact(tmp_path / "out").manifest.model.max_tokens == 64


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ([("Pooling", MEAN), ("Dense", {**DENSE, "module_input_name": "token_embeddings"})], "reads token_embeddings"),
        (
            [("Pooling", MEAN), ("Dense", {**DENSE, "module_output_name": "other"})],
            "writes other where sentence_embedding",
        ),
        ([("Pooling", MEAN), ("Normalize", {"module_input_name": "token_embeddings"})], "the Normalize module"),
        (
            [("Dense", {**DENSE, "module_input_name": "sentence_embedding"}), ("Pooling", MEAN)],
            "reads sentence_embedding",
        ),
        (
            [("Pooling", MEAN), ("Dense", {**DENSE, "activation_function": "my_pkg.acts.Sigmoid"})],
            "uses my_pkg.acts.Sigmoid",
        ),
        ([("Pooling", MEAN), ("Pooling", MEAN)], "two Pooling modules"),
        ([("SpladePooling", {}), ("Normalize", {})], "Normalize after SpladePooling"),
    ],
)
def test_modules_that_do_not_line_up_are_refused(tmp_path: Path, bert: Path, modules: list[Any], words: str) -> None:
    write_chain(bert, [("Transformer", None), *modules])
    refused(tmp_path, bert, words)


def test_a_dense_before_pooling_works_on_tokens_and_its_default_is_tanh(tmp_path: Path, bert: Path) -> None:
    config = {k: v for k, v in DENSE.items() if k != "activation_function"} | {"module_input_name": "token_embeddings"}
    write_chain(bert, [("Transformer", None), ("Dense", config), ("Pooling", {**MEAN, "word_embedding_dimension": 24})])
    write_dense(bert / "1_Dense")
    export(ExportRequest(bert, tmp_path / "out", samples=SAMPLES))
    ours = np.stack(answers(tmp_path / "out", sentences()))
    assert np.abs(ours - shipped(bert, sentences())).max() < 2e-5


@pytest.mark.parametrize("kind", ["custom_st.Pooling", "my_models.Transformer"])
def test_a_module_of_the_models_own_is_no_library_module(tmp_path: Path, bert: Path, kind: str) -> None:
    text = (bert / "modules.json").read_text()
    (bert / "modules.json").write_text(text.replace(f"sentence_transformers.models.{kind.rpartition('.')[2]}", kind))
    refused(tmp_path, bert, f"names {kind}, code of the model's own")


@pytest.mark.parametrize("content", ['{"idx": 0}', '[{"type": "x"}]', "[3]", '[{"idx": "a", "type": "t"}]'])
def test_a_modules_file_of_another_shape_is_one_sentence(tmp_path: Path, bert: Path, content: str) -> None:
    (bert / "modules.json").write_text(content)
    refused(tmp_path, bert, "not as sentence-transformers writes it")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"prompts": ["a"]}, "not as sentence-transformers writes it"),
        (
            {"prompts": {"query": "q: "}, "default_prompt_name": "passage"},
            "default prompt 'passage', its prompts are query",
        ),
        ({"matryoshka_dimensions": [32, 0]}, "a dimension 0"),
        ({"matryoshka_dimensions": "64,32"}, "a dimension '64,32'"),
        ({"matryoshka_dimensions": list(range(1, 30))}, "29 Matryoshka sizes"),
    ],
)
def test_settings_of_the_model_that_make_no_sense_are_one_sentence(
    tmp_path: Path, bert: Path, settings: dict[str, Any], words: str
) -> None:
    (bert / "config_sentence_transformers.json").write_text(json.dumps(settings))
    refused(tmp_path, bert, words)


def test_an_empty_default_prompt_and_a_truncated_default_size_are_kept(tmp_path: Path, bert: Path) -> None:
    settings = {"prompts": {"query": "w5 ", "document": ""}, "default_prompt_name": "document", "truncate_dim": 16}
    (bert / "config_sentence_transformers.json").write_text(json.dumps(settings))
    export(ExportRequest(bert, tmp_path / "out", samples=SAMPLES))
    artifact = open_artifact(tmp_path / "out")
    facts = artifact.manifest.model
    assert (facts.default_prompt, facts.prompts) == ("document", {"query": "w5 ", "document": ""})
    assert (facts.dimensions, artifact.config.model.dimensions) == ([32, 16], [16, 32])


def test_a_head_without_weights_is_never_random(tmp_path: Path, bert: Path) -> None:
    refused(tmp_path, bert, "they would be random numbers", output=Output.SPARSE)
    folder, _ = classifier(tmp_path / "ranker")
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {n: t for n, t in tensors.items() if "pooler" not in n}, folder / "model.safetensors", metadata={"format": "pt"}
    )
    refused(tmp_path, folder, r"no weights for bert.pooler.*they would be random numbers", samples=PAIRS)


def test_a_projection_that_the_class_does_not_use_is_refused(tmp_path: Path, bert: Path) -> None:
    tensors = load_file(bert / "model.safetensors")
    save_file({**tensors, "linear.weight": torch.ones(8, 32)}, bert / "model.safetensors", metadata={"format": "pt"})
    refused(tmp_path, bert, "holds linear.weight, which this class of the model does not use", output=Output.TOKENS)


def test_a_colbert_of_pylate_is_normalised_with_its_prompts(tmp_path: Path, bert: Path) -> None:
    settings = {
        "model_type": "ColBERT",
        "query_prefix": "w7 ",
        "document_prefix": "w8 ",
        "query_length": 32,
        "do_query_expansion": True,
    }
    write_chain(bert, [("Transformer", None), ("Dense", {**DENSE, "activation_function": IDENTITY})], settings)
    text = (bert / "modules.json").read_text()
    (bert / "modules.json").write_text(text.replace("sentence_transformers.models.Dense", "pylate.models.Dense.Dense"))
    write_dense(bert / "1_Dense")
    export(ExportRequest(bert, tmp_path / "out", samples=SAMPLES))
    manifest = open_artifact(tmp_path / "out").manifest
    assert (manifest.model.output, manifest.model.normalize) == (Output.TOKENS, True)
    assert manifest.model.prompts == {"query": "w7 ", "document": "w8 "}
    assert "expanded with mask tokens to 32" in manifest.provenance["notes"][0]
    assert np.allclose(np.linalg.norm(answers(tmp_path / "out", sentences())[2], axis=1), 1, atol=1e-5)


def test_a_bare_transformer_chain_asks_what_it_answers(tmp_path: Path, bert: Path) -> None:
    write_chain(bert, [("Transformer", None)])
    refused(tmp_path, bert, "does not say how its authors pool tokens")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sbert_ce_default_activation_function": IDENTITY}, "none"),
        ({"problem_type": "regression"}, "sigmoid"),
        ({}, "sigmoid"),
    ],
)
def test_a_cross_encoders_activation_is_its_librarys(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    folder, _ = classifier(tmp_path / "ranker", **changes)
    export(ExportRequest(folder, tmp_path / "out", task=Task.RERANK, samples=PAIRS))
    assert open_artifact(tmp_path / "out").manifest.model.activation == expected


def test_a_cross_encoder_saved_as_a_chain_is_a_cross_encoder(tmp_path: Path) -> None:
    folder, _ = classifier(tmp_path / "ranker")
    write_chain(folder, [("Transformer", None)], {"model_type": "CrossEncoder", "activation_fn": IDENTITY})
    (folder / "sentence_bert_config.json").write_text(json.dumps({"transformer_task": "sequence-classification"}))
    export(ExportRequest(folder, tmp_path / "out", samples=PAIRS))
    facts = open_artifact(tmp_path / "out").manifest.model
    assert (facts.task, facts.activation) == (Task.RERANK, "none")


def test_segments_that_the_tokenizer_does_not_feed_are_not_fed_here(tmp_path: Path) -> None:
    folder, model = classifier(tmp_path / "ranker")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    export(ExportRequest(folder, tmp_path / "out", samples=PAIRS))
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    given = [(p["query"], p["text"]) for p in PAIRS]
    for ids, answer in zip(
        encode(tokenizer, given, 300),
        Runner(open_artifact(tmp_path / "out").graph).answers(encode(tokenizer, given, 300)),
        strict=True,
    ):
        with torch.no_grad():
            expected = model(input_ids=torch.tensor([ids])).logits[0].numpy()
        assert np.abs(answer - expected).max() < 5e-5


def test_an_onnx_cross_encoder_tells_segments_apart(tmp_path: Path) -> None:
    folder, model = classifier(tmp_path / "ranker")
    write_onnx(tmp_path / "model.onnx", folder, "logits", segments=True, task=Task.RERANK)
    request = ExportRequest(
        tmp_path / "model.onnx",
        tmp_path / "out",
        tokenizer=folder / "tokenizer.json",
        task=Task.RERANK,
        samples=PAIRS,
        max_tokens=128,
    )
    export(request)
    assert open_artifact(tmp_path / "out").manifest.model.activation == "sigmoid"
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    given = [(p["query"], p["text"]) for p in PAIRS]
    for pair, answer in zip(
        given, Runner(open_artifact(tmp_path / "out").graph).answers(encode(tokenizer, given, 128)), strict=True
    ):
        fed = tokenizer.encode(*pair)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([fed.ids]), token_type_ids=torch.tensor([fed.type_ids])).logits
        assert np.abs(answer - logits[0].numpy()).max() < 5e-5


def test_a_graph_beside_its_chain_is_pooled_as_the_chain_says(tmp_path: Path, bert: Path) -> None:
    write_chain(
        bert, [("Transformer", None), ("Pooling", {"word_embedding_dimension": 32, "pooling_mode_cls_token": True})]
    )
    (bert / "onnx").mkdir()
    write_onnx(bert / "onnx" / "model.onnx", bert, "last_hidden_state")
    export(ExportRequest(bert / "onnx" / "model.onnx", tmp_path / "out", samples=SAMPLES, max_tokens=128))
    facts = open_artifact(tmp_path / "out").manifest.model
    assert (facts.pooling, facts.normalize) == (Pooling.CLS, False)
    assert np.abs(np.stack(answers(tmp_path / "out", sentences())) - shipped(bert, sentences())).max() < 2e-5


def test_a_tokenizer_that_its_settings_change_is_refused(tmp_path: Path, bert: Path) -> None:
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {"119": {"content": "w5 w6", "special": True}},
    }
    (bert / "tokenizer_config.json").write_text(json.dumps(settings))
    refused(tmp_path, bert, "gives other ids for sample 1", samples=({"text": "w4 w5 w6 w7"}, {"text": "w9"}))


def test_texts_are_cut_on_the_side_the_tokenizer_cuts(tmp_path: Path, bert: Path) -> None:
    (bert / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "truncation_side": "left", "model_max_length": 32})
    )
    export(ExportRequest(bert, tmp_path / "out", samples=SAMPLES))
    artifact = open_artifact(tmp_path / "out")
    assert artifact.config.window.truncate_side == "left"
    long = next(s["text"] for s in SAMPLES if len(s["text"].split()) > 40)
    [ids] = encode(load_tokenizer(artifact.tokenizer), [long], 32, "left")
    reference = artifact.reference()
    assert reference is not None
    index = [s["text"] for s in SAMPLES].index(long)
    assert np.allclose(Runner(artifact.graph).answers([ids])[0], reference[index], atol=1e-5)


def test_a_model_with_its_adapter_inside_is_not_exported_without_it(tmp_path: Path, bert: Path) -> None:
    (bert / "adapter_config.json").write_text("{}")
    refused(tmp_path, bert, "holds adapter_config.json beside the model")


def test_settings_make_another_default_space(tmp_path: Path, bert: Path) -> None:
    spaces = set()
    for name, activation in (("tanh", "torch.nn.modules.activation.Tanh"), ("identity", IDENTITY)):
        write_chain(
            bert, [("Transformer", None), ("Pooling", MEAN), ("Dense", {**DENSE, "activation_function": activation})]
        )
        write_dense(bert / "2_Dense")
        export(ExportRequest(bert, tmp_path / name, samples=SAMPLES))
        spaces.add(open_artifact(tmp_path / name).manifest.model.space)
    assert len(spaces) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id2label": {"1": "a", "3": "b"}}, r"numbers its labels \[1, 3\]"),
        ({"hidden_size": "32"}, "cannot be (used|loaded)"),
        ({"hidden_act": "nothing"}, "cannot be (used|loaded)"),
    ],
)
def test_a_config_of_the_wrong_shape_is_one_sentence(
    tmp_path: Path, bert: Path, changes: dict[str, Any], words: str
) -> None:
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps({**config, **changes}))
    refused(tmp_path, bert, words)


def test_a_window_wider_than_the_texts_is_taken_at_its_word(tmp_path: Path) -> None:
    entry = tiny("modernbert")
    folder, _ = write_tiny_model(tmp_path / "model", entry)
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES, pooling=Pooling.MEAN, max_tokens=16, switch=0))
    assert tuple(open_artifact(tmp_path / "out").manifest.model.layers) == entry.layers


def test_labels_of_a_graph_must_be_as_many_as_its_logits(tmp_path: Path) -> None:
    folder, _ = classifier(tmp_path / "ranker", num_labels=3)
    write_onnx(tmp_path / "model.onnx", folder, "logits")
    write_tokenizer(tmp_path)
    changes = {"task": Task.CLASSIFICATION, "max_tokens": 64}
    refused(tmp_path, tmp_path / "model.onnx", "does not name its labels", **changes)
    refused(tmp_path, tmp_path / "model.onnx", "answers 3 logits, 2 labels are given", labels=("a", "b"), **changes)
    refused(tmp_path, folder, "--labels describes an ONNX file", labels=("a",))
