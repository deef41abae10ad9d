"""Reading sample texts from plain text, CSV or JSON lines: streamed, and every bad line named by its number."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from numaserve_models.errors import ExportError

MAX_CHARACTERS = 200_000
"""Longest text a gate accepts (numaserve_operator.gates.samples.MAX_CHARACTERS; a test holds them equal)."""
MAX_LINE_BYTES = 8 * MAX_CHARACTERS
"""Longest line kept in memory: a text of escapes and some labels fit."""
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
    JSONL = "jsonl"


_SUFFIXES = {
    ".txt": Format.TXT,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A text and where it stands: ``line`` counts from 1, ``index`` counts records from 0.

    ``relevant`` names other samples by their ``id`` or their ``index``; ``label`` is the file's own value, or None.
    """

    text: str
    line: int
    index: int
    id: str | None = None
    label: Any = None
    relevant: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the fields to read. A name the user gave must be there; the usual ones are read where they are."""

    text: str = "text"
    label: str | None = None
    relevant: str | None = None
    id: str | None = None

    def optional(self) -> dict[str, str]:
        """Field by what it holds."""
        return {"label": self.label or "label", "relevant": self.relevant or "relevant", "id": self.id or "id"}

    def asked(self) -> list[str]:
        """Names the user gave beside the text's."""
        return [name for name in (self.label, self.relevant, self.id) if name]


class _Bad(Exception):
    """What is wrong with one line."""


@dataclass
class Reader:
    """The samples of one file, read once by iterating.

    A line that cannot be a sample is skipped and counted in ``skipped`` when ``skip`` is set. Otherwise the end of the
    file raises ExportError with every kind of fault and the lines where it stands.
    """

    path: Path
    format: Format | None = None
    columns: Columns = field(default_factory=Columns)
    delimiter: str | None = None
    skip: bool = False
    skipped: Counter[str] = field(default_factory=Counter)
    records: int = 0
    _lines: dict[str, list[int]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def again(self) -> Reader:
        """A reader of the same file that has counted nothing yet."""
        return Reader(self.path, self.format, self.columns, self.delimiter, self.skip)

    def __iter__(self) -> Iterator[Sample]:
        kind = self.format or _format_of(self.path)
        records = {Format.TXT: self._plain, Format.CSV: self._csv, Format.JSONL: self._jsonl}[kind]
        with self.path.open("rb") as stream:
            _refuse_utf16(stream, self.path)
            for line, fields in records(stream):
                sample = self._sample(line, fields)
                if sample:
                    yield sample
        self._finish()

    def _sample(self, line: int, fields: Fields | _Bad) -> Sample | None:
        index, self.records = self.records, self.records + 1
        try:
            if isinstance(fields, _Bad):
                raise fields
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
            )
        except _Bad as fault:
            self._fault(line, str(fault))
            return None

    def _fault(self, line: int, what: str) -> None:
        self.skipped[what] += 1
        lines = self._lines.setdefault(what, [])
        if len(lines) < SHOWN_LINES:
            lines.append(line)

    def faults(self) -> str:
        """Every kind of fault with its first lines; empty when there was none."""
        return "; ".join(f"{what} ({_numbers(self._lines[what], count)})" for what, count in self.skipped.items())

    def _finish(self) -> None:
        if self.skipped and not self.skip:
            total = self.skipped.total()
            count = "1 line cannot be a sample" if total == 1 else f"{total} lines cannot be samples"
            raise ExportError(
                f"{self.path}: {count}: {self.faults()}. Correct them, or leave them out with --skip-invalid"
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
        delimiter = self.delimiter or ("\t" if self.path.suffix == ".tsv" else ",")
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
                yield begin, _Bad(f"not CSV: {error}")
                continue
            yield begin, _row(header, row)

    def _header(self, rows: Any) -> list[str]:
        try:
            header = [name.strip() for name in next(rows)]
        except (StopIteration, csv.Error) as error:
            raise ExportError(
                f"{self.path} has no header line: write the columns' names into the first line"
            ) from error
        for name in [self.columns.text, *self.columns.asked()]:
            if name not in header:
                found = ", ".join(header)
                raise ExportError(
                    f"{self.path} has no column {name}, it has: {found}. Name the texts' one with --column, or another --delimiter"
                )
        return header


def _format_of(path: Path) -> Format:
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise ExportError(f"{path} has no known suffix ({', '.join(_SUFFIXES)}): say what it is with --format")
    return found


def _refuse_utf16(stream: IO[bytes], path: Path) -> None:
    begin = stream.read(3)
    if begin[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ExportError(f"{path} is UTF-16: save it as UTF-8")
    stream.seek(3 if begin == b"\xef\xbb\xbf" else 0)


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


def _row(header: list[str], row: list[str]) -> Fields | _Bad:
    if not row:
        return _Bad("empty")
    if any(_TOO_LONG in cell for cell in row):
        return _Bad(TOO_LONG)
    if any(_UNDECODED.search(cell) for cell in row):
        return _Bad("invalid UTF-8")
    if len(row) != len(header):
        return _Bad(f"{len(row)} columns instead of {len(header)}")
    return dict(zip(header, row, strict=True))


def _object(line: str) -> Fields | _Bad:
    if not line.strip():
        return _Bad("empty")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return _Bad("no JSON")
    return found if isinstance(found, dict) else _Bad("no JSON object")


def _text(value: object, column: str) -> str:
    """A text that a tokenizer and a gate accept."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _Bad("empty" if value is not None else f"without the field {column} (--column names it)")
    if not isinstance(value, str):
        raise _Bad(f"{column} is no text")
    if _SURROGATE.search(value):
        raise _Bad("a lone surrogate")
    if "\0" in value:
        raise _Bad("a NUL character")
    if len(value) > MAX_CHARACTERS:
        raise _Bad(f"longer than {MAX_CHARACTERS} characters")
    return value


def _id(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _Bad("id is neither text nor number")
    return _clean(str(value), "id")


def _label(value: object) -> object:
    """Whatever the file has: a class, several, or entities with offsets; only broken text is refused."""
    _clean(json.dumps(value, ensure_ascii=False), "label")
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
