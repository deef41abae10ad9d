"""The generated CRD, as far as it can be judged without an API server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from numaserve_api import names
from numaserve_api.crd import __main__ as generator
from numaserve_api.crd.generate import PRINT_COLUMNS, definition, document, schema
from numaserve_api.crd.structural import structural
from numaserve_api.resource import EncoderDeploymentStatus
from numaserve_api.rules import RULES
from numaserve_api.unsupported import TABLE

ROOT = Path(__file__).parents[3]
CHECKED_IN = ROOT / "crds" / "encoderdeployments.numaserve.dev.yaml"
FORBIDDEN = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "not", "patternProperties", "propertyNames", "title", "const"}


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for key, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{key}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


NODES = dict(nodes(schema()))
SPEC = {path: node for path, node in NODES.items() if path.startswith(".spec")}


def test_the_checked_in_files_are_what_the_models_generate() -> None:
    assert CHECKED_IN.read_text() == document()
    assert all(path.read_text() == text for path, text in generator.outputs().items())


def test_the_chart_carries_the_same_crd() -> None:
    assert (ROOT / "charts" / "numaserve" / "crds" / CHECKED_IN.name).read_text() == CHECKED_IN.read_text()


def test_a_stale_file_fails_the_check_with_a_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0
    stale = tmp_path / "crds" / CHECKED_IN.name
    stale.write_text(stale.read_text().replace("Pods that serve.", "Pods."))
    assert generator.main(["--check"]) == 1
    told = capsys.readouterr().err
    assert "+                description: Pods that serve." in told
    assert "make generate" in told


def test_the_generator_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "numaserve_api.crd", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", NODES)
def test_a_node_is_structural(path: str) -> None:
    node = NODES[path]
    assert not FORBIDDEN & set(node)
    assert node.get("additionalProperties") is not False
    assert "type" in node or node.get("x-kubernetes-int-or-string")


@pytest.mark.parametrize("path", SPEC)
def test_a_field_of_the_spec_is_bounded(path: str) -> None:
    node = SPEC[path]
    bound = {"string": "maxLength", "array": "maxItems", "integer": "maximum", "number": "maximum"}.get(
        node.get("type", ""), ""
    )
    if "additionalProperties" in node:
        bound = "maxProperties"
    assert not bound or bound in node or "enum" in node


def test_replicas_has_the_only_default() -> None:
    """Any other default would be stored, and move revision hashes when it changes."""
    assert {path: node["default"] for path, node in NODES.items() if "default" in node} == {".spec.replicas": 1}


def test_lists_merge_as_their_meaning_asks() -> None:
    kinds = {path: node["x-kubernetes-list-type"] for path, node in NODES.items() if node.get("type") == "array"}
    assert {path for path, kind in kinds.items() if kind == "map"} == {
        ".status.conditions",
        ".status.placement",
        ".status.history",
    }
    assert {path for path, kind in kinds.items() if kind == "set"} == {".spec.placement.requireIsa"}


@pytest.mark.parametrize("path", [path for path, node in NODES.items() if "x-kubernetes-list-map-keys" in node])
def test_the_key_of_a_list_is_required(path: str) -> None:
    keys = set(NODES[path]["x-kubernetes-list-map-keys"])
    assert keys <= set(NODES[path]["items"]["required"])


def test_every_field_a_user_writes_at_the_top_is_described() -> None:
    top = [p for p in SPEC if p.count(".") == 2 and not p.endswith(("{}", "[]"))]
    assert [p for p in top if "description" not in SPEC[p]] == []


def test_every_rule_of_the_tables_is_in_the_crd() -> None:
    said = {rule["message"] for node in NODES.values() for rule in node.get("x-kubernetes-validations", [])}
    assert {rule.message for rule in RULES} | {entry.message for entry in TABLE} <= said


def test_a_sentence_says_more_than_that_something_is_wrong() -> None:
    messages = [rule["message"] for node in NODES.values() for rule in node.get("x-kubernetes-validations", [])]
    assert all(len(m.split()) >= 6 and "  " not in m and len(m) <= 300 for m in messages)


def test_the_columns_show_fields_that_exist() -> None:
    plain = [path for _, _, path, _ in PRINT_COLUMNS if "[" not in path and not path.startswith(".metadata")]
    assert plain
    assert [path for path in plain if path not in NODES] == []


def test_the_columns_are_those_of_the_design() -> None:
    shown = [name for name, _, _, priority in PRINT_COLUMNS if priority == 0]
    assert shown == [
        "READY", "REPLICAS", "REVISION", "CANDIDATE", "PHASE", "WEIGHT", "COSINE", "NUMA", "AGE",
    ]  # fmt: skip


def test_the_resource_is_scalable_and_has_a_short_name() -> None:
    spec = definition()["spec"]
    assert spec["names"]["shortNames"] == [names.SHORT_NAME]
    assert spec["names"]["categories"] == ["numaserve"]
    assert set(spec["versions"][0]["subresources"]) == {"status", "scale"}


def test_a_union_that_cannot_be_lowered_is_refused() -> None:
    class Ambiguous(BaseModel):
        value: int | list[int]

    with pytest.raises(ValueError, match="no structural form"):
        structural(Ambiguous)


def test_the_status_schema_names_every_field_of_the_model() -> None:
    written = {field.alias for field in EncoderDeploymentStatus.model_fields.values()}
    assert written == set(NODES[".status"]["properties"])
