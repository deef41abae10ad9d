"""Choosing a sample set: without duplicates, every length alike, the same for the same seed. Pure.

A text's place in the draw is a hash of the seed and its normalised form. So the choice depends neither on the order of
the file nor on how often a text stands in it, and one pass over a file of any size keeps only what may be chosen.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from numaserve_models.errors import ExportError
from numaserve_models.samples.lengths import Measure
from numaserve_models.samples.read import Sample

MAX_SAMPLES = 10_000
"""Most samples a gate compares (numaserve_operator.gates.samples.MAX_SAMPLES; a test holds them equal)."""
CHUNK = 256
"""Texts tokenised at once."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """One length bucket: its name, distinct texts in the source, how many were wanted and how many were chosen."""

    name: str
    available: int
    wanted: int
    chosen: int

    @property
    def short(self) -> bool:
        """Whether the source has too few texts of this length."""
        return self.available < self.wanted


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen samples in the source's order, the buckets they come from, and what was left out."""

    samples: tuple[Sample, ...]
    strata: tuple[Stratum, ...]
    duplicates: int
    crowded_out: int
    """Samples left out because the ones relevant to them did not fit any more."""


@dataclass
class _Pool:
    """The first ``size`` distinct texts of a bucket in the order of the draw."""

    size: int
    available: int = 0
    heap: list[tuple[int, int, Sample]] = field(default_factory=list)

    def offer(self, rank: int, sample: Sample) -> None:
        self.available += 1
        entry = (-rank, -sample.index, sample)
        if len(self.heap) < self.size:
            heapq.heappush(self.heap, entry)
        else:
            heapq.heappushpop(self.heap, entry)

    def drawn(self) -> list[Sample]:
        """In the order of the draw."""
        return [sample for _, _, sample in sorted(self.heap, key=lambda e: (-e[0], -e[1]))]


def normalised(text: str) -> str:
    """A text without differences in case and white space."""
    return " ".join(text.split()).casefold()


@dataclass
class _Draw:
    """Ranks of texts, and which sample was the first to have each."""

    seed: int
    exact: bool
    known: Mapping[str, Sample]
    first: dict[int, int] = field(default_factory=dict)

    def rank(self, text: str) -> int:
        """Place of a text in the draw; duplicates share it."""
        key = text if self.exact else normalised(text)
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, key=str(self.seed).encode())
        return int.from_bytes(digest.digest(), "big")

    def relevant(self, sample: Sample) -> list[int]:
        """Indices of the samples relevant to one: each itself, or the first that has its text."""
        for name in sample.relevant:
            if name not in self.known:
                raise ExportError(
                    f"line {sample.line} names {name} as relevant, and no usable sample has that id or index"
                )
        return [self.first[self.rank(self.known[name].text)] for name in sample.relevant]


def select(
    samples: Iterable[Sample], measure: Measure, count: int, seed: int = 0, exact: bool = False,
    known: Mapping[str, Sample] | None = None,
) -> Selection:  # fmt: skip
    """At most ``count`` samples, equally many of each length bucket as far as there are any.

    ``exact`` takes texts for duplicates only when they are equal to the last character. ``known`` finds samples by id
    or index and is needed where samples name relevant ones, which are chosen along with them.
    """
    if not 1 <= count <= MAX_SAMPLES:
        raise ExportError(f"{count} samples: a gate compares 1 to {MAX_SAMPLES}")
    draw = _Draw(seed, exact, known or {})
    pools = [_Pool(count) for _ in range(len(measure.edges) + 1)]
    duplicates = sum(_offer(chunk, draw, pools, measure) for chunk in _chunks(samples))
    available = [pool.available for pool in pools]
    order = _turns([pool.drawn() for pool in pools], quotas(available, count))
    chosen, crowded_out = _with_relevant(order, count, draw)
    wanted = quotas([math.inf] * len(measure.edges) + [available[-1]], count)
    return Selection(_renumbered(chosen, draw), _strata(available, wanted, chosen, measure), duplicates, crowded_out)


def _offer(chunk: Sequence[Sample], draw: _Draw, pools: Sequence[_Pool], measure: Measure) -> int:
    """Put the new texts of a chunk into the pools of their lengths; how many were duplicates."""
    fresh = []
    for sample in chunk:
        rank = draw.rank(sample.text)
        if draw.first.setdefault(rank, sample.index) == sample.index:
            fresh.append((rank, sample))
    for (rank, sample), length in zip(fresh, measure.lengths([s.text for _, s in fresh]), strict=True):
        pools[bisect_left(measure.edges, length)].offer(rank, sample)
    return len(chunk) - len(fresh)


def known_by_name(samples: Iterable[Sample]) -> dict[str, Sample]:
    """Samples by what others call them: by id as soon as one has an id, by index otherwise. Raises ExportError."""
    everything = list(samples)
    named = [sample for sample in everything if sample.id is not None]
    if not named:
        return {str(sample.index): sample for sample in everything}
    known: dict[str, Sample] = {}
    for sample in named:
        first = known.setdefault(str(sample.id), sample)
        if first is not sample:
            raise ExportError(
                f"id {sample.id} is given twice, in lines {first.line} and {sample.line}: make ids distinct"
            )
    return known


def quotas(available: Sequence[float], count: int) -> list[int]:
    """How many to take of each bucket: equally many, what one bucket lacks being spread over the others."""
    taken = [0] * len(available)
    left = count
    while left > 0:
        open_ = [i for i, have in enumerate(available) if taken[i] < have]
        if not open_:
            break
        share = max(1, left // len(open_))
        for i in open_[: left if share == 1 else None]:
            more = int(min(share, available[i] - taken[i], left))
            taken[i] += more
            left -= more
    return taken


def bound_on_bad_share(count: int, confidence: float = 0.95) -> float:
    """Largest share of bad texts that ``count`` samples without a failure leave possible: 1 - (1 - confidence)^(1/n).

    The gates tell the same number (numaserve_operator.gates.compare.bound_on_bad_share; a test holds them equal).
    """
    return 1.0 - math.pow(1.0 - confidence, 1.0 / count)


def _chunks(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    iterator = iter(samples)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield chunk


def _turns(drawn: Sequence[list[Sample]], given: Sequence[int]) -> list[Sample]:
    """The chosen of every bucket in turn, so that relevant samples crowd out no single length."""
    rows = itertools.zip_longest(*(pool[:n] for pool, n in zip(drawn, given, strict=True)))
    return [sample for row in rows for sample in row if sample is not None]


def _with_relevant(order: Sequence[Sample], count: int, draw: _Draw) -> tuple[list[Sample], int]:
    """Samples in order, each together with the ones relevant to it or not at all; and how many did not fit."""
    by_index = {sample.index: sample for sample in draw.known.values()}
    chosen: dict[int, Sample] = {}
    crowded_out = 0
    for sample in order:
        group = {sample.index: sample, **{index: by_index[index] for index in draw.relevant(sample)}}
        if len(chosen.keys() | group.keys()) > count:
            crowded_out += sample.index not in chosen
        else:
            chosen.update(group)
    return list(chosen.values()), crowded_out


def _renumbered(chosen: Sequence[Sample], draw: _Draw) -> tuple[Sample, ...]:
    """In the source's order, relevance told by id where there is one and by the place in this set otherwise.

    What a relevant sample brought along may name others that are not here: those are left out of its relevance.
    """
    ordered = sorted(chosen, key=lambda sample: sample.index)
    place = {sample.index: (sample.id or str(number)) for number, sample in enumerate(ordered)}
    renumbered = []
    for number, sample in enumerate(ordered):
        kept = dict.fromkeys(place[index] for index in draw.relevant(sample) if index in place)
        renumbered.append(replace(sample, index=number, relevant=tuple(kept)))
    return tuple(renumbered)


def _strata(
    available: Sequence[int], wanted: Sequence[int], chosen: Sequence[Sample], measure: Measure
) -> tuple[Stratum, ...]:
    lengths = measure.lengths([sample.text for sample in chosen])
    counts = Counter(bisect_left(measure.edges, length) for length in lengths)
    return tuple(Stratum(name, available[i], wanted[i], counts[i]) for i, name in enumerate(bucket_names(measure)))


def bucket_names(measure: Measure) -> list[str]:
    """Names of the buckets, the last one for everything longer."""
    begins = (1, *(edge + 1 for edge in measure.edges[:-1]))
    inside = [f"{begin}–{edge} {measure.unit}" for begin, edge in zip(begins, measure.edges, strict=True)]
    return [*inside, f"over {measure.edges[-1]} {measure.unit}"]
