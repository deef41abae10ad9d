"""The texts an artifact carries when nobody gives any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numaserve_api.config import Output, Task
from numaserve_models.errors import ExportError
from numaserve_models.samples import sample_texts, samples_digest
from numaserve_models.samples.builtin import LONG, TOKENS_PER_WORD
from numaserve_models.texts import default_samples, inputs, read_samples


def test_the_usual_set_is_the_same_on_every_machine() -> None:
    assert samples_digest(sample_texts()) == "sha256:c4689d3cd3ff1609abf4b4ea1a8309c76887d061423f3e24f0f9ea8064a44ffe"
    assert sample_texts(max_tokens=16) == sample_texts(max_tokens=128) == sample_texts()


@pytest.mark.parametrize("count", [64, 96, 384])
def test_texts_are_distinct_and_as_many_as_asked(count: int) -> None:
    texts = sample_texts(count)
    assert len(texts) == len(set(texts)) == count
    longer = sample_texts(count, max_tokens=8192)
    assert longer[:count] == texts
    assert len(longer) == len(set(longer)) == count + sum(many for _, many in LONG)


@pytest.mark.parametrize(("window", "longest"), [(129, 55), (256, 200), (512, 400), (2048, 1800), (8192, 7500)])
def test_a_window_gets_the_documents_it_holds(window: int, longest: int) -> None:
    words = [len(text.split()) for text in sample_texts(64, max_tokens=window)[64:]]
    assert max(words) == int(longest / TOKENS_PER_WORD)


@pytest.mark.parametrize("count", [64, 384])
def test_every_bucket_up_to_the_window_has_texts_at_one_to_two_tokens_a_word(count: int) -> None:
    words = [len(text.split()) for text in sample_texts(count, max_tokens=8192)]
    edges = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    for below, edge in zip((0, *edges), edges, strict=False):
        assert any(below < 1.2 * n <= edge for n in words), f"{below + 1} to {edge} tokens"


def test_documents_differ_in_more_than_length() -> None:
    first, second = sample_texts(64, max_tokens=512)[-2:]
    assert abs(len(first.split()) - len(second.split())) <= 1
    assert first.split(". ")[:3] != second.split(". ")[:3]


def test_defaults_are_what_the_export_reads_back(tmp_path: Path) -> None:
    samples = default_samples(Task.RERANK, Output.POOLED, 512)
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples), encoding="utf-8")
    assert read_samples(path) == samples
    assert all(isinstance(pair, tuple) and all(pair) for pair in inputs(samples, Task.RERANK))


def test_a_line_separator_in_a_text_ends_no_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    texts = ["one\u2028two", "a\x85b", "c\x1cd", "e\x0cf"]
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    path.write_text("\ufeff" + lines + "\n", encoding="utf-8")
    assert [sample["text"] for sample in read_samples(path)] == texts


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"text": "a"}\n{"text": "\\ud800"}\n', "line 2 has a lone surrogate"),
        (b'{"text": "a"}\n\n{"text": \n', "line 3 is not JSON"),
        (b'{"text": "a"}\n[1]\n', "line 2 has no text"),
        (b'{"text": " "}\n', "line 1 has no text"),
        (b"\n\n", "holds no samples"),
        (b'{"text": "\xff"}\n', "UTF-8"),
    ],
)  # fmt: skip
def test_the_export_names_the_line_it_cannot_read(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(content)
    with pytest.raises(ExportError, match=said):
        read_samples(path)
