"""Every architecture: exported from a random model of its real class, and compared with that class here, independently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from numaserve_api.config import Output, Pooling
from numaserve_models.artifact import open_artifact
from numaserve_models.digest import find_faults
from numaserve_models.errors import ExportError
from numaserve_models.export import ExportRequest, export
from numaserve_models.graph import pool_in_numpy
from numaserve_models.running import Array, Ids, Runner
from tests.unit.models.architectures import PAD, SAMPLES, TINY, Tiny, batch, config_of, tiny, write_tiny_model

SWITCH = 80
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # DeBERTa's class, when it is imported


def request(source: Path, out: Path, entry: Tiny, **changes: Any) -> ExportRequest:
    """An export with a fixed switch, since timings of tiny models mean nothing."""
    base: dict[str, Any] = {
        "pooling": Pooling(entry.pooling),
        "samples": SAMPLES,
        "switch": SWITCH if entry.sliding else None,
    }
    return ExportRequest(source, out, **{**base, **changes})


def shipped(model: Any, entry: Tiny, ids: Ids, mask: Ids) -> Array:
    """The class's own answer, one text at a time without any padding, pooled and normalised in numpy."""
    rows = []
    for row, length in zip(ids, mask.sum(axis=1), strict=True):
        tokens = torch.from_numpy(row[None, :length])
        with torch.no_grad():
            hidden = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state.numpy()
        pooled = pool_in_numpy(hidden[:, :length], np.ones((1, length), dtype=np.int64), Pooling(entry.pooling))
        rows.append(pooled[0] / np.linalg.norm(pooled[0]))
    return np.stack(rows).astype(np.float32)


@pytest.mark.parametrize("entry", [e for e in TINY if e.kind != "lfm2"], ids=lambda e: e.kind)
def test_an_architecture_agrees_with_its_own_class_at_every_length(entry: Tiny, tmp_path: Path) -> None:
    source, model = write_tiny_model(tmp_path / "model", entry)
    export(request(source, tmp_path / "out", entry))
    artifact = open_artifact(tmp_path / "out")
    facts = artifact.manifest.model
    assert tuple(facts.layers) == entry.layers
    assert (facts.max_tokens, facts.positions, facts.architecture) == (300, 300, entry.kind)
    assert facts.switch_tokens == (SWITCH if entry.sliding else None)
    runner = Runner(artifact.graph)
    for lengths in ((1,), (17,), (SWITCH,), (SWITCH + 1,), (97, 4, 1), (211, 100), (300,)):
        ids, mask = batch(*lengths)
        assert np.abs(runner(ids, mask) - shipped(model, entry, ids, mask)).max() < 2e-5, lengths


def test_lfm2_mixes_both_sides_and_never_padding(tmp_path: Path) -> None:
    entry = tiny("lfm2")
    source, model = write_tiny_model(tmp_path / "model", entry)
    export(request(source, tmp_path / "out", entry, output=Output.TOKENS))
    artifact = open_artifact(tmp_path / "out")
    assert tuple(artifact.manifest.model.layers) == entry.layers
    runner = Runner(artifact.graph)
    for lengths in ((1,), (2,), (33, 5, 1), (150, 149)):
        ids, mask = batch(*lengths)
        answer = runner(ids, mask)
        for row, length in enumerate(lengths):
            expected = lfm2_by_hand(model, torch.from_numpy(ids[row, :length])).numpy()
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
            assert np.abs(answer[row, :length] - expected).max() < 2e-5, (lengths, row)


def lfm2_by_hand(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """LFM2 over one text, bidirectional, from its description: gated convolution over neighbours, grouped-query attention."""
    with torch.no_grad():
        x = model.embed_tokens(ids)
        for layer in model.layers:
            normed = _rms(x, layer.operator_norm)
            x = x + (
                _attention(layer.self_attn, normed) if layer.is_attention_layer else _convolution(layer.conv, normed)
            )
            inner, ff = _rms(x, layer.ffn_norm), layer.feed_forward
            x = x + ff.w2(torch.nn.functional.silu(ff.w1(inner)) * ff.w3(inner))
        result: torch.Tensor = _rms(x, model.embedding_norm)
        return result


def _rms(x: torch.Tensor, norm: Any) -> torch.Tensor:
    result: torch.Tensor = norm.weight * x / torch.sqrt((x**2).mean(-1, keepdim=True) + norm.variance_epsilon)
    return result


def _convolution(conv: Any, x: torch.Tensor) -> torch.Tensor:
    gate, out_gate, value = conv.in_proj(x).chunk(3, dim=-1)
    mixed, taps = gate * value, conv.conv.weight[:, 0]  # [n, d], [d, 3]
    zero = torch.zeros(1, mixed.shape[1])
    left, right = torch.cat([zero, mixed[:-1]]), torch.cat([mixed[1:], zero])
    result: torch.Tensor = conv.out_proj(out_gate * (left * taps[:, 0] + mixed * taps[:, 1] + right * taps[:, 2]))
    return result


def _attention(weights: Any, x: torch.Tensor) -> torch.Tensor:
    size, length = weights.head_dim, len(x)
    heads = [p(x).reshape(length, -1, size) for p in (weights.q_proj, weights.k_proj, weights.v_proj)]
    query, key = _rotate(_rms(heads[0], weights.q_layernorm)), _rotate(_rms(heads[1], weights.k_layernorm))
    times = query.shape[1] // key.shape[1]
    out = []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // times].T / size**0.5
        out.append(torch.softmax(scores, -1) @ heads[2][:, head // times])
    result: torch.Tensor = weights.out_proj(torch.cat(out, dim=-1))
    return result


def _rotate(x: torch.Tensor, theta: float = 1_000_000.0) -> torch.Tensor:
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(len(x)).float(), theta ** (-torch.arange(half) / half))[:, None]
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], dim=-1
    )


def test_a_causal_lfm2_and_an_unknown_architecture_are_refused_by_name(tmp_path: Path) -> None:
    entry = tiny("lfm2")
    source, _ = write_tiny_model(
        tmp_path / "causal", Tiny("lfm2", {**entry.changes, "architectures": ["Lfm2ForCausalLM"]})
    )
    with pytest.raises(ExportError, match=r"Lfm2ForCausalLM.*bidirectional"):
        export(request(source, tmp_path / "out", entry))
    other, _ = write_tiny_model(tmp_path / "other", Tiny("gpt2", {"n_positions": 64}))
    with pytest.raises(ExportError, match=r"architecture gpt2 is not supported: it would need .*Supported are bert"):
        export(request(other, tmp_path / "out", entry))
    assert not list(tmp_path.glob("*out*"))


def test_a_model_of_few_positions_is_exported(tmp_path: Path) -> None:
    entry = Tiny("roberta", {"max_position_embeddings": 18})
    source, model = write_tiny_model(tmp_path / "model", entry)
    export(request(source, tmp_path / "out", entry))
    assert open_artifact(tmp_path / "out").manifest.model.max_tokens == 16
    ids, mask = batch(16, 3)
    ours = Runner(open_artifact(tmp_path / "out").graph)(ids, mask)
    assert np.abs(ours - shipped(model, entry, ids, mask)).max() < 2e-5


def test_a_switch_of_zero_keeps_one_form(tmp_path: Path) -> None:
    entry = tiny("modernbert")
    source, model = write_tiny_model(tmp_path / "model", entry)
    export(request(source, tmp_path / "out", entry, switch=0))
    artifact = open_artifact(tmp_path / "out")
    assert artifact.manifest.model.switch_tokens is None
    ids, mask = batch(211, 100)
    assert np.abs(Runner(artifact.graph)(ids, mask) - shipped(model, entry, ids, mask)).max() < 2e-5


def test_the_same_model_gives_the_same_digest_and_two_forms_are_stored_once(tmp_path: Path) -> None:
    entry = tiny("modernbert")
    source, _ = write_tiny_model(tmp_path / "model", entry)
    one, two = (export(request(source, tmp_path / name, entry)) for name in ("one", "two"))
    assert one == two
    assert find_faults(tmp_path / "two") == []
    stored = (tmp_path / "two" / "openvino_model.bin").stat().st_size
    assert stored < 1.3 * (source / "model.safetensors").stat().st_size


def test_a_window_that_the_class_does_not_honour_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = tiny("modernbert")
    source, _ = write_tiny_model(tmp_path / "model", entry)
    from numaserve_models.network import registry

    declared = registry.declared_layers

    def wider(config: Any, leading: int = 0) -> list[str]:
        return [layer.replace("sliding:32", "sliding:48") for layer in declared(config, leading) or []]

    monkeypatch.setattr(registry, "declared_layers", wider)
    with pytest.raises(ExportError, match=r"layer 2 computes sliding:32 .*config.json says sliding:48"):
        export(request(source, tmp_path / "out", entry))


def test_a_graph_that_computes_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails closed: block-local attention with a window one token too narrow is off by far less than a label would show."""
    from numaserve_models.network import attention

    entry = tiny("modernbert")
    source, _ = write_tiny_model(tmp_path / "model", entry)
    right = attention._by_blocks

    def narrow(query: Any, key: Any, value: Any, mask: Any, scale: float, reach: Any) -> Any:
        return right(query, key, value, mask, scale, attention.Reach(reach.left - 1, reach.right - 1, reach.leading))

    monkeypatch.setattr(attention, "_by_blocks", narrow)
    with pytest.raises(ExportError, match=r"differs from its source by .* tokens\), at most 0.0001"):
        export(request(source, tmp_path / "out", entry))
    assert not (tmp_path / "out").exists()


def test_padding_ids_of_the_caller_do_not_matter(tmp_path: Path) -> None:
    entry = tiny("roberta")
    source, _ = write_tiny_model(tmp_path / "model", entry)
    export(request(source, tmp_path / "out", entry))
    runner = Runner(open_artifact(tmp_path / "out").graph)
    ids, mask = batch(30, 11)
    padded = np.where(mask > 0, ids, PAD)
    assert np.array_equal(runner(ids, mask), runner(padded, mask))


def test_every_supported_architecture_has_a_tiny_model() -> None:
    from numaserve_models.network.registry import _SUPPORTED

    assert {entry.kind for entry in TINY} == set(_SUPPORTED)
    assert all(config_of(entry).model_type == entry.kind for entry in TINY)
