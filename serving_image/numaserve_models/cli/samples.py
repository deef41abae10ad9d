"""`numaserve models samples`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from numaserve_models.cli.common import console, guarded, progress
from numaserve_models.samples.read import Columns, Format, Reader, Sample
from numaserve_models.samples.select import MAX_SAMPLES

if TYPE_CHECKING:
    from numaserve_models.samples.lengths import Measure
    from numaserve_models.samples.relate import Related
    from numaserve_models.samples.select import Selection

LINES_A_STEP = 100_000
_FILE = {"exists": True, "dir_okay": False}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(samples)


def samples(
    source: Annotated[
        Path, typer.Argument(help="Texts: .txt one a line, .csv, .tsv, or .jsonl; read in one pass.", **_FILE)
    ],
    out: Annotated[Path, typer.Option(help="File to write, JSON lines with `text`.")],
    count: Annotated[int, typer.Option(min=1, max=MAX_SAMPLES, help="Samples to choose.")] = 300,
    artifact: Annotated[
        Path | None, typer.Option(help="Artifact whose tokenizer and buckets measure.", exists=True, file_okay=False)
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="tokenizer.json that measures.", **_FILE)] = None,
    buckets: Annotated[
        str | None, typer.Option(help="Upper edges of the length buckets in tokens, or characters without a tokenizer.")
    ] = None,
    column: Annotated[str, typer.Option(help="Column or field of the texts.")] = "text",
    label_column: Annotated[str | None, typer.Option(help="Of gold labels; `label` is read where it is.")] = None,
    relevant_column: Annotated[
        str | None, typer.Option(help="Of ids or indices of relevant samples; `relevant` is read where it is.")
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Of ids; `id` is read where it is.")] = None,
    query_column: Annotated[
        str | None, typer.Option(help="Of a cross-encoder's queries; `query` is read where it is.")
    ] = None,
    format_: Annotated[Format | None, typer.Option("--format", help="What the source is, whatever its suffix.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between columns: one character, or `tab`.")] = None,
    skip_invalid: Annotated[bool, typer.Option(help="Leave out and count lines that cannot be samples.")] = False,
    exact: Annotated[bool, typer.Option(help="Texts that differ in case or white space are no duplicates.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Another seed draws other samples.")] = 0,
    configmap: Annotated[str | None, typer.Option(help="Also write a ConfigMap of this name beside the file.")] = None,
    namespace: Annotated[str | None, typer.Option(help="Namespace of the ConfigMap.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files that exist.")] = False,
) -> None:
    """Choose a sample set for gates and calibration: distinct texts of every length, the same for the same seed."""
    columns = Columns(column, label_column, relevant_column, id_column, query_column)
    reader = Reader(source, format_, columns, _character(delimiter), skip_invalid)

    def work() -> Selection:
        _check(source, out, configmap, namespace, overwrite)
        measure = _measure(artifact, tokenizer, buckets)
        with progress("reading") as step:
            found = _select(reader, measure, count, seed, exact, step)
        _write(found, out, configmap, namespace)
        return found

    _tell(guarded(work), reader, out, configmap)


def _check(source: Path, out: Path, configmap: str | None, namespace: str | None, overwrite: bool) -> None:
    """Refuse before a long read what could not be written after it."""
    from numaserve_models.errors import ExportError
    from numaserve_models.samples.write import check_free, configmap_yaml

    if configmap is not None:
        configmap_yaml(configmap, namespace, "")
    elif namespace is not None:
        raise ExportError("--namespace is the ConfigMap's: name one with --configmap")
    check_free([out, _manifest(out)] if configmap else [out], source, overwrite)


def _character(delimiter: str | None) -> str | None:
    named = {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)
    if named is not None and len(named) != 1:
        raise typer.BadParameter("one character, or `tab`", param_hint="--delimiter")
    return named


def _measure(artifact: Path | None, tokenizer: Path | None, buckets: str | None) -> Measure:
    from numaserve_models.artifact import open_artifact
    from numaserve_models.errors import ExportError
    from numaserve_models.samples import lengths

    if artifact and tokenizer:
        raise ExportError("--artifact and --tokenizer both name a tokenizer: give one of them")
    try:
        edges = [int(edge) for edge in buckets.split(",")] if buckets else None
    except ValueError as error:
        raise ExportError(f"--buckets {buckets}: give lengths with commas between them such as 64,128,256") from error
    if artifact:
        opened = open_artifact(artifact)
        return lengths.tokens(opened.tokenizer, edges or opened.config.buckets)
    return lengths.tokens(tokenizer, edges) if tokenizer else lengths.characters(edges)


def _select(
    reader: Reader, measure: Measure, count: int, seed: int, exact: bool, step: Callable[[str], None]
) -> Selection:
    """Read in one pass; only where samples name each other everything is kept, which takes a second one."""
    from numaserve_models.errors import ExportError
    from numaserve_models.samples.select import select

    named_others = False

    def alone() -> Iterator[Sample]:
        nonlocal named_others
        for number, sample in enumerate(reader, 1):
            named_others |= bool(sample.relevant)
            if number % LINES_A_STEP == 0:
                step(f"{number} texts read")
            yield replace(sample, relevant=())

    found = select(alone(), measure, count, seed, exact)
    if named_others:
        related = _related(reader, exact)
        again = select(related.samples, measure, count, seed, exact, related.known)
        found = replace(again, duplicates=found.duplicates, conflicts=found.conflicts, unknown=len(related.unknown))
    if not found.samples:
        raise ExportError(f"{reader.path} holds no text that can be a sample")
    return found


def _related(reader: Reader, exact: bool) -> Related:
    from numaserve_models.errors import ExportError
    from numaserve_models.samples.relate import relate

    if not reader.path.is_file():
        raise ExportError(f"{reader.path} names relevant samples, which takes two passes: write it to a file first")
    related = relate(reader.again(), exact)
    if related.unknown and not reader.skip:
        line, name = related.unknown[0]
        raise ExportError(
            f"{reader.path} line {line} names {name} as relevant, and no usable sample has that id or index "
            f"({len(related.unknown)} such in all): correct it, or leave such names out with --skip-invalid"
        )
    return related


def _write(found: Selection, out: Path, configmap: str | None, namespace: str | None) -> None:
    from numaserve_models.samples.write import configmap_yaml, json_lines, write_whole

    lines = json_lines(found.samples)
    files = {out: lines}
    if configmap:
        files[_manifest(out)] = configmap_yaml(configmap, namespace, lines)
    write_whole(files)


def _manifest(out: Path) -> Path:
    return out.with_name(f"{out.stem}.configmap.yaml")


def _tell(found: Selection, reader: Reader, out: Path, configmap: str | None) -> None:
    """Words and tables to standard error, the digest to standard output."""
    from numaserve_models.samples import privacy
    from numaserve_models.samples.digest import samples_digest
    from numaserve_models.samples.select import bound_on_bad_share

    say = partial(console.print, soft_wrap=True)
    console.print(_table(found))
    for line in _shortcomings(found, reader):
        say(f"[yellow]![/] {escape(line)}")
    for suspicion in privacy.scan(found.samples):
        say(f"[yellow]! likely personal data[/] of {escape(str(reader.path))}: {escape(str(suspicion))}")
    count = len(found.samples)
    say(f"[green]✓[/] {escape(str(out))}: {count} samples{_extras(found)}")
    say(f"{count} samples without a failure bound the share of bad texts at {100 * bound_on_bad_share(count):.2g} %")
    for line in _usage(found, out, configmap):
        say(escape(line))
    typer.echo(samples_digest(sample.text for sample in found.samples))


def _table(found: Selection) -> Table:
    table = Table("length", "distinct texts", "wanted", "chosen", box=None, pad_edge=False)
    for stratum in found.strata:
        chosen = f"[yellow]{stratum.chosen}[/]" if stratum.short else str(stratum.chosen)
        table.add_row(stratum.name, str(stratum.available), str(stratum.wanted), chosen)
    return table


def _shortcomings(found: Selection, reader: Reader) -> list[str]:
    told = [
        f"not filled: {stratum.name} has {stratum.available} of {stratum.wanted} texts; the others take its place"
        for stratum in found.strata
        if stratum.short
    ]
    if reader.skipped:
        told.append(f"left out {reader.skipped.total()} of {reader.records} lines: {reader.faults()}")
    if found.duplicates:
        told.append(f"left out {found.duplicates} duplicates")
    if found.conflicts:
        told.append(f"{found.conflicts} texts come with different labels: the first label is kept")
    if found.unknown:
        told.append(f"left out {found.unknown} names of relevant samples that no usable sample has")
    if found.crowded_out:
        told.append(f"left out {found.crowded_out} samples whose relevant ones did not fit: raise --count to keep them")
    return told


def _extras(found: Selection) -> str:
    labels = [sample.label for sample in found.samples if sample.label is not None]
    classes = {label for label in labels if isinstance(label, (str, int))}
    related = sum(bool(sample.relevant) for sample in found.samples)
    parts = [f"{len(labels)} labelled" + (f" in {len(classes)} classes" if classes else "")] if labels else []
    parts += [f"{related} with relevant ones"] if related else []
    return "".join(f", {part}" for part in parts)


def _usage(found: Selection, out: Path, configmap: str | None) -> list[str]:
    from numaserve_models.samples.write import gate_digest, json_lines, too_large

    if configmap is None:
        return [
            too_large(json_lines(found.samples))
            or "use them in a gate: add --configmap NAME, or compare artifacts with `numaserve models compare --samples`"
        ]
    # Client-side apply copies the object into an annotation of at most 256 KiB.
    return [
        f"apply them:  kubectl apply --server-side -f {_manifest(out)}",
        f"name them:   spec.rollout.gates.samples: {{configMapRef: {{name: {configmap}}}}}",
        f"recognise them:  status.rollout.sampleDigest {gate_digest([sample.text for sample in found.samples])}",
    ]
