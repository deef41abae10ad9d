"""Choosing a sample set: without duplicates, every length alike, the same for the same seed. Pure.

A text's place in the draw is a hash of the seed and its normalised form. So the choice depends neither on the order of
the file nor on how often a text stands in it, and one pass over a file of any size keeps only what may be chosen, and a hash of every distinct text.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
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
    conflicts: int
    """Texts that came again with another label than the first."""
    unknown: int = 0
    """Names of relevant samples that no sample has; they are left out."""


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


def identity(sample: Sample, exact: bool) -> str:
    """What duplicates have in common: the text, and the query before it where there is one (neither holds a NUL)."""
    parts = [sample.text] if sample.query is None else [sample.query, sample.text]
    return "\0".join(part if exact else normalised(part) for part in parts)


@dataclass
class _Draw:
    """Ranks of texts: which have been seen, and with which label first."""

    seed: int
    exact: bool
    seen: set[int] = field(default_factory=set)
    labels: dict[int, int] = field(default_factory=dict)
    conflicting: set[int] = field(default_factory=set)

    def rank(self, sample: Sample) -> int:
        """Place of a sample in the draw; duplicates share it."""
        key = identity(sample, self.exact).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(key, digest_size=8, key=str(self.seed).encode()[:64])
        return int.from_bytes(digest.digest(), "big")

    def is_new(self, rank: int, sample: Sample) -> bool:
        """Whether it is the first of its text; takes note of it and of its label."""
        if sample.label is not None:
            label = hash(json.dumps(sample.label, sort_keys=True))
            if self.labels.setdefault(rank, label) != label:
                self.conflicting.add(rank)
        before = len(self.seen)
        self.seen.add(rank)
        return len(self.seen) > before


def select(
    samples: Iterable[Sample], measure: Measure, count: int, seed: int = 0, exact: bool = False,
    known: Mapping[str, Sample] | None = None,
) -> Selection:  # fmt: skip
    """At most ``count`` samples, equally many of each length bucket as far as there are any.

    ``exact`` takes texts for duplicates only when they are equal to the last character. ``known`` finds the samples that
    others name as relevant, which are chosen along with them (numaserve_models.samples.relate).
    """
    if not 1 <= count <= MAX_SAMPLES:
        raise ExportError(f"{count} samples: a gate compares 1 to {MAX_SAMPLES}")
    draw = _Draw(seed, exact)
    # Where groups are chosen, one too large leaves its place to others: any may be needed.
    size = max(count, len(known or {}))
    pools = [_Pool(size) for _ in range(len(measure.edges) + 1)]
    duplicates = sum(_offer(chunk, draw, pools, measure) for chunk in _chunks(samples))
    available = [pool.available for pool in pools]
    drawn, shares = [pool.drawn() for pool in pools], quotas(available, count)
    order, spare = (
        _turns([p[:n] for p, n in zip(drawn, shares, strict=True)]),
        _turns([p[n:] for p, n in zip(drawn, shares, strict=True)]),
    )
    chosen, crowded_out = _with_relevant(order, spare, count, known or {})
    wanted = quotas([math.inf] * len(measure.edges) + [available[-1]], count)
    strata = _strata(available, wanted, chosen, measure)
    return Selection(_renumbered(chosen, known or {}), strata, duplicates, crowded_out, len(draw.conflicting))


def _offer(chunk: Sequence[Sample], draw: _Draw, pools: Sequence[_Pool], measure: Measure) -> int:
    """Put the new texts of a chunk into the pools of their lengths; how many were duplicates."""
    fresh = []
    for sample in chunk:
        rank = draw.rank(sample)
        if draw.is_new(rank, sample):
            fresh.append((rank, sample))
    for (rank, sample), length in zip(fresh, measure.lengths([_read(s) for _, s in fresh]), strict=True):
        pools[bisect_left(measure.edges, length)].offer(rank, sample)
    return len(chunk) - len(fresh)


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


def _read(sample: Sample) -> str:
    """All that a model reads of a sample."""
    return sample.text if sample.query is None else f"{sample.query} {sample.text}"


def _turns(drawn: Sequence[list[Sample]]) -> list[Sample]:
    """The samples of every bucket in turn, so that relevant samples crowd out no single length."""
    return [sample for row in itertools.zip_longest(*drawn) for sample in row if sample is not None]


def _with_relevant(
    order: Sequence[Sample], spare: Sequence[Sample], count: int, known: Mapping[str, Sample]
) -> tuple[list[Sample], int]:
    """Samples in order, each together with the ones relevant to it or not at all; and how many did not fit.

    ``spare`` ones take the places that groups too large have left.
    """
    chosen: dict[int, Sample] = {}
    crowded_out = 0
    for turn, sample in enumerate(itertools.chain(order, spare)):
        if len(chosen) == count and turn >= len(order):
            break
        group = {sample.index: sample} | {known[name].index: known[name] for name in sample.relevant}
        if len(chosen) + len(group.keys() - chosen.keys()) <= count:
            chosen.update(group)
        elif turn < len(order) and sample.relevant and sample.index not in chosen:
            crowded_out += 1
    return list(chosen.values()), crowded_out


def _renumbered(chosen: Sequence[Sample], known: Mapping[str, Sample]) -> tuple[Sample, ...]:
    """In the source's order, relevance told by id where there is one and by the place in this set otherwise.

    What a relevant sample brought along may name others that are not here: those are left out of its relevance.
    """
    ordered = sorted(chosen, key=lambda sample: sample.index)
    place = {sample.index: (sample.id or str(number)) for number, sample in enumerate(ordered)}
    return tuple(
        replace(
            sample,
            index=number,
            relevant=tuple(place[known[name].index] for name in sample.relevant if known[name].index in place),
        )
        for number, sample in enumerate(ordered)
    )


def _strata(
    available: Sequence[int], wanted: Sequence[int], chosen: Sequence[Sample], measure: Measure
) -> tuple[Stratum, ...]:
    lengths = measure.lengths([_read(sample) for sample in chosen])
    counts = Counter(bisect_left(measure.edges, length) for length in lengths)
    return tuple(Stratum(name, available[i], wanted[i], counts[i]) for i, name in enumerate(bucket_names(measure)))


def bucket_names(measure: Measure) -> list[str]:
    """Names of the buckets, the last one for everything longer."""
    begins = (1, *(edge + 1 for edge in measure.edges[:-1]))
    inside = [f"{begin}–{edge} {measure.unit}" for begin, edge in zip(begins, measure.edges, strict=True)]
    return [*inside, f"over {measure.edges[-1]} {measure.unit}"]
