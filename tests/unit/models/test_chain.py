"""sentence-transformers directories: what comes out is what that library answers, module by module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM

from numaserve_api.config import Output
from numaserve_models.artifact import open_artifact
from numaserve_models.errors import ExportError
from numaserve_models.export import ExportRequest, export
from numaserve_models.running import Array, Runner, encode, load_tokenizer
from tests.unit.models.architectures import (
    SAMPLES,
    config_of,
    randomise,
    save_directory,
    sentences,
    tiny,
    write_chain,
    write_tiny_model,
)

MEAN = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
DENSE = {
    "in_features": 32,
    "out_features": 24,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def write_dense(folder: Path) -> None:
    """Random weights of DENSE."""
    generator = torch.Generator().manual_seed(8)
    weight = torch.randn(DENSE["out_features"], DENSE["in_features"], generator=generator)
    save_file(
        {"linear.weight": weight, "linear.bias": torch.randn(24, generator=generator)}, folder / "model.safetensors"
    )


def answers(out: Path, texts: list[str]) -> list[Array]:
    """What the artifact answers, cut as its window says."""
    artifact = open_artifact(out)
    encoded = encode(load_tokenizer(artifact.tokenizer), texts, artifact.manifest.model.max_tokens)
    return Runner(artifact.graph).answers(encoded)


def shipped(folder: Path, texts: list[str], **options: Any) -> Any:
    """What sentence-transformers answers."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(texts, **options)


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "lasttoken"])
def test_transformer_pooling_dense_and_normalize_agree_with_the_library(tmp_path: Path, mode: str) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    pooling = {"word_embedding_dimension": 32, f"pooling_mode_{mode}": True}
    settings = {"prompts": {"query": "w5 w6 ", "document": ""}, "default_prompt_name": None}
    write_chain(folder, [("Transformer", None), ("Pooling", pooling), ("Dense", DENSE), ("Normalize", {})], settings)
    write_dense(folder / "2_Dense")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, "do_lower_case": False}))
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))
    facts = open_artifact(tmp_path / "out").manifest.model
    assert (facts.max_tokens, facts.trained_tokens, facts.positions) == (64, 64, 300)
    assert facts.pooling.value == {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}[mode]
    assert (facts.dimensions, facts.normalize, facts.prompts) == ([24], True, {"document": "", "query": "w5 w6 "})
    texts = sentences((1, 9, 40, 200))
    ours = np.stack(answers(tmp_path / "out", texts))
    assert np.abs(ours - shipped(folder, texts)).max() < 2e-5
    assert np.abs(ours - shipped(folder, texts, prompt_name="query")).max() > 0.01


def test_vectors_that_the_chain_does_not_normalise_keep_their_length(tmp_path: Path) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    write_chain(folder, [("Transformer", None), ("Pooling", MEAN)])
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))
    ours = np.stack(answers(tmp_path / "out", sentences()))
    assert np.abs(ours - shipped(folder, sentences())).max() < 2e-5
    assert not np.allclose(np.linalg.norm(ours, axis=1), 1, atol=0.05)


def test_a_chain_that_folds_case_folds_it_in_the_tokenizer(tmp_path: Path) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    write_chain(folder, [("Transformer", None), ("Pooling", MEAN)])
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 64, "do_lower_case": True}))
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))
    loud, quiet = answers(tmp_path / "out", ["W5 W6", "w5 w6"])
    assert np.array_equal(loud, quiet)


def test_matryoshka_sizes_are_offered_full_size_first(tmp_path: Path) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    write_chain(folder, [("Transformer", None), ("Pooling", MEAN)], {"matryoshka_dimensions": [32, 8, 16]})
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))
    artifact = open_artifact(tmp_path / "out")
    assert artifact.manifest.model.dimensions == artifact.config.model.dimensions == [32, 16, 8]


def test_without_pooling_there_is_a_vector_a_token_projection_included(tmp_path: Path) -> None:
    folder, model = write_tiny_model(tmp_path / "model", tiny("bert"))
    write_chain(
        folder,
        [
            ("Transformer", None),
            ("Dense", {**DENSE, "activation_function": "torch.nn.modules.linear.Identity"}),
            ("Normalize", {}),
        ],
    )
    write_dense(folder / "1_Dense")
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))
    artifact = open_artifact(tmp_path / "out")
    assert artifact.manifest.model.output is Output.TOKENS
    tokenizer = load_tokenizer(artifact.tokenizer)
    weights = load_file(folder / "1_Dense" / "model.safetensors")
    for text, answer in zip(sentences(), answers(tmp_path / "out", sentences()), strict=True):
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.no_grad():
            hidden = model(input_ids=ids).last_hidden_state[0] @ weights["linear.weight"].T + weights["linear.bias"]
        expected = torch.nn.functional.normalize(hidden, dim=-1).numpy()
        assert answer.shape == expected.shape == (ids.shape[1], 24)
        assert np.abs(answer - expected).max() < 2e-5
    assert artifact.reference().shape[0] == sum(len(tokenizer.encode(s["text"]).ids) for s in SAMPLES)  # type: ignore[union-attr]


def test_a_splade_chain_answers_term_weights(tmp_path: Path) -> None:
    model = randomise(AutoModelForMaskedLM.from_config(config_of(tiny("bert"))))
    folder = save_directory(tmp_path / "model", model)
    write_chain(folder, [("Transformer", None), ("SpladePooling", {"pooling_strategy": "max"})])
    text = (folder / "modules.json").read_text().replace("models.Transformer", "sparse_encoder.models.MLMTransformer")
    (folder / "modules.json").write_text(text)
    export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))
    assert open_artifact(tmp_path / "out").manifest.model.output is Output.SPARSE
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    for text, answer in zip(sentences(), answers(tmp_path / "out", sentences()), strict=True):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokenizer.encode(text).ids])).logits[0]
        expected = torch.log1p(torch.relu(logits)).amax(dim=0).numpy()
        assert np.abs(answer - expected).max() < 5e-5
        assert (answer >= 0).all()


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ([("Transformer", None), ("Pooling", MEAN), ("LSTM", {})], "names LSTM, which is not understood"),
        ([("Transformer", None), ("Pooling", {"pooling_mode_max_tokens": True})], "uses max: one of cls, mean"),
        ([("Transformer", None), ("Pooling", {**MEAN, "pooling_mode_cls_token": True})], r"uses cls \+ mean"),
        ([("Transformer", None), ("Pooling", {**MEAN, "include_prompt": False})], None),
        ([("Transformer", None), ("Pooling", MEAN), ("Normalize", {}), ("Dense", DENSE)], "Dense after Normalize"),
        ([("CLIPModel", None)], "begins with CLIPModel"),
        ([("Transformer", None), ("Pooling", None)], "config.json is missing in 1_Pooling"),
        (
            [("Transformer", None), ("Pooling", MEAN), ("Dense", {**DENSE, "activation_function": "my.Own"})],
            "uses my.Own",
        ),
        ([("Transformer", None), ("Pooling", MEAN), ("Dense", {**DENSE, "use_residual": True})], "residual"),
        ([("Transformer", None), ("Pooling", MEAN), ("Dense", DENSE)], r"2_Dense has no \*.safetensors"),
    ],
)
def test_a_chain_is_never_cut_short(tmp_path: Path, modules: list[tuple[str, Any]], words: str | None) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    settings = None
    if words is None:  # leaving the prompt out of the mean needs a prompt
        settings, words = {"prompts": {"query": "w5 "}}, "leaves the prompt's tokens out"
    write_chain(folder, modules, settings)
    with pytest.raises(ExportError, match=words):
        export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES))
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_the_window_is_the_smallest_of_all_and_raising_it_is_recorded(tmp_path: Path) -> None:
    folder, _ = write_tiny_model(tmp_path / "model", tiny("bert"))
    write_chain(folder, [("Transformer", None), ("Pooling", MEAN)])
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 96}))
    export(ExportRequest(folder, tmp_path / "as-trained", samples=SAMPLES))
    facts = open_artifact(tmp_path / "as-trained").manifest.model
    assert (facts.max_tokens, facts.trained_tokens) == (96, 96)
    export(ExportRequest(folder, tmp_path / "raised", samples=SAMPLES, max_tokens=200))
    manifest = open_artifact(tmp_path / "raised").manifest
    assert (manifest.model.max_tokens, manifest.model.trained_tokens) == (200, 96)
    assert "beyond the 96 tokens the model was trained on" in manifest.provenance["notes"][0]
    with pytest.raises(ExportError, match="--max-tokens 301 is beyond the model's 300 positions"):
        export(ExportRequest(folder, tmp_path / "out", samples=SAMPLES, max_tokens=301))
