"""Reading sample texts from plain text, CSV, TSV or JSON lines: streamed, and every bad line named by its number."""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from numaserve_models.errors import ExportError

MAX_CHARACTERS = 200_000
"""Longest text a gate accepts (numaserve_operator.gates.samples.MAX_CHARACTERS; a test holds them equal)."""
MAX_LINE_BYTES = 8 * MAX_CHARACTERS
"""Longest line kept in memory: a text of escapes and some labels fit."""
EMPTY = "empty"
"""What is said of a line without text. It is no fault: it is passed over, counted and named."""
TOO_LONG = f"longer than {MAX_LINE_BYTES} bytes"
SHOWN_LINES = 5
_SEPARATORS = re.compile(r"[\s,;|]+")
_UNDECODED = re.compile("[\udc80-\udcff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOO_LONG = "\udfff\udffe"
"""Stands in a CSV for a line too long to be kept: decoding never makes it."""
Fields = dict[str, Any]


class Format(StrEnum):
    """How a file holds its texts."""

    TXT = "txt"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"


_SUFFIXES = {
    ".txt": Format.TXT,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A text and where it stands: ``line`` counts from 1, ``index`` counts records from 0, blank lines being none.

    ``relevant`` names other samples by their ``id`` or their ``index``; ``label`` is the file's own value, or None.
    ``query`` is what a cross-encoder reads before the text.
    """

    text: str
    line: int
    index: int
    id: str | None = None
    label: Any = None
    relevant: tuple[str, ...] = ()
    query: str | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the fields to read. A name the user gave must be there; the usual ones are read where they are."""

    text: str = "text"
    label: str | None = None
    relevant: str | None = None
    id: str | None = None
    query: str | None = None

    def optional(self) -> dict[str, str]:
        """Field by what it holds; the texts' own field is nothing else unless the user says so."""
        given = {"label": self.label, "relevant": self.relevant, "id": self.id, "query": self.query}
        return {what: name or what for what, name in given.items() if name or what != self.text}

    def asked(self) -> list[str]:
        """Names the user gave beside the text's."""
        return [name for name in (self.label, self.relevant, self.id, self.query) if name]


class _Bad(Exception):
    """What is wrong with one line."""


@dataclass
class Reader:
    """The samples of one file, read once by iterating.

    A line without text is passed over and counted in ``skipped``, and so is one that cannot be a sample when ``skip`` is
    set. Otherwise the end of the file raises ExportError with every kind of fault and the lines where it stands.
    ``records`` counts all lines, or the rows of a CSV.
    """

    path: Path
    format: Format | None = None
    columns: Columns = field(default_factory=Columns)
    delimiter: str | None = None
    skip: bool = False
    skipped: Counter[str] = field(default_factory=Counter)
    records: int = 0
    _index: int = 0
    _lines: dict[str, list[int]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def again(self) -> Reader:
        """A reader of the same file that has counted nothing yet."""
        return Reader(self.path, self.format, self.columns, self.delimiter, self.skip)

    def __iter__(self) -> Iterator[Sample]:
        kind = self._kind
        records = {Format.TXT: self._plain, Format.CSV: self._csv, Format.TSV: self._csv, Format.JSONL: self._jsonl}[
            kind
        ]
        with self.path.open("rb") as stream:
            _skip_bom(stream, self.path)
            for line, fields in records(stream):
                sample = self._sample(line, fields)
                if sample:
                    yield sample
        self._finish()

    @property
    def _kind(self) -> Format:
        return self.format or _format_of(self.path)

    def _sample(self, line: int, fields: Fields | _Bad) -> Sample | None:
        self.records += 1
        index = self._index
        try:
            if isinstance(fields, _Bad):
                self._index += str(fields) != EMPTY
                raise fields
            self._index += 1
            names = self.columns.optional()
            given = {what: fields[name] for what, name in names.items() if fields.get(name) not in (None, "")}
            self._seen.update(names[what] for what in given)
            return Sample(
                text=_text(fields.get(self.columns.text), self.columns.text),
                line=line,
                index=index,
                id=_id(given.get("id")),
                label=_label(given.get("label")),
                relevant=_relevant(given.get("relevant")),
                query=_text(given["query"], names["query"]) if "query" in given else None,
            )
        except _Bad as fault:
            self._fault(line, str(fault))
            return None

    def _fault(self, line: int, what: str) -> None:
        self.skipped[what] += 1
        lines = self._lines.setdefault(what, [])
        if len(lines) < SHOWN_LINES:
            lines.append(line)

    def faults(self, *besides: str) -> str:
        """Every kind of fault with its first lines, ``besides`` some; empty when there was none."""
        told = {what: count for what, count in self.skipped.items() if what not in besides}
        return "; ".join(f"{what} ({_numbers(self._lines[what], count)})" for what, count in told.items())

    def _finish(self) -> None:
        bad = self.skipped.total() - self.skipped[EMPTY]
        if bad and not self.skip:
            count = "1 line cannot be a sample" if bad == 1 else f"{bad} lines cannot be samples"
            raise ExportError(
                f"{self.path}: {count}: {self.faults(EMPTY)}. Correct them, or leave them out with --skip-invalid"
            )
        missing = [name for name in self.columns.asked() if name not in self._seen]
        if missing and self.records:
            raise ExportError(f"{self.path}: no line has a {missing[0]}: correct the option that names it")

    def _plain(self, stream: IO[bytes]) -> Iterator[tuple[int, Fields | _Bad]]:
        for number, line in _lines_of(stream):
            yield number, line if isinstance(line, _Bad) else {self.columns.text: line}

    def _jsonl(self, stream: IO[bytes]) -> Iterator[tuple[int, Fields | _Bad]]:
        for number, line in _lines_of(stream):
            yield number, line if isinstance(line, _Bad) else _object(line)

    def _csv(self, stream: IO[bytes]) -> Iterator[tuple[int, Fields | _Bad]]:
        csv.field_size_limit(MAX_LINE_BYTES)
        delimiter = self.delimiter or ("\t" if self._kind is Format.TSV else ",")
        rows = csv.reader(
            (_for_csv(line) for _, line in _lines_of(stream, keep_undecoded=True)), delimiter=delimiter, strict=True
        )
        header = self._header(rows)
        while True:
            begin = rows.line_num + 1
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield begin, _Bad(_not_csv(error))
                continue
            yield begin, _row(header, row)

    def _header(self, rows: Any) -> list[str]:
        try:
            header = [name.strip() for name in next(rows)]
        except StopIteration as error:
            raise ExportError(
                f"{self.path} has no header line: write the columns' names into the first line"
            ) from error
        except csv.Error as error:
            raise ExportError(f"{self.path} line 1, the columns' names, is {_not_csv(error)}") from error
        if any(_SURROGATE.search(name) for name in header):
            raise ExportError(f"{self.path} line 1, the columns' names, is not UTF-8 or too long: save it as UTF-8")
        for name in [self.columns.text, *self.columns.asked()]:
            if name not in header:
                found = ", ".join(header)
                raise ExportError(
                    f"{self.path} has no column {name}, it has: {found}. Name the texts' one with --column, or another --delimiter"
                )
        used = {self.columns.text, *self.columns.optional().values()}
        twice = [name for name, count in Counter(header).items() if count > 1 and name in used]
        if twice:
            raise ExportError(f"{self.path} has two columns {twice[0]}: give each a name of its own")
        return header


def _format_of(path: Path) -> Format:
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise ExportError(f"{path} has no known suffix ({', '.join(_SUFFIXES)}): say what it is with --format")
    return found


def _skip_bom(stream: BufferedReader, path: Path) -> None:
    """Go to the first character; a pipe cannot be wound back. Refuses UTF-16."""
    begin = stream.peek(3)[:3]
    if begin[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ExportError(f"{path} is UTF-16: save it as UTF-8")
    if begin == b"\xef\xbb\xbf":
        stream.read(3)


def _lines_of(stream: IO[bytes], keep_undecoded: bool = False) -> Iterator[tuple[int, str | _Bad]]:
    """(number, line without its end) of a file; never more than one line of MAX_LINE_BYTES is in memory."""
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(MAX_LINE_BYTES)
            yield number, _Bad(TOO_LONG)
            continue
        line = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
        # A CSV text may go on over several lines: there each field is looked at, not each line.
        yield number, _Bad("invalid UTF-8") if _UNDECODED.search(line) and not keep_undecoded else line


def _for_csv(line: str | _Bad) -> str:
    return (_TOO_LONG if isinstance(line, _Bad) else line) + "\n"


def _not_csv(error: csv.Error) -> str:
    what = str(error)
    if what.startswith("new-line character"):  # the rest of that message is for programmers
        what = "a carriage return outside of quotes"
    return f"not CSV: {what}"


def _row(header: list[str], row: list[str]) -> Fields | _Bad:
    if not row:
        return _Bad(EMPTY)
    if any(_TOO_LONG in cell for cell in row):
        return _Bad(TOO_LONG)
    if any(_UNDECODED.search(cell) for cell in row):
        return _Bad("invalid UTF-8")
    if len(row) != len(header):
        return _Bad(f"{len(row)} columns instead of {len(header)}")
    return dict(zip(header, row, strict=True))


def _object(line: str) -> Fields | _Bad:
    if not line.strip():
        return _Bad(EMPTY)
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return _Bad("no JSON")
    return found if isinstance(found, dict) else _Bad("no JSON object")


def _text(value: object, column: str) -> str:
    """A text that a tokenizer and a gate accept."""
    if value is None:
        raise _Bad(f"without the field {column} (--column names it)")
    if not isinstance(value, str):
        raise _Bad(f"{column} is no text")
    if _SURROGATE.search(value):
        raise _Bad("a lone surrogate")
    if "\0" in value:
        raise _Bad("a NUL character")
    if all(map(_invisible, value)):
        raise _Bad(EMPTY)
    if len(value) > MAX_CHARACTERS:
        raise _Bad(f"longer than {MAX_CHARACTERS} characters")
    return value


def _invisible(character: str) -> bool:
    """White space, controls and marks such as a zero-width space: a tokenizer may make no token of them."""
    return character.isspace() or unicodedata.category(character) in ("Cc", "Cf")


def _id(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _Bad("id is neither text nor number")
    return _clean(str(value), "id")


def _label(value: object) -> object:
    """Whatever the file has: a class, several, or entities with offsets; only broken text is refused."""
    try:
        _clean(json.dumps(value, ensure_ascii=False, allow_nan=False), "label")
    except ValueError as error:
        raise _Bad("label is no finite number") from error
    return value


def _relevant(value: object) -> tuple[str, ...]:
    """A list, or text that holds one as JSON or separated by blanks, commas, semicolons or bars."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = _listed(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list) or any(isinstance(v, bool) or not isinstance(v, (str, int)) for v in value):
        raise _Bad("relevant is no list of ids or indices")
    return tuple(dict.fromkeys(_clean(str(v), "relevant") for v in value))


def _listed(value: str) -> object:
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return None
    return [part for part in _SEPARATORS.split(value) if part]


def _clean(value: str, what: str) -> str:
    if _SURROGATE.search(value) or "\0" in value:
        raise _Bad(f"{what} is no Unicode text")
    return value


def _numbers(lines: list[int], count: int) -> str:
    word = "line" if count == 1 else "lines"
    more = f" … {count} in all" if count > len(lines) else ""
    return f"{word} {', '.join(map(str, lines))}{more}"
