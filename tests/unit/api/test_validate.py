"""The Python readers say what `kubectl apply` says."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from numaserve_api.config import SCHEME_FP16
from numaserve_api.unsupported import TABLE, find_unsupported
from numaserve_api.validate import InvalidDocument, parse_config, parse_spec
from numaserve_serving.fetch.location import parse_location
from tests.unit.api.refusals import LATER, NOT_YET, REFUSALS, Refusal
from tests.unit.api.resources import FULL, MINIMAL, SOURCES, Resource, changed


def problems_of(resource: Resource) -> str:
    with pytest.raises(InvalidDocument) as caught:
        parse_spec(resource)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.name)
def test_a_wrong_resource_is_refused_with_its_sentence(row: Refusal) -> None:
    assert (row.python or row.words) in problems_of(changed(MINIMAL, row.changes))


@pytest.mark.parametrize("resource", [MINIMAL, FULL], ids=["minimal", "full"])
def test_a_valid_resource_is_read(resource: Resource) -> None:
    assert parse_spec(resource).config.threads == resource["spec"]["config"]["threads"]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_can_be_fetched_is_read_by_both_sides(source: str) -> None:
    fetched = changed(MINIMAL, {"spec.config.model.source": source, "spec.sourceSecretRef": {"name": "reader"}})
    assert parse_spec(fetched).config.model.source == source
    parse_location(source)


@pytest.mark.parametrize("row", NOT_YET, ids=lambda row: row.name)
def test_a_field_for_later_is_named_in_its_sentence(row: Refusal) -> None:
    said = [p for p in find_unsupported(changed(MINIMAL, row.changes)) if p.startswith(row.words)]
    assert len(said) == 1
    assert LATER in said[0]


def test_every_entry_of_the_table_has_a_row() -> None:
    rows = {row.words for row in NOT_YET}
    assert rows == {entry.path for entry in TABLE}


def test_a_resource_without_unsupported_fields_is_told_nothing() -> None:
    assert find_unsupported(FULL) == []
    assert find_unsupported({"spec": None}) == []


def test_all_faults_are_told_at_once() -> None:
    text = problems_of(changed(MINIMAL, {"spec.replicas": -1, "spec.image": "a b", "spec.config.threads": 0}))
    assert all(word in text for word in ("spec.replicas", "spec.image", "spec.config.threads"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"spec.config.maxTokens": 3}, "spec.config.maxTokens is not a known field"),
        ({"spec.config.model.trust_remote_code": True}, "trust_remote_code is not a known field"),
        ({"spec.config.threads": "4"}, "spec.config.threads: Input should be a valid integer (given '4')"),
        ({"spec.config.threads": True}, "spec.config.threads: Input should be a valid integer (given True)"),
        ({"spec.rollout.maxSurge": True}, "must be a count"),
        ({"spec.rollout.gates.cosine": {"min": float("nan")}}, "finite number"),
    ],
)
def test_a_value_of_another_type_or_name_is_never_taken(changes: dict[str, Any], words: str) -> None:
    assert words in problems_of(changed(MINIMAL, changes))


def test_a_resource_without_a_spec_is_told_what_is_missing() -> None:
    assert "spec.config is required" in problems_of({"metadata": {"name": "a"}})


def test_a_long_value_is_not_repeated() -> None:
    assert "aaaa" not in problems_of(changed(MINIMAL, {"spec.image": "a" * 600}))


def config_text(**changes: Any) -> str:
    return yaml.safe_dump(changed(MINIMAL["spec"]["config"], changes))


def test_config_deploy_yaml_is_read_alone() -> None:
    assert parse_config(config_text()).window.max_tokens == 512


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (config_text(**{"quantization.scheme": "fp16"}), SCHEME_FP16.removeprefix("spec.")),
        (config_text(**{"window.buckets": [64, 32]}), "config.window.buckets must be strictly ascending"),
        (config_text(**{"model.task": "rerank"}), "config.model.task other than embedding is not supported yet"),
        (config_text(**{"model.hash": "x"}), "config.model.hash: must be sha256:"),
        ("a: [", "config_deploy.yaml is not YAML"),
        ("", "config: Input should be an object"),
        ("- 1", "config: Input should be an object"),
    ],
)
def test_a_wrong_config_deploy_yaml_is_refused_in_its_own_words(text: str, words: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        parse_config(text)
    assert words in str(caught.value)
    assert "spec." not in str(caught.value)
