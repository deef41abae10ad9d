"""`numaserve models samples`, and that every reader of a sample set reads what it writes."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from numaserve_api.config import Scheme
from numaserve_api.resource import LocalName, Samples
from numaserve_models.artifact import open_artifact
from numaserve_models.cli import app
from numaserve_models.quantize import Bounds, QuantizeRequest, quantize
from numaserve_models.quantize.calibration import read_calibration
from numaserve_models.samples.digest import samples_digest
from numaserve_models.samples.read import Sample
from numaserve_models.samples.write import MAX_CONFIGMAP_BYTES, configmap_yaml, gate_digest, json_lines
from numaserve_models.texts import read_samples
from numaserve_operator.cli.compare import read_samples as compare_samples
from numaserve_operator.gates.samples import digest_of, parse_configmap
from tests.unit.models.tiny_encoder import write_tiny
from tests.unit.serving.conftest import WORDS

ODD = ["plain", 'a "quoted" \\ one', "two\nlines", "sep\u2028arated\u0085here\x0c", "日本語 テキスト", "🙂👩\u200d👩\u200d👧 ok", "#: - {yaml: no}", "\ttab", "\ufeffbom", "e\u0301 \u00a0x"]  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["samples", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})


def source(tmp_path: Path, documents: list[Any], name: str = "in.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


def texts_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def refused(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


def test_every_reader_reads_what_is_written(tmp_path: Path) -> None:
    path = source(tmp_path, [{"text": text} for text in ODD])
    out = tmp_path / "set" / "samples.jsonl"
    result = run(path, "--out", out, "--configmap", "tickets", "--namespace", "team")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == samples_digest(ODD)
    assert [sample["text"] for sample in read_samples(out)] == ODD
    assert [sample["text"] for sample in read_calibration(out)] == ODD
    configmap = yaml.safe_load((out.parent / "samples.configmap.yaml").read_text(encoding="utf-8"))
    assert configmap["metadata"] == {"name": "tickets", "namespace": "team"}
    assert list(parse_configmap(configmap).texts) == ODD
    assert list(parse_configmap(compare_samples(out)).texts) == ODD
    assert parse_configmap(configmap).digest in result.stderr
    [named] = [line for line in result.stderr.splitlines() if line.startswith("name them:")]
    where = yaml.safe_load(named.split("spec.rollout.gates.samples:")[1])
    assert Samples.model_validate(where).config_map_ref == LocalName(name=configmap["metadata"]["name"])


def test_a_set_calibrates_an_int8_artifact_by_the_printed_digest(tmp_path: Path) -> None:
    """The artifact's own tokenizer and buckets choose; calibration and report then name the same set."""
    write_tiny(tmp_path / "fp32")
    documents = [
        {"text": " ".join(WORDS[3 + (n + i) % (len(WORDS) - 3)] for i in range(1 + n % 40)) + f" {n}"}
        for n in range(200)
    ]
    out = tmp_path / "samples.jsonl"
    result = run(source(tmp_path, documents), "--out", out, "--artifact", tmp_path / "fp32", "--count", 24)
    assert result.exit_code == 0, result.output
    assert f"1–{open_artifact(tmp_path / 'fp32').config.buckets[0]} tokens" in result.stderr
    quantize(
        tmp_path / "fp32", tmp_path / "int8", QuantizeRequest(Scheme.INT8, calibration=out, bounds=Bounds(0.0, 0.0))
    )
    calibration = open_artifact(tmp_path / "int8").manifest.quantization.calibration
    assert calibration is not None
    assert (calibration.hash, calibration.samples) == (result.stdout.strip(), 24)


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_any_text_reads_back_from_file_and_configmap(texts: list[str]) -> None:
    lines = json_lines([Sample(text, n, n, label=text) for n, text in enumerate(texts)])
    assert [json.loads(line) for line in lines.splitlines()] == [{"text": text, "label": text} for text in texts]
    found = parse_configmap(yaml.safe_load(configmap_yaml("a", None, lines)))
    assert list(found.texts) == texts
    assert found.digest == digest_of(texts) == gate_digest(texts)


@given(st.lists(TEXT, max_size=5), st.lists(TEXT, max_size=5))
def test_two_sets_have_one_digest_only_when_equal(first: list[str], second: list[str]) -> None:
    assert (samples_digest(first) == samples_digest(second)) == (first == second)
    lines = "".join(json.dumps(text) + "\n" for text in first)
    assert samples_digest(first) == "sha256:" + hashlib.sha256(lines.encode("ascii")).hexdigest()


def test_the_same_command_writes_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    path = source(tmp_path, [{"text": f"text {'word ' * (n % 70)}{n}"} for n in range(500)])
    written = []
    for number, seed in enumerate([1, 1, 2]):
        assert run(path, "--out", tmp_path / f"{number}.jsonl", "--count", 50, "--seed", seed).exit_code == 0
        written.append((tmp_path / f"{number}.jsonl").read_bytes())
    assert written[0] == written[1] != written[2]
    assert written[0].count(b"\n") == 50


def test_lengths_are_alike_though_the_source_is_not(tmp_path: Path) -> None:
    path = source(
        tmp_path, [{"text": f"{n} short"} for n in range(900)] + [{"text": f"{n}" * 60} for n in range(100, 200)]
    )
    out = tmp_path / "out.jsonl"
    result = run(path, "--out", out, "--count", 60, "--buckets", "20,200")
    assert sorted(len(sample["text"]) > 20 for sample in texts_in(out)) == [False] * 30 + [True] * 30
    assert "over 200" in result.stderr


def test_a_short_bucket_duplicates_empty_and_bad_lines_are_told(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": "A "}\n{"text": ""}\nno\n{"text": "b"}\n')
    out = tmp_path / "out.jsonl"
    assert "no JSON (line 5)" in refused(run(path, "--out", out))
    assert not out.exists()
    result = run(path, "--out", out, "--skip-invalid", "--count", 8)
    told = " ".join(result.stderr.split())
    assert "left out 3 of 6 lines: empty (lines 2, 4); no JSON (line 5)" in told
    assert "left out 1 duplicates" in told
    assert "not filled: 129–256 characters has 0 of" in told
    assert [sample["text"] for sample in texts_in(out)] == ["a", "b"]


def test_relevance_points_into_the_chosen_set(tmp_path: Path) -> None:
    documents = [{"id": n, "text": f"query {n}", "relevant": [n + 100], "label": n % 3} for n in range(100)]
    documents += [{"id": n + 100, "text": f"document {n}"} for n in range(100)]
    out = tmp_path / "out.jsonl"
    result = run(source(tmp_path, documents), "--out", out, "--count", 30)
    found = texts_in(out)
    ids = {sample["id"]: sample["text"] for sample in found}
    asked = [sample for sample in found if "relevant" in sample]
    assert len(found) == 30
    assert len(asked) >= 10
    assert all([ids[name] for name in s["relevant"]] == [f"document {s['text'].split()[1]}"] for s in asked)
    assert "in 3 classes" in result.stderr
    assert f"{len(asked)} with relevant ones" in result.stderr


def test_relevance_by_index_is_numbered_anew_for_the_set(tmp_path: Path) -> None:
    documents: list[dict[str, Any]] = [{"text": f"document {n}"} for n in range(50)]
    documents += [{"text": f"query {n}", "relevant": [n]} for n in range(50)]
    out = tmp_path / "out.jsonl"
    assert run(source(tmp_path, documents), "--out", out, "--count", 11).exit_code == 0
    found = texts_in(out)
    asked = [sample for sample in found if "relevant" in sample]
    assert asked
    assert all([found[i]["text"] for i in s["relevant"]] == [f"document {s['text'].split()[1]}"] for s in asked)


def test_relevance_to_nothing_is_refused_or_left_out(tmp_path: Path) -> None:
    path = source(tmp_path, [{"text": "a", "id": "x", "relevant": ["x", "nobody"]}, {"text": "b", "id": "y"}])
    out = tmp_path / "out.jsonl"
    assert "line 1 names nobody as relevant" in refused(run(path, "--out", out))
    result = run(path, "--out", out, "--skip-invalid")
    assert "left out 1 names" in result.stderr
    assert texts_in(out)[0]["relevant"] == ["x"]


def test_queries_of_a_cross_encoder_reach_the_export(tmp_path: Path) -> None:
    from numaserve_api.config import Task
    from numaserve_models.texts import inputs

    rows = io.StringIO()
    csv.writer(rows).writerows([["asked", "text"], ["where, now?", "here"], ["who?", "me"]])
    path = tmp_path / "in.csv"
    path.write_text(rows.getvalue())
    out = tmp_path / "out.jsonl"
    assert run(path, "--out", out, "--query-column", "asked").exit_code == 0
    assert inputs(read_samples(out), Task.RERANK) == [("where, now?", "here"), ("who?", "me")]


def test_personal_data_is_warned_about_and_never_printed(tmp_path: Path) -> None:
    values = ["jane.doe@example.org", "DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111", "203.0.113.9"]
    path = source(tmp_path, [{"text": f"from {value} today"} for value in values])
    result = run(path, "--out", tmp_path / "out.jsonl")
    assert result.exit_code == 0
    for kind, line in [("e-mail", 1), ("IBAN", 2), ("credit card", 3), ("IP address", 4)]:
        assert f"{kind}: 1 in line {line}" in result.stderr
    assert not any(value[:4] in result.output for value in values)


def test_a_configmap_that_is_too_large_is_refused_and_the_count_it_names_fits(tmp_path: Path) -> None:
    path = source(tmp_path, [{"text": f"{n} " + "ä" * 9_000} for n in range(100)])
    out = tmp_path / "out.jsonl"
    said = refused(run(path, "--out", out, "--configmap", "big"))
    assert str(MAX_CONFIGMAP_BYTES) in said
    assert list(tmp_path.iterdir()) == [path]
    fitting = int(said.split("take about ")[1].split()[0])
    assert run(path, "--out", out, "--configmap", "big", "--count", fitting).exit_code == 0
    manifest = yaml.safe_load((tmp_path / "out.configmap.yaml").read_text(encoding="utf-8"))
    assert 0.8 * MAX_CONFIGMAP_BYTES < len(manifest["data"]["samples.jsonl"].encode()) <= MAX_CONFIGMAP_BYTES
    without = run(path, "--out", out, "--overwrite")
    assert without.exit_code == 0
    assert "a ConfigMap holds at most" in without.stderr


def test_a_configmaps_limit_is_exact() -> None:
    from numaserve_models.errors import ExportError

    assert configmap_yaml("a", None, "x" * MAX_CONFIGMAP_BYTES)
    with pytest.raises(ExportError, match="at most 1048576"):
        configmap_yaml("a", None, "x" * (MAX_CONFIGMAP_BYTES - 1) + "ä")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--configmap", "No_Name"], "--configmap No_Name"),
        (["--configmap", "a", "--namespace", "No_Name"], "--namespace No_Name"),
        (["--namespace", "a"], "name one with --configmap"),
        (["--buckets", "a"], "--buckets a"),
        (["--buckets", "64,32"], "ascending"),
        (["--delimiter", "ab"], "one character"),
        (["--count", "0"], "--count"),
        (["--count", "10001"], "--count"),
        (["--column", "[body]"], "[body]"),
        (["--tokenizer", "SOURCE"], "not a usable tokenizer"),
        (["--label-column", "kind"], "no line has a kind"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused_in_one_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    path = source(tmp_path, [{"text": "a"}])
    given_options = [str(path) if option == "SOURCE" else option for option in options]
    assert said in refused(run(path, "--out", tmp_path / "out.jsonl", *given_options))
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_that_exists_is_replaced_unasked_and_the_source_never(tmp_path: Path) -> None:
    path = source(tmp_path, [{"text": "a"}])
    out, manifest = tmp_path / "out.jsonl", tmp_path / "out.configmap.yaml"
    manifest.write_text("mine")
    assert "out.configmap.yaml exists" in refused(run(path, "--out", out, "--configmap", "a"))
    assert not out.exists()
    assert "the source itself" in refused(run(path, "--out", path, "--overwrite"))
    assert "is a directory" in refused(run(path, "--out", tmp_path, "--overwrite"))
    assert run(path, "--out", out, "--configmap", "a", "--overwrite").exit_code == 0
    assert manifest.read_text() != "mine"
    assert sorted(tmp_path.iterdir()) == sorted([path, out, manifest])


def test_who_may_read_the_set_is_the_umasks_business(tmp_path: Path) -> None:
    path = source(tmp_path, [{"text": "a"}])
    before = os.umask(0o077)
    try:
        assert run(path, "--out", tmp_path / "out.jsonl").exit_code == 0
    finally:
        os.umask(before)
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"text": " "}\n'])
def test_a_source_without_texts_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(content)
    assert "holds no text" in refused(run(path, "--out", tmp_path / "out.jsonl"))


def test_a_path_with_brackets_is_told_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "[/red]in[b].txt"
    path.mkdir(parents=True)
    path = path / "a[b].jsonl"
    path.write_text("no\n")
    assert "a[b].jsonl: 1 line" in refused(run(path, "--out", tmp_path / "out.jsonl"))
