"""Gate runs against a small fake of our own ProbeClient: passes, refusals, and everything that is inconclusive."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from numaserve_api.conditions import Reason
from numaserve_api.probe import GateAnswer, GateQuery, PlacementReport, SamplePage, VectorPage
from numaserve_api.resource import Gates
from numaserve_operator.domain.errors import Transient
from numaserve_operator.domain.plan import GateRequest, PodTarget
from numaserve_operator.domain.snapshot import GateResult, Verdict
from numaserve_operator.gates.run import run_gate
from numaserve_operator.gates.samples import SamplesUnreadable, parse_configmap

TEXTS = [f"text {n}" for n in range(40)]


def vectors(revision: str, texts: list[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A deterministic unit vector of each text; `bad` revisions give other ones."""
    rows = [
        np.random.default_rng([ord(c) for c in text + ("x" if revision == "bad" else "")]).normal(size=16)
        for text in texts
    ]
    return np.stack([r / np.linalg.norm(r) for r in rows]).astype(np.float32)


@dataclass
class FakeProbe:
    """Pods that answer as told by revision."""

    reference_rows: int = len(TEXTS)
    answers: dict[str, Any] = field(default_factory=dict)
    asked: int = 0

    async def placement(self, pod: PodTarget, token: str, seconds: float = 2.0) -> PlacementReport:
        raise AssertionError("a gate asks for no placement")

    async def drain(self, pod: PodTarget, token: str) -> None:
        raise AssertionError("a gate drains nothing")

    async def samples(self, pod: PodTarget, token: str, offset: int) -> SamplePage:
        return SamplePage(total=len(TEXTS), offset=offset, digest="", texts=TEXTS[offset : offset + 7])

    async def reference(self, pod: PodTarget, token: str, offset: int) -> VectorPage:
        rows = vectors("good", TEXTS)[offset : min(offset + 9, self.reference_rows)]
        return VectorPage(total=self.reference_rows, offset=offset, count=len(rows), dimension=16, vectors=encode(rows))

    async def gate(self, pod: PodTarget, token: str, query: GateQuery) -> GateAnswer:
        self.asked += 1
        assert token == f"token-{pod.revision}"
        rows = vectors(pod.revision, query.inputs)
        change = self.answers.get(pod.revision)
        answer = GateAnswer(
            revision=pod.revision, space="s", count=len(rows), dimension=16, vectors=encode(rows),
            token_counts=[1] * len(rows), token_digests=["t"] * len(rows), inference_seconds=0.01,
        )  # fmt: skip
        return await change(answer, rows, self.asked) if change else answer


def encode(rows: np.ndarray[Any, np.dtype[np.float32]]) -> str:
    """As the pod sends them."""
    return base64.b64encode(rows.astype("<f4").tobytes()).decode()


async def run(
    candidate: str = "good",
    stable: str | None = "stable",
    probe: FakeProbe | None = None,
    seconds: float = 5,
    **gates: Any,
) -> GateResult:
    """One gate run."""
    request = GateRequest(
        "key", "team", "enc", "enc-x", "uid", Gates.model_validate(gates), (target(candidate),),
        (target(stable),) if stable else (), None, gates.pop("digest", ""),
    )  # fmt: skip
    return await run_gate(request, probe or FakeProbe(), lambda revision: f"token-{revision}", configmap, seconds)


def target(revision: str) -> PodTarget:
    """A pod of a revision."""
    return PodTarget(f"pod-{revision}", f"uid-{revision}", "127.0.0.1", revision)


async def configmap(namespace: str, name: str) -> Mapping[str, Any]:
    """A tenant's sample set."""
    return {"metadata": {"name": name}, "data": {"samples.txt": "one\ntwo\n\nthree\n"}}


async def test_an_equal_revision_passes_and_says_what_the_samples_can_show() -> None:
    result = await run()
    assert (result.verdict, result.reason) == (Verdict.PASSED, Reason.PASSED)
    assert result.sample_count == 40
    assert "95 % confidence" in result.message
    assert [v.name for v in result.values] == ["cosine.min", "cosine.p1", "cosine.mean"]


async def test_other_vectors_fail_with_the_numbers() -> None:
    result = await run(candidate="bad")
    assert (result.verdict, result.reason) == (Verdict.FAILED, Reason.COSINE_BELOW_THRESHOLD)
    assert "cosine.min" in result.message
    assert not any(v.passed for v in result.values)


async def test_nan_of_the_candidate_fails_and_nan_of_stable_is_inconclusive() -> None:
    async def poison(answer: GateAnswer, rows: Any, _: int) -> GateAnswer:
        rows[0, 0] = np.nan
        return answer.model_copy(update={"vectors": encode(rows)})

    failed = await run(probe=FakeProbe(answers={"good": poison}))
    assert (failed.verdict, failed.reason) == (Verdict.FAILED, Reason.NOT_FINITE)
    held = await run(probe=FakeProbe(answers={"stable": poison}))
    assert (held.verdict, held.reason) == (Verdict.INCONCLUSIVE, Reason.INCONCLUSIVE)
    assert "against: reference" in held.message


async def test_a_tokenizer_change_is_named() -> None:
    async def tokens(answer: GateAnswer, rows: Any, _: int) -> GateAnswer:
        return answer.model_copy(update={"token_digests": ["u"] * len(rows)})

    result = await run(candidate="bad", probe=FakeProbe(answers={"bad": tokens}))
    assert "the tokenizer changed: 40 of 40" in result.message


async def other_revision(answer: GateAnswer, rows: Any, _: int) -> GateAnswer:
    return answer.model_copy(update={"revision": "another"})


async def garbage(answer: GateAnswer, rows: Any, _: int) -> GateAnswer:
    return answer.model_copy(update={"vectors": "not base64!"})


async def too_few(answer: GateAnswer, rows: Any, _: int) -> GateAnswer:
    return answer.model_copy(update={"count": 1})


async def dies_half_way(answer: GateAnswer, rows: Any, asked: int) -> GateAnswer:
    if asked > 6:
        raise Transient("pod does not answer")
    return answer


async def never(answer: GateAnswer, rows: Any, _: int) -> GateAnswer:
    await asyncio.Event().wait()
    return answer


async def breaks(answer: GateAnswer, rows: Any, _: int) -> GateAnswer:
    raise ZeroDivisionError("a fault of ours")


@pytest.mark.parametrize("fault", [other_revision, garbage, too_few, dies_half_way, never, breaks])
async def test_a_pod_that_does_not_answer_properly_is_inconclusive(fault: Any) -> None:
    result = await run(probe=FakeProbe(answers={"good": fault}), seconds=0.5)
    assert (result.verdict, result.reason) == (Verdict.INCONCLUSIVE, Reason.INCONCLUSIVE)
    assert result.message


async def test_a_first_revision_is_compared_with_its_own_reference() -> None:
    result = await run(stable=None)
    assert result.verdict is Verdict.PASSED
    assert "FP32 reference" in result.message
    assert (await run(candidate="bad", stable=None)).verdict is Verdict.FAILED


async def test_a_first_revision_without_reference_is_checked_for_health_and_says_so() -> None:
    result = await run(stable=None, probe=FakeProbe(reference_rows=0))
    assert (result.verdict, result.reason) == (Verdict.PASSED, Reason.FIRST_REVISION)
    assert "only shape and health" in result.message


async def test_samples_of_a_configmap_are_used_and_a_change_discards_the_run() -> None:
    samples = {"configMapRef": {"name": "tickets"}}
    result = await run(samples=samples)
    assert result.sample_count == 3
    request = GateRequest(
        "k",
        "t",
        "e",
        "r",
        "u",
        Gates.model_validate({"samples": samples}),
        (target("good"),),
        (target("stable"),),
        None,
        "sha256:old",
    )
    changed = await run_gate(request, FakeProbe(), lambda r: f"token-{r}", configmap)
    assert (changed.verdict, changed.reason) == (Verdict.INCONCLUSIVE, Reason.SAMPLES_CHANGED)


@pytest.mark.parametrize(
    ("configmap", "words"),
    [
        ({}, "no sample text"),
        ({"data": {"a.txt": "\n \n"}}, "no sample text"),
        ({"binaryData": {"x.bin": "AA=="}}, "binary data"),
        ({"data": {"a.jsonl": "{"}}, "line 1 is not JSON"),
        ({"data": {"a.jsonl": '{"text": "a"}\n{"txt": "b"}'}}, "line 2 has no text"),
        ({"data": {"a.jsonl": '{"text": "\\ud800"}'}}, "lone surrogate"),
        ({"data": {"a.txt": "x" * 200_001}}, "at most 200000"),
    ],
)
def test_a_sample_set_that_cannot_be_used_names_key_and_line(configmap: dict[str, Any], words: str) -> None:
    with pytest.raises(SamplesUnreadable, match=words):
        parse_configmap({"metadata": {"name": "tickets"}, **configmap})


def test_lines_end_at_newlines_only_and_keys_are_read_in_order() -> None:
    found = parse_configmap(
        {"metadata": {"name": "t"}, "data": {"b.txt": "three\u2028four\r\n", "a.jsonl": '{"text": "one\u2028two"}\n'}}
    )
    assert found.texts == ("one\u2028two", "three\u2028four")
