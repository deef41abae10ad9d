"""Choosing a sample set: laws that hold for any source, and relevance that still points where it did."""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numaserve_models.errors import ExportError
from numaserve_models.samples.lengths import Measure, characters, checked_edges, tokens
from numaserve_models.samples.read import Sample
from numaserve_models.samples.relate import relate
from numaserve_models.samples.select import (
    MAX_SAMPLES,
    Selection,
    bound_on_bad_share,
    bucket_names,
    normalised,
    quotas,
    select,
)
from numaserve_operator.gates import compare as gate_compare
from numaserve_operator.gates import samples as gate_samples

MEASURE = characters([3, 6, 12])
TEXTS = st.lists(
    st.text(st.sampled_from("aAbc \t"), min_size=1, max_size=20).filter(str.strip), min_size=1, max_size=60
)
COUNTS = st.integers(1, 40)
SEEDS = st.integers(0, 5)


def numbered(texts: Sequence[str]) -> list[Sample]:
    return [Sample(text, line, line - 1) for line, text in enumerate(texts, 1)]


def chosen(found: Selection) -> list[str]:
    return [sample.text for sample in found.samples]


def bucket(text: str) -> int:
    return bisect_left(MEASURE.edges, len(text))


def firsts(texts: Sequence[str]) -> list[str]:
    """The first of every text and its duplicates."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(normalised(text), text)
    return list(found.values())


def test_limits_and_bounds_are_the_gates() -> None:
    assert MAX_SAMPLES == gate_samples.MAX_SAMPLES
    for count in (1, 50, 299, 10_000):
        assert bound_on_bad_share(count) == gate_compare.bound_on_bad_share(count)


@given(TEXTS, COUNTS, SEEDS)
def test_the_chosen_are_a_subset_in_order_without_duplicates(texts: list[str], count: int, seed: int) -> None:
    found = select(numbered(texts), MEASURE, count, seed)
    lines = [sample.line for sample in found.samples]
    assert lines == sorted(set(lines))
    assert all(texts[sample.line - 1] == sample.text for sample in found.samples)
    assert len({normalised(text) for text in chosen(found)}) == len(found.samples)
    assert set(chosen(found)) <= set(firsts(texts))
    assert [sample.index for sample in found.samples] == list(range(len(lines)))


@given(TEXTS, COUNTS, SEEDS)
def test_as_many_as_there_are_and_every_length_gets_its_share(texts: list[str], count: int, seed: int) -> None:
    found = select(numbered(texts), MEASURE, count, seed)
    distinct = firsts(texts)
    assert len(found.samples) == min(count, len(distinct))
    assert found.duplicates == len(texts) - len(distinct)
    available = Counter(map(bucket, distinct))
    got = Counter(map(bucket, chosen(found)))
    assert [stratum.available for stratum in found.strata] == [available[b] for b in range(4)]
    assert [stratum.chosen for stratum in found.strata] == [got[b] for b in range(4)]
    # Fair: where a bucket has texts left, no other one got more than one text more.
    for b in range(4):
        if got[b] < available[b]:
            assert max(got.values()) <= got[b] + 1


@given(TEXTS, COUNTS, SEEDS)
def test_the_same_seed_chooses_the_same(texts: list[str], count: int, seed: int) -> None:
    assert select(numbered(texts), MEASURE, count, seed) == select(iter(numbered(texts)), MEASURE, count, seed)


@given(TEXTS, COUNTS, SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_a_source_changes_nothing_but_the_order(
    texts: list[str], count: int, seed: int, rng: random.Random
) -> None:
    texts = firsts(texts)
    shuffled = list(texts)
    rng.shuffle(shuffled)
    before, after = (select(numbered(order), MEASURE, count, seed) for order in (texts, shuffled))
    assert sorted(chosen(before)) == sorted(chosen(after))
    assert before.strata == after.strata


@given(TEXTS, COUNTS, SEEDS)
def test_repeating_a_source_changes_only_the_count_of_duplicates(texts: list[str], count: int, seed: int) -> None:
    once, thrice = (select(numbered(texts * n), MEASURE, count, seed) for n in (1, 3))
    assert thrice == replace(once, duplicates=once.duplicates + 2 * len(texts))


@given(TEXTS, st.integers(1, 20), SEEDS)
def test_a_larger_set_of_one_length_holds_the_smaller(texts: list[str], count: int, seed: int) -> None:
    one = characters([1000])
    smaller, larger = (set(chosen(select(numbered(texts), one, n, seed))) for n in (count, count + 3))
    assert smaller <= larger


@given(TEXTS, SEEDS)
def test_exact_takes_case_and_white_space_for_differences(texts: list[str], seed: int) -> None:
    assert sorted(chosen(select(numbered(texts), MEASURE, 100, seed, exact=True))) == sorted(set(texts))


def test_another_seed_chooses_others() -> None:
    source = numbered([f"text {n}" for n in range(1000)])
    first, second = (set(chosen(select(source, MEASURE, 100, seed))) for seed in (0, 1))
    assert 0 < len(first & second) < 40


@pytest.mark.parametrize("seed", [0, 2**63, 10**400])
def test_any_seed_will_do(seed: int) -> None:
    assert len(select(numbered(["a", "b"]), MEASURE, 1, seed).samples) == 1


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 120))
def test_quotas_use_up_what_there_is_and_differ_by_one_at_most(available: list[int], count: int) -> None:
    got = quotas(available, count)
    assert sum(got) == min(count, sum(available))
    assert all(0 <= n <= have for n, have in zip(got, available, strict=True))
    open_ = [n for n, have in zip(got, available, strict=True) if n < have]
    assert not open_ or max(got) - min(open_) <= 1


def test_a_bucket_that_is_not_filled_is_told() -> None:
    found = select(numbered(["a", "b", "abcd"]), MEASURE, 6)
    assert [(s.available, s.wanted, s.chosen, s.short) for s in found.strata] == [
        (2, 2, 2, False), (1, 2, 1, True), (0, 2, 0, True), (0, 0, 0, False),
    ]  # fmt: skip
    assert bucket_names(MEASURE) == ["1–3 characters", "4–6 characters", "7–12 characters", "over 12 characters"]


def test_a_text_that_comes_with_two_labels_is_counted_and_keeps_the_first() -> None:
    labels = ["x", "y", "x", None, "z"]
    found = select([Sample(t, n, n, label=v) for n, (t, v) in enumerate(zip("aAbBb", labels, strict=True))], MEASURE, 9)
    assert found.conflicts == 2
    assert [sample.label for sample in found.samples] == ["x", "x"]


def test_one_text_under_two_queries_is_two_samples() -> None:
    source = [Sample("t", n, n, query=query) for n, query in enumerate(["q", "r", "Q ", None])]
    assert [sample.query for sample in select(source, MEASURE, 9).samples] == ["q", "r", None]


def test_where_a_query_ends_matters() -> None:
    assert len(select([Sample("bc", 1, 0, query="a"), Sample("c", 2, 1, query="ab")], MEASURE, 9).samples) == 2


def test_a_query_counts_to_the_length() -> None:
    found = select([Sample("abc", 1, 0, query="abcdefgh")], MEASURE, 1)
    assert [stratum.chosen for stratum in found.strata] == [0, 0, 1, 0]


@pytest.mark.parametrize("count", [0, MAX_SAMPLES + 1])
def test_a_gates_limit_is_the_limit(count: int) -> None:
    with pytest.raises(ExportError, match="1 to 10000"):
        select([], MEASURE, count)


@pytest.mark.parametrize("edges", [[], [0], [-1, 2], [2, 1], [1, 1]])
def test_buckets_ascend(edges: list[int]) -> None:
    with pytest.raises(ExportError, match="ascending"):
        checked_edges(edges)


def test_tokens_are_counted_with_special_ones_and_without_padding_and_truncation(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"[CLS]": 0, "[UNK]": 1, "a": 2}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 0)])
    tokenizer.enable_padding(length=50)
    tokenizer.enable_truncation(5)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    measure = tokens(tmp_path / "tokenizer.json", [4, 8])
    assert measure.lengths(["a", "a b " * 10]) == [2, 21]
    assert (measure.unit, measure.edges) == ("tokens", (4, 8))


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"type": "no"}}', "[1]"])
def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ExportError, match="not a usable tokenizer"):
        tokens(tmp_path / "tokenizer.json")


def test_a_tokenizer_that_panics_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Its panics are no Exception, and would end the command with a Rust backtrace (as in tokenizers#1349)."""
    document: dict[str, object] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "pre_tokenizer": None,
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ExportError, match="not a usable tokenizer") as error:
        tokens(tmp_path / "tokenizer.json")
    assert not isinstance(error.value.__cause__, Exception)


# Relevance


def pick(samples: list[Sample], count: int, seed: int = 0, measure: Measure = MEASURE) -> Selection:
    related = relate(samples)
    return select(related.samples, measure, count, seed, known=related.known)


@st.composite
def sources(draw: st.DrawFn) -> list[Sample]:
    """Samples of which some name others, with ids for all, some or none, and duplicates."""
    texts = draw(TEXTS)
    with_ids = draw(st.sampled_from([0, 1, 2]))
    ids = [f"id{n}" if with_ids == 2 or (with_ids and n % 2) else None for n in range(len(texts))]
    names = [name for name in ids if name] or ([] if any(ids) else [str(n) for n in range(len(texts))])
    relevant = st.lists(st.sampled_from(names), max_size=3, unique=True).map(tuple) if names else st.just(())
    return [Sample(t, n + 1, n, id=ids[n], relevant=draw(relevant)) for n, t in enumerate(texts)]


@given(sources(), COUNTS, SEEDS)
def test_relevance_still_points_to_the_texts_it_did(source: list[Sample], count: int, seed: int) -> None:
    found = pick(source, count, seed)
    named = any(sample.id for sample in source)
    texts_by_name = {(s.id if named else str(s.index)): normalised(s.text) for s in source}
    wanted: dict[str, set[str]] = {}
    for sample in source:
        wanted.setdefault(normalised(sample.text), set()).update(texts_by_name[name] for name in sample.relevant)
    mine = {(s.id if named else str(n)): normalised(s.text) for n, s in enumerate(found.samples)}
    kept = {normalised(text) for text in chosen(found)}
    for sample in found.samples:
        got = [mine[name] for name in sample.relevant]
        assert len(got) == len(set(got))
        assert set(got) == wanted[normalised(sample.text)] & kept
    assert len(found.samples) <= count
    assert len(kept) == len(found.samples)


@given(sources(), SEEDS)
def test_a_set_with_room_for_all_keeps_all_relevance(source: list[Sample], seed: int) -> None:
    found = pick(source, 100, seed)
    assert sorted(chosen(found)) == sorted(firsts([sample.text for sample in source]))
    assert found.crowded_out == 0


def test_relevant_samples_come_along_and_are_numbered_anew() -> None:
    texts = [f"text {n}" for n in range(100)]
    source = [replace(s, relevant=(str(s.index + 50),) if s.index < 50 else ()) for s in numbered(texts)]
    found = pick(source, 20)
    pairs = [(s.text, [found.samples[int(name)].text for name in s.relevant]) for s in found.samples if s.line <= 50]
    assert pairs
    assert all(far == [f"text {int(near.split()[1]) + 50}"] for near, far in pairs)


def test_a_group_too_large_leaves_its_place_to_others() -> None:
    source = numbered([f"t{n}" for n in range(10)])
    source[0] = replace(source[0], relevant=tuple("123456"))
    kept = [len(pick(source, 3, seed).samples) for seed in range(20)]
    assert kept == [3] * 20
    assert any(pick(source, 3, seed).crowded_out for seed in range(20))


def test_what_came_along_with_another_is_not_left_out() -> None:
    source = numbered([f"t{n}" for n in range(6)])
    source[0], source[1] = replace(source[0], relevant=("1",)), replace(source[1], relevant=("2", "3", "4"))
    for seed in range(30):
        found = pick(source, 2, seed)
        kept = {sample.line for sample in found.samples}
        assert found.crowded_out <= len({1, 2} - kept)


def test_pairs_a_line_become_one_sample_with_all_that_is_relevant() -> None:
    source = [
        Sample("q", 1, 0, "q1", None, ("a",)), Sample("Q", 2, 1, "q1", None, ("b",)),
        Sample("first", 3, 2, "a"), Sample("second", 4, 3, "b"),
    ]  # fmt: skip
    found = pick(source, 9)
    assert [(s.id, s.relevant) for s in found.samples] == [("q1", ("a", "b")), ("a", ()), ("b", ())]


def test_a_duplicate_without_an_id_takes_its_twins() -> None:
    source = [Sample("x", 1, 0), Sample("X", 2, 1, "twin"), Sample("y", 3, 2, "y", None, ("twin",))]
    assert [(s.text, s.id, s.relevant) for s in pick(source, 9).samples] == [("x", "twin", ()), ("y", "y", ("twin",))]


def test_an_id_of_two_texts_is_refused() -> None:
    with pytest.raises(ExportError, match="lines 1 and 3"):
        relate([Sample("x", 1, 0, "a"), Sample("y", 2, 1, "b"), Sample("z", 3, 2, "a")])


def test_what_nobody_is_called_is_told_by_line() -> None:
    found = relate([Sample("x", 1, 0, "a", None, ("b", "c")), Sample("y", 2, 1, "b", None, ("1",))])
    assert found.unknown == ((1, "c"), (2, "1"))
    assert [sample.relevant for sample in found.samples] == [("b",), ()]


def test_labels_survive_as_they_are() -> None:
    label = {"entities": [{"start": 0, "end": 1}]}
    assert json.dumps(select([Sample("a", 1, 0, label=label)], MEASURE, 1).samples[0].label) == json.dumps(label)
