"""One gate run: fetch samples, infer them on both revisions, compare, judge.

Anything that keeps the run from measuring is *inconclusive*: it is tried again and never passes.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from numaserve_api.conditions import Reason
from numaserve_api.probe import GateAnswer, GateQuery
from numaserve_api.resource import CosineGate, GateValue
from numaserve_operator.domain.errors import Transient
from numaserve_operator.domain.plan import GateRequest, PodTarget
from numaserve_operator.domain.snapshot import GateResult, Verdict
from numaserve_operator.gates import compare
from numaserve_operator.gates.client import ProbeClient
from numaserve_operator.gates.compare import CosineStatistics, Finding, Vectors
from numaserve_operator.gates.samples import SampleSet, SamplesUnreadable, digest_of, parse_configmap

logger = logging.getLogger(__name__)
BATCH = 16
"""Texts a query: small enough that a probe never holds the stable pod's cores for long."""
MAX_SECONDS = 900.0
NOISE_SAMPLES = 32

TokenOf = Callable[[str], str]
ReadConfigMap = Callable[[str, str], Awaitable[Mapping[str, Any]]]


class _Inconclusive(Exception):
    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Inferred:
    """Vectors [n, d] of one pod, a digest of each text's token ids, and the pod's own inference time."""

    vectors: Vectors
    tokens: tuple[str, ...]
    seconds: float


async def run_gate(
    request: GateRequest,
    probe: ProbeClient,
    token_of: TokenOf,
    read_configmap: ReadConfigMap,
    seconds: float = MAX_SECONDS,
) -> GateResult:
    """Run the comparison a request asks for. Never raises for a pod's or a sample set's fault.

    ``token_of`` gives the probe token of a revision, ``read_configmap(namespace, name)`` a ConfigMap as JSON.
    """
    run = _Run(request, probe, token_of, read_configmap)
    try:
        async with asyncio.timeout(seconds):
            return await run.judge()
    except TimeoutError:
        return run.result(Verdict.INCONCLUSIVE, Reason.INCONCLUSIVE, f"the comparison took longer than {seconds:.0f} s")
    except Transient as error:
        return run.result(Verdict.INCONCLUSIVE, Reason.INCONCLUSIVE, str(error))
    except SamplesUnreadable as error:
        return run.result(Verdict.INCONCLUSIVE, Reason.SAMPLES_UNREADABLE, str(error))
    except _Inconclusive as error:
        return run.result(Verdict.INCONCLUSIVE, error.reason, str(error))
    except Exception as error:
        # A fault of ours must not leave the candidate waiting for a result that never comes.
        logger.exception("gate of %s failed unexpectedly", request.replicaset)
        return run.result(Verdict.INCONCLUSIVE, Reason.INCONCLUSIVE, f"unexpected {type(error).__name__}: {error}")


@dataclass
class _Run:
    request: GateRequest
    probe: ProbeClient
    token_of: TokenOf
    read_configmap: ReadConfigMap
    samples: SampleSet = field(default_factory=lambda: SampleSet((), ""))

    def result(self, verdict: Verdict, reason: Reason, message: str, values: Sequence[GateValue] = ()) -> GateResult:
        return GateResult(
            key=self.request.key,
            verdict=verdict,
            reason=reason,
            message=message,
            values=tuple(values),
            sample_digest=self.samples.digest,
            sample_count=len(self.samples.texts),
            finished_at=datetime.now(UTC),
            attempts=self.request.attempts,
        )

    async def judge(self) -> GateResult:
        if self.request.gates.against == "reference" or not self.request.stable:
            return await self._against_reference()
        self.samples = await self._samples()
        return await self._against_stable()

    async def _against_stable(self) -> GateResult:
        stable = self.request.stable[0]
        baseline = await self._infer(stable, self.samples.texts)
        broken = compare.check_health(baseline.vectors)
        if broken:
            raise _Inconclusive(
                Reason.INCONCLUSIVE,
                f"the stable revision itself gives nothing to compare with: {broken.message}. Compare with the artifact's "
                "own vectors instead: spec.rollout.gates.against: reference",
            )
        floor = await self._noise_floor(stable, baseline)
        gate = self.request.gates.cosine or CosineGate()
        noisy = compare.check_noise(gate, floor)
        if noisy:
            return self.result(Verdict.FAILED, noisy.reason, noisy.message, compare.gate_values(gate, floor, floor))
        for pod in self.request.candidate:
            told = await self._infer(pod, self.samples.texts)
            verdict = self._compare(
                pod, told, baseline.vectors, floor, f"stable revision {stable.revision}", baseline.tokens
            )
            if verdict.verdict is not Verdict.PASSED:
                return verdict
        return verdict

    async def _against_reference(self) -> GateResult:
        """The candidate against the FP32 vectors of its own artifact, on the artifact's own samples."""
        pod = self.request.candidate[0]
        reference = await self._reference(pod)
        if reference is None:
            if self.request.stable:
                raise _Inconclusive(
                    Reason.NO_REFERENCE,
                    "the candidate's artifact has no FP32 reference vectors: export it with samples",
                )
            self.samples = await self._samples()
            return self._healthy(await self._infer(pod, self.samples.texts))
        self.samples = await self._artifact_samples(pod)
        told = await self._infer(pod, self.samples.texts)
        if len(reference) != len(told.vectors):
            text = f"the artifact has {len(reference)} reference vectors for {len(told.vectors)} samples"
            return self.result(Verdict.FAILED, Reason.SHAPE_MISMATCH, text)
        return self._compare(pod, told, reference, None, "its own FP32 reference", None)

    def _healthy(self, told: _Inferred) -> GateResult:
        finding = compare.check_health(told.vectors)
        if finding:
            return self.result(Verdict.FAILED, finding.reason, finding.message)
        text = (
            f"first revision of this name, and its artifact has no reference vectors: only shape and health of "
            f"{len(told.vectors)} answers were checked"
        )
        return self.result(Verdict.PASSED, Reason.FIRST_REVISION, text)

    def _compare(
        self,
        pod: PodTarget,
        told: _Inferred,
        baseline: Vectors,
        floor: CosineStatistics | None,
        against: str,
        tokens: tuple[str, ...] | None,
    ) -> GateResult:
        finding = compare.check_shape(told.vectors, baseline)
        if finding:
            return self._refuse(pod, finding, tokens, told)
        gate = self.request.gates.cosine or CosineGate()
        found = compare.statistics(compare.cosines(told.vectors, baseline))
        values = compare.gate_values(gate, found, floor)
        text = _told(found, values, against, floor)
        if all(value.passed for value in values):
            return self.result(Verdict.PASSED, Reason.PASSED, text + _bound(found.count), values)
        missed = ", ".join(v.name for v in values if not v.passed)
        worst = f"; worst is sample {found.worst + 1}"
        hint = _token_hint(tokens, told.tokens)
        return self.result(
            Verdict.FAILED, Reason.COSINE_BELOW_THRESHOLD, f"below the threshold: {missed}. {text}{worst}{hint}", values
        )

    def _refuse(self, pod: PodTarget, finding: Finding, tokens: tuple[str, ...] | None, told: _Inferred) -> GateResult:
        text = f"pod {pod.name}: {finding.message}{_token_hint(tokens, told.tokens)}"
        return self.result(Verdict.FAILED, finding.reason, text)

    async def _samples(self) -> SampleSet:
        named = self.request.gates.samples
        if named and named.config_map_ref:
            found = parse_configmap(await self.read_configmap(self.request.namespace, named.config_map_ref.name))
            if self.request.sample_digest and found.digest != self.request.sample_digest:
                raise _Inconclusive(
                    Reason.SAMPLES_CHANGED, "the sample set changed while it was compared: comparing again"
                )
            return found
        return await self._artifact_samples((self.request.stable or self.request.candidate)[0])

    async def _artifact_samples(self, pod: PodTarget) -> SampleSet:
        texts: list[str] = []
        while True:
            page = await self.probe.samples(pod, self.token_of(pod.revision), len(texts))
            texts += page.texts
            if len(texts) >= page.total or not page.texts:
                break
        if not texts:
            raise SamplesUnreadable(
                f"the artifact of revision {pod.revision} has no samples: export it with samples, or name a ConfigMap in "
                "spec.rollout.gates.samples.configMapRef"
            )
        return SampleSet(tuple(texts), digest_of(texts))

    async def _reference(self, pod: PodTarget) -> Vectors | None:
        rows: list[Vectors] = []
        while True:
            page = await self.probe.reference(pod, self.token_of(pod.revision), sum(len(r) for r in rows))
            if page.total == 0:
                return None
            rows.append(_decode(pod, page.vectors, page.count, page.dimension))
            if sum(len(r) for r in rows) >= page.total or page.count == 0:
                return np.concatenate(rows)

    async def _noise_floor(self, pod: PodTarget, baseline: _Inferred) -> CosineStatistics:
        """The stable revision against itself, texts one by one instead of in batches."""
        count = min(NOISE_SAMPLES, len(self.samples.texts))
        alone = await self._infer(pod, self.samples.texts[:count], together=False)
        return compare.statistics(compare.cosines(alone.vectors, baseline.vectors[:count]))

    async def _infer(self, pod: PodTarget, texts: Sequence[str], together: bool = True) -> _Inferred:
        rows, tokens, seconds = [], [], 0.0
        for start in range(0, len(texts), BATCH):
            part = list(texts[start : start + BATCH])
            answer = await self.probe.gate(pod, self.token_of(pod.revision), GateQuery(inputs=part, together=together))
            rows.append(self._checked(pod, answer, len(part)))
            tokens += answer.token_digests
            seconds += answer.inference_seconds
        widths = {r.shape[1] for r in rows}
        if len(widths) != 1:
            raise Transient(f"pod {pod.name} answered with several dimensions: {sorted(widths)}")
        return _Inferred(np.concatenate(rows), tuple(tokens), seconds)

    def _checked(self, pod: PodTarget, answer: GateAnswer, asked: int) -> Vectors:
        if answer.revision != pod.revision:
            raise _Inconclusive(
                Reason.INCONCLUSIVE, f"pod {pod.name} answered for revision {answer.revision}, {pod.revision} was asked"
            )
        if answer.count != asked:
            raise Transient(f"pod {pod.name} answered {answer.count} vectors for {asked} texts")
        return _decode(pod, answer.vectors, answer.count, answer.dimension)


def _decode(pod: PodTarget, text: str, count: int, dimension: int) -> Vectors:
    try:
        flat = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
        return flat.reshape(count, dimension).astype(np.float32)
    except (ValueError, binascii.Error) as error:
        raise Transient(f"pod {pod.name} sent vectors that are not {count} × {dimension} float32: {error}") from error


def _told(found: CosineStatistics, values: Sequence[GateValue], against: str, floor: CosineStatistics | None) -> str:
    numbers = ", ".join(f"{v.name} {v.value} (≥ {v.threshold:g})" for v in values if v.threshold is not None)
    noise = f", noise floor min {floor.minimum:.6f}" if floor else ""
    return f"{found.count} samples against {against}: {numbers}{noise}"


def _bound(count: int) -> str:
    share = 100 * compare.bound_on_bad_share(count)
    return f". {count} samples without a failure bound the share of bad texts at {share:.2g} % (95 % confidence)"


def _token_hint(stable: tuple[str, ...] | None, candidate: tuple[str, ...]) -> str:
    if stable is None or stable == candidate:
        return ""
    differing = sum(a != b for a, b in zip(stable, candidate, strict=False))
    return f"; the tokenizer changed: {differing} of {len(candidate)} samples have other token ids"
