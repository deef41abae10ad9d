"""Reading sample texts: formats, and every line that is none named by its number."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from numaserve_models.errors import ExportError
from numaserve_models.samples.read import MAX_CHARACTERS, MAX_LINE_BYTES, Columns, Format, Reader, Sample
from numaserve_operator.gates import samples as gate


def reader(tmp_path: Path, content: str | bytes, name: str = "a.jsonl", **options: Any) -> Reader:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Reader(path, **options)


def texts(found: Reader) -> list[str]:
    return [sample.text for sample in found]


def refused(found: Reader) -> str:
    with pytest.raises(ExportError) as error:
        list(found)
    return str(error.value)


def test_limits_are_the_gates() -> None:
    assert MAX_CHARACTERS == gate.MAX_CHARACTERS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "one, two\nthree\tfour\n"),
        ("a.csv", 'text,n\n"one, two",1\nthree\tfour,2\n'),
        ("a.tsv", "n\ttext\n1\tone, two\n2\t\"three\tfour\"\n"),
        ("A.TSV", "n\ttext\n1\tone, two\n2\t\"three\tfour\"\n"),
        ("a.jsonl", '{"text": "one, two"}\n{"text": "three\\tfour"}\n'),
        ("a.ndjson", '{"text": "one, two"}\r\n{"text": "three\\tfour"}'),
        ("bom.txt", "\ufeffone, two\r\nthree\tfour\r\n"),
        ("bom.csv", "\ufefftext\n\"one, two\"\nthree\tfour\n"),
    ],
)  # fmt: skip
def test_every_format_says_the_same(tmp_path: Path, name: str, content: str) -> None:
    assert texts(reader(tmp_path, content, name)) == ["one, two", "three\tfour"]


def test_a_format_can_be_named(tmp_path: Path) -> None:
    assert "suffix" in refused(reader(tmp_path, "a\n", "a.log"))
    assert texts(reader(tmp_path, "a\n", "a.log", format=Format.TXT)) == ["a"]
    assert texts(reader(tmp_path, "text\tn\na, b\t1\n", "a.log", format=Format.TSV)) == ["a, b"]
    assert texts(reader(tmp_path, "text;n\na, b;1\n", "a.csv", delimiter=";")) == ["a, b"]


def test_labels_relevance_ids_and_queries_are_taken_along(tmp_path: Path) -> None:
    line = '{"body": "t", "kind": ["a", 1], "good": [7, "x"], "nr": 3, "asked": "q"}\n'
    columns = Columns("body", "kind", "good", "nr", "asked")
    assert list(reader(tmp_path, line, columns=columns)) == [Sample("t", 1, 0, "3", ["a", 1], ("7", "x"), "q")]
    rows = "text,label,relevant,id,query\nt,billing,7; x|7,3,q\n"
    assert list(reader(tmp_path, rows, "a.csv")) == [Sample("t", 2, 0, "3", "billing", ("7", "x"), "q")]


def test_the_column_of_texts_is_not_a_label_too(tmp_path: Path) -> None:
    assert list(reader(tmp_path, "label\nt\n", "a.csv", columns=Columns("label"))) == [Sample("t", 2, 0)]


def test_a_falsy_label_is_one_and_an_empty_one_is_none(tmp_path: Path) -> None:
    found = reader(tmp_path, '{"text": "a", "label": 0}\n{"text": "b", "label": false}\n{"text": "c", "label": ""}\n')
    assert [sample.label for sample in found] == [0, False, None]


def test_a_text_of_a_csv_goes_on_over_lines_and_the_next_keeps_its_number(tmp_path: Path) -> None:
    found = list(reader(tmp_path, 'text\n"a\nb"\nc\n', "a.csv"))
    assert [(sample.text, sample.line, sample.index) for sample in found] == [("a\nb", 2, 0), ("c", 4, 1)]


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.txt", "one\n\n \t\ntwo\n", "2, 3"),
        ("a.jsonl", '{"text": "one"}\n\n{"text": " "}\n{"text": "two"}\n', "2, 3"),
        ("a.csv", 'text,n\none,1\n\n" ",2\ntwo,3\n', "3, 4"),
    ],
)  # fmt: skip
def test_empty_lines_are_passed_over_and_told(tmp_path: Path, name: str, content: str, lines: str) -> None:
    found = reader(tmp_path, content, name)
    assert texts(found) == ["one", "two"]
    assert found.faults() == f"empty (lines {lines})"


def test_blank_lines_are_no_records_and_bad_ones_are(tmp_path: Path) -> None:
    """Relevance by index must mean what the tool that wrote the file meant."""
    found = list(reader(tmp_path, '\n{"text": "a"}\n\n{"text": 1}\n{"text": "b"}\n', skip=True))
    assert [(sample.text, sample.index) for sample in found] == [("a", 0), ("b", 2)]


@pytest.mark.parametrize("text", ["", " ", "\n", "\u200b", "\ufeff \u2060", "\x01\u3000"])
def test_a_text_that_nobody_sees_is_empty(tmp_path: Path, text: str) -> None:
    """A tokenizer may make nothing of it, and then the answer has no direction or is NaN, alone or in a batch."""
    found = reader(tmp_path, "".join(json.dumps({"text": t}) + "\n" for t in ("good", text, "a")))
    assert texts(found) == ["good", "a"]
    assert found.faults() == "empty (line 2)"


@pytest.mark.parametrize("text", ["a", "42", "\u0301", "🙂", "\U0001fae8\u200d", ".", "\u200bx"])
def test_a_short_text_is_one(tmp_path: Path, text: str) -> None:
    assert texts(reader(tmp_path, json.dumps({"text": text}) + "\n")) == [text]


BAD = [
    ("a.jsonl", b'{"text": "\xff"}', "invalid UTF-8"),
    ("a.txt", b"caf\xe9", "invalid UTF-8"),
    ("a.csv", b"caf\xe9", "invalid UTF-8"),
    ("a.jsonl", b'{"text": "a"', "no JSON"),
    ("a.jsonl", b"[" * 100_000, "no JSON"),
    ("a.jsonl", b'["a"]', "no JSON object"),
    ("a.jsonl", b'{"texts": "a"}', "without the field text"),
    ("a.jsonl", b'{"text": 7}', "text is no text"),
    ("a.jsonl", b'{"text": "\\ud800"}', "a lone surrogate"),
    ("a.jsonl", b'{"text": "\\u0000"}', "a NUL character"),
    ("a.txt", b"a\0b", "a NUL character"),
    ("a.txt", b"\0", "a NUL character"),
    ("a.jsonl", b'{"text": "\\u0000a"}', "a NUL character"),
    ("a.jsonl", b'{"text": "a\\udc00\\ud800b"}', "a lone surrogate"),
    ("a.txt", b"x" * (MAX_CHARACTERS + 1), f"longer than {MAX_CHARACTERS} characters"),
    ("a.txt", b"x" * (MAX_LINE_BYTES * 2 + 3), f"longer than {MAX_LINE_BYTES} bytes"),
    ("a.csv", b"x" * (MAX_LINE_BYTES * 2 + 3), f"longer than {MAX_LINE_BYTES} bytes"),
    ("a.jsonl", b'{"text": "a", "id": [1]}', "id is neither text nor number"),
    ("a.jsonl", b'{"text": "a", "id": true}', "id is neither text nor number"),
    ("a.jsonl", b'{"text": "a", "label": NaN}', "label is no finite number"),
    ("a.jsonl", b'{"text": "a", "label": "\\ud800"}', "label is no Unicode text"),
    ("a.jsonl", b'{"text": "a", "relevant": {"b": 1}}', "relevant is no list"),
    ("a.jsonl", b'{"text": "a", "relevant": "[1"}', "relevant is no list"),
    ("a.jsonl", b'{"text": "a", "query": 1}', "query is no text"),
    ("a.csv", b"a,b", "2 columns instead of 1"),
    ("a.csv", b'"a"b', "not CSV"),
    ("a.csv", b"a\rb", "a carriage return outside of quotes"),
]


@pytest.mark.parametrize(("name", "line", "what"), BAD)
def test_a_bad_line_is_refused_by_number_or_skipped_and_counted(
    tmp_path: Path, name: str, line: bytes, what: str
) -> None:
    good = b'{"text": "good"}' if name == "a.jsonl" else b"good"
    header = b"text\n" if name == "a.csv" else b""
    content = header + good + b"\n" + line + b"\n" + good + b"\n"
    number = 2 + bool(header)
    said = refused(reader(tmp_path, content, name))
    assert what in said
    assert f"(line {number})" in said
    assert "--skip-invalid" in said
    said.encode()  # prints anywhere
    skipping = reader(tmp_path, content, name, skip=True)
    assert texts(skipping) == ["good", "good"]
    assert skipping.skipped.total() == 1


def test_many_bad_lines_are_named_by_the_first_ones(tmp_path: Path) -> None:
    said = refused(reader(tmp_path, "x\n" * 9 + '{"text": "a"}\n{"text": 1}\n'))
    assert "10 lines cannot be samples" in said
    assert "no JSON (lines 1, 2, 3, 4, 5 … 9 in all); text is no text (line 11)" in said


@pytest.mark.parametrize(
    "content", ["text\nä\n".encode("utf-16-le"), "text\nä\n".encode("utf-16"), "a".encode("utf-16-be")]
)
def test_utf16_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "UTF-16" in refused(reader(tmp_path, content, "a.txt")) or "NUL" in refused(
        reader(tmp_path, content, "a.txt")
    )


@pytest.mark.parametrize(
    ("content", "columns", "said"),
    [
        (b"", Columns(), "has no header line"),
        (b"body,n\na,1\n", Columns(), "no column text, it has: body, n"),
        (b"text\na\n", Columns(label="kind"), "no column kind"),
        (b"gr\xf6\xdfe,text\n1,a\n", Columns(), "not UTF-8"),
        (b"text\rone\rtwo\r", Columns(), "a carriage return"),
        (b"text,text\na,b\n", Columns(), "two columns text"),
    ],
)  # fmt: skip
def test_a_header_that_does_not_fit_is_refused(tmp_path: Path, content: bytes, columns: Columns, said: str) -> None:
    found = refused(reader(tmp_path, content, "a.csv", columns=columns))
    assert said in found
    found.encode()


def test_a_field_the_user_names_must_be_somewhere(tmp_path: Path) -> None:
    assert "no line has a kind" in refused(reader(tmp_path, '{"text": "a"}\n', columns=Columns(label="kind")))


def test_an_open_quote_does_not_take_the_rest_of_a_file_in(tmp_path: Path) -> None:
    body = 'text\n"open\n' + ("x" * 999 + "\n") * 4000 + "last\n"
    found = reader(tmp_path, body, "a.csv", skip=True)
    assert "last" in texts(found)
    assert any("not CSV" in what for what in found.skipped)


def test_a_pipe_is_read_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"\xef\xbb\xbfone\ntwo\n",))
    writer.start()
    assert texts(Reader(path, Format.TXT)) == ["one", "two"]
    writer.join()
