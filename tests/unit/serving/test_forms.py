"""What a server reads back of graphs with two forms, and the self-test of answers with a vector a token."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import openvino as ov
import pytest

from numaserve_api.conditions import Reason
from numaserve_api.manifest import manifest_digest
from numaserve_api.validate import parse_config
from numaserve_models import graph
from numaserve_models.artifact import open_artifact, seal
from numaserve_serving.backends import BackendSettings, OpenVinoBackend
from numaserve_serving.backends import openvino as backends
from numaserve_serving.backends.forms import prefixes
from numaserve_serving.engine.errors import StartupError
from numaserve_serving.engine.startup import Loaded, load
from tests.unit.models.tiny_encoder import tiny_graph, two_forms, write_tiny

SETTINGS = BackendSettings(threads=1, precision="f32")


def backend_of(model: ov.Model, folder: Path, settings: BackendSettings = SETTINGS) -> OpenVinoBackend:
    """A backend of a saved graph that has answered once."""
    folder.mkdir()
    graph.save(model, folder)
    backend = OpenVinoBackend(folder / "openvino_model.xml", settings)
    ids = np.ones((1, 12), dtype=np.int64)
    backend.infer(ids, ids)
    return backend


def load_of(folder: Path, cache: Path | None = None) -> Loaded:
    """The artifact as a server loads it."""
    return load(parse_config((folder / "config_deploy.yaml").read_text()), folder, cache)


def test_the_fingerprint_of_two_forms_names_the_kernels_of_both(tmp_path: Path) -> None:
    backend = backend_of(two_forms(), tmp_path / "two")
    tables = backend.executed()
    assert list(tables) == ["dense", "local"]
    assert all(any(row.heavy for row in table) for table in tables.values())
    fingerprint = backend.facts.fingerprint
    for word in ("dense ", "local ", "FullyConnected:"):
        assert word in fingerprint
    assert backend_of(two_forms(), tmp_path / "again").facts.fingerprint == fingerprint


@pytest.mark.skipif("BF16" not in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"), reason="no bf16 here")
def test_the_forms_are_compiled_with_the_properties_of_the_whole(tmp_path: Path) -> None:
    bf16 = backend_of(two_forms(), tmp_path / "bf16", replace(SETTINGS, precision="bf16"))
    assert {row.precision for row in bf16.executed()["dense"] if row.heavy} == {"bf16"}
    assert bf16.facts.fingerprint != backend_of(two_forms(), tmp_path / "f32").facts.fingerprint


def test_the_forms_are_looked_into_once_and_without_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Mock(side_effect=backends.look_inside)
    monkeypatch.setattr(backends, "look_inside", look)
    cache = tmp_path / "cache"
    backend = backend_of(two_forms(), tmp_path / "two", replace(SETTINGS, cache=cache))
    before = sorted(path.name for path in cache.iterdir())
    first = backend.facts
    assert backend.facts == first
    assert look.call_count == 1
    assert sorted(path.name for path in cache.iterdir()) == before
    assert OpenVinoBackend(tmp_path / "two" / "openvino_model.xml", replace(SETTINGS, cache=cache)).facts.cached


def test_a_graph_of_one_form_is_read_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "look_inside", lambda *_: pytest.fail("nothing is hidden here"))
    backend = backend_of(tiny_graph(), tmp_path / "one")
    (table,) = backend.executed().values()
    assert sum(row.count for row in table if row.operation == "FullyConnected") == 12
    assert "whole" not in backend.facts.fingerprint
    assert prefixes(tiny_graph()) == {}


def test_a_form_that_cannot_be_looked_into_keeps_no_model_from_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: ov.Model) -> dict[str, ov.Model]:
        raise RuntimeError("no")

    monkeypatch.setattr(backends, "prefixes", refuse)
    assert list(backend_of(two_forms(), tmp_path / "two").executed()) == ["whole"]


def test_a_prefix_is_the_first_block_and_feeds_on_the_inputs_of_its_form() -> None:
    found = prefixes(two_forms())
    for form in found.values():
        assert sum(node.get_type_name() == "MatMul" for node in form.get_ops()) == 8
        assert {name for i in form.inputs for name in i.get_names()} == {"input_ids", "attention_mask"}


def test_an_artifact_of_two_forms_is_served_with_and_without_a_cache(tmp_path: Path) -> None:
    write_tiny(tmp_path / "two", two_forms())
    found = [load_of(tmp_path / "two", cache).facts.fingerprint for cache in (None, tmp_path / "c", tmp_path / "c")]
    assert len(set(found)) == 1


def test_the_self_test_takes_the_mean_over_real_tokens(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tokens", tiny_graph(pooled=False))
    loaded = load_of(tmp_path / "tokens")
    ids = np.ones((1, 4), dtype=np.int64)
    assert loaded.backend.infer(ids, ids).shape == (1, 4, 32)


def test_a_vector_a_token_that_is_another_one_fails_the_self_test(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    write_tiny(folder, tiny_graph(pooled=False))
    tests = json.loads((folder / "selftest.json").read_text())
    tests[-1]["vector"] = [-x for x in tests[-1]["vector"]]
    (folder / "selftest.json").write_text(json.dumps(tests))
    reseal(folder)
    with pytest.raises(StartupError, match="reproduced with cosine -1") as caught:
        load_of(folder)
    assert caught.value.reason == Reason.SELF_TEST_FAILED


def test_the_width_is_that_of_a_token(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    write_tiny(folder, tiny_graph(pooled=False))
    (folder / "selftest.json").write_text("[]")
    reseal(folder, dimensions=[1])
    with pytest.raises(StartupError, match=r"answers 32 components, manifest\.json says 1"):
        load_of(folder)


def reseal(folder: Path, **facts: Any) -> None:
    """The manifest once more, after a change."""
    artifact = open_artifact(folder)
    for name in ("manifest.json", "config_deploy.yaml"):
        (folder / name).unlink()
    digest = seal(folder, artifact.manifest.model.model_copy(update=facts), artifact.config, {})
    assert digest == manifest_digest((folder / "manifest.json").read_bytes())
