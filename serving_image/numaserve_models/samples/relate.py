"""Samples that name others as relevant: every name resolved, duplicates made one. Pure.

What names each other is chosen together, so all of it is in memory here, unlike in the plain draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from numaserve_models.errors import ExportError
from numaserve_models.samples.read import Sample
from numaserve_models.samples.select import identity


@dataclass(frozen=True, slots=True)
class Related:
    """Distinct samples in the source's order, whose relevance names keys of ``known`` only.

    ``unknown`` holds line and name of what no usable sample has.
    """

    samples: tuple[Sample, ...]
    known: Mapping[str, Sample]
    unknown: tuple[tuple[int, str], ...]


def relate(samples: Iterable[Sample], exact: bool = False) -> Related:
    """Samples go by id as soon as one has an id, by index otherwise. Raises ExportError for an id of two texts.

    Duplicates become the first of them, with the first id that any of them has and the relevance of all: one pair a
    line is a usual form of relevance.
    """
    everything = list(samples)
    alike: dict[str, list[Sample]] = {}
    for sample in everything:
        alike.setdefault(identity(sample, exact), []).append(sample)
    named = any(sample.id is not None for sample in everything)
    canonical = _canonical(alike.values(), named)
    known, merged, unknown = {}, [], []
    for group in alike.values():
        relevant: dict[str, None] = {}
        for sample in group:
            for name in sample.relevant:
                if name in canonical:
                    relevant[canonical[name]] = None
                else:
                    unknown.append((sample.line, name))
        one = replace(group[0], id=_first_id(group), relevant=tuple(relevant))
        merged.append(one)
        known[_name(one, named)] = one
    return Related(tuple(merged), known, tuple(sorted(unknown)))


def _canonical(groups: Iterable[Sequence[Sample]], named: bool) -> dict[str, str]:
    """The name that a group of duplicates goes by, by each name its members have."""
    found: dict[str, str] = {}
    first: dict[str, tuple[int, Sample]] = {}
    for number, group in enumerate(groups):
        name = _name(replace(group[0], id=_first_id(group)), named)
        for sample in group:
            if named and sample.id is None:
                continue
            own = str(sample.id) if named else str(sample.index)
            where, before = first.setdefault(own, (number, sample))
            if where != number:
                raise ExportError(
                    f"id {own} is given to two texts, in lines {before.line} and {sample.line}: make ids distinct"
                )
            found[own] = name
    return found


def _first_id(group: Sequence[Sample]) -> str | None:
    return next((sample.id for sample in group if sample.id is not None), None)


def _name(sample: Sample, named: bool) -> str:
    """By id; a sample that has none where others do is named by nobody, and its key here can be no id."""
    if not named:
        return str(sample.index)
    return sample.id if sample.id is not None else f"\0{sample.index}"
