"""The operator's gate on two probe ports: what it decides, and what a person wants to know beside it."""

# ruff: noqa: ARG002 -- each side has its own token and the samples are at hand: the gate's arguments are not needed

from __future__ import annotations

import base64
import contextlib
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from numaserve_api import names
from numaserve_api.conditions import Reason
from numaserve_api.probe import GateAnswer, GateQuery, PlacementReport, SamplePage, VectorPage
from numaserve_api.resource import Gates, GateValue, LocalName, Samples
from numaserve_operator.cli.servers import (
    LOOPBACK,
    CompareError,
    LocalServer,
    check_directory,
    serving,
    wait_ready,
)
from numaserve_operator.domain import candidate
from numaserve_operator.domain.errors import Transient
from numaserve_operator.domain.plan import GateRequest, PodTarget
from numaserve_operator.domain.problems import Problem
from numaserve_operator.domain.revisions import Cast, Target
from numaserve_operator.domain.snapshot import GateResult, PodView, RevisionView, Role, Verdict
from numaserve_operator.gates import compare
from numaserve_operator.gates.client import HttpProbe
from numaserve_operator.gates.run import run_gate
from numaserve_operator.gates.samples import parse_configmap

QUERY_SECONDS = 600.0
"""Longest single query: sixteen long texts on one core take minutes, and nobody's traffic waits behind them here."""
RUN_SECONDS = 6 * 3600.0
LATENCY_TEXTS = 32


@dataclass
class Side:
    """A server to compare, and everything it answered to batches of samples."""

    title: str
    target: PodTarget
    token: str
    client: HttpProbe
    report: PlacementReport
    answers: list[GateAnswer] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    """Inference time of single texts, seconds."""

    @property
    def token_digests(self) -> list[str]:
        """A digest of each sample's token ids, in order."""
        return [digest for answer in self.answers for digest in answer.token_digests]

    @property
    def vectors(self) -> compare.Vectors:
        """Vectors [n, d] of the samples; the gate has already refused malformed ones."""
        parts = [np.frombuffer(base64.b64decode(a.vectors), "<f4").reshape(a.count, a.dimension) for a in self.answers]
        return np.concatenate(parts).astype(np.float32)

    @property
    def p50(self) -> float | None:
        """Median inference time of one text alone, seconds."""
        return statistics.median(self.latencies) if self.latencies else None


class Sides:
    """ProbeClient that finds the server behind a pod's uid, opens it with its own token, and keeps its answers."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self._sides = {side.target.uid: side for side in sides}

    async def placement(self, pod: PodTarget, token: str, seconds: float = 2.0) -> PlacementReport:
        side = self._sides[pod.uid]
        return await side.client.placement(pod, side.token, seconds)

    async def samples(self, pod: PodTarget, token: str, offset: int) -> SamplePage:
        side = self._sides[pod.uid]
        return await side.client.samples(pod, side.token, offset)

    async def reference(self, pod: PodTarget, token: str, offset: int) -> VectorPage:
        side = self._sides[pod.uid]
        return await side.client.reference(pod, side.token, offset)

    async def gate(self, pod: PodTarget, token: str, query: GateQuery) -> GateAnswer:
        side = self._sides[pod.uid]
        answer = await side.client.gate(pod, side.token, query)
        if query.together:
            side.answers.append(answer)
        return answer

    async def drain(self, pod: PodTarget, token: str) -> None:
        side = self._sides[pod.uid]
        await side.client.drain(pod, side.token)


@dataclass(frozen=True, slots=True)
class Worst:
    """The sample whose vectors differ most: its number from 1, its cosine and its text."""

    sample: int
    cosine: float
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the operator would decide, and the evidence."""

    verdict: Verdict
    reason: Reason
    message: str
    values: tuple[GateValue, ...]
    sample_digest: str
    sample_count: int
    differing_tokens: tuple[int, ...]
    """Numbers, from 1, of samples that became other token ids."""
    worst: Worst | None
    a: Side
    b: Side


async def compare_sides(
    a: str, b: str, tokens: Sequence[str], gates: Gates, configmap: Mapping[str, Any] | None
) -> Comparison:
    """Serve what needs serving, run the gate with A as the stable revision and B as the candidate.

    ``tokens`` are for URLs: one for both sides, or one each. ``configmap`` holds the samples, None takes those of A's
    artifact. Raises CompareError where a side cannot be asked at all.
    """
    async with _opened({"A": a, "B": b}, tokens) as (left, right):
        texts = _Texts(configmap)
        probe = Sides([left, right])
        request = _request(left, right, gates.model_copy(update={"samples": texts.named}))
        result = await run_gate(request, probe, lambda _: "", texts.read, RUN_SECONDS)
        if result.verdict is Verdict.INCONCLUSIVE:
            return _judged(result, left, right, [])
        try:
            compared = await texts.all(probe, left)
            await _measure_latency(left, right, compared)
        except Transient as error:
            raise CompareError(f"the gate ended, then a server went away: {error}") from error
        return _judged(result, left, right, compared)


class _Texts:
    """The sample texts, as the gate reads them."""

    def __init__(self, configmap: Mapping[str, Any] | None) -> None:
        self._configmap = configmap
        self.named = Samples(config_map_ref=LocalName(name="samples")) if configmap else None

    async def read(self, namespace: str, name: str) -> Mapping[str, Any]:
        return self._configmap or {}

    async def all(self, probe: Sides, side: Side) -> list[str]:
        """Every text, in the gate's order."""
        if self._configmap:
            return list(parse_configmap(self._configmap).texts)
        texts: list[str] = []
        while True:
            page = await probe.samples(side.target, "", len(texts))
            texts += page.texts
            if len(texts) >= page.total or not page.texts:
                return texts


def _request(a: Side, b: Side, gates: Gates) -> GateRequest:
    return GateRequest(
        key="compare", namespace="local", name="compare", replicaset="compare", replicaset_uid="", gates=gates,
        candidate=(b.target,), stable=(a.target,), expected_space=a.report.space, sample_digest="",
    )  # fmt: skip


async def _measure_latency(a: Side, b: Side, texts: Sequence[str]) -> None:
    """One text at a time, turn by turn, so that a busy machine slows both sides alike."""
    step = max(1, len(texts) // LATENCY_TEXTS)
    for text in list(texts)[::step][:LATENCY_TEXTS]:
        for side in (a, b):
            answer = await side.client.gate(side.target, side.token, GateQuery(inputs=[text]))
            side.latencies.append(answer.inference_seconds)


def _judged(result: GateResult, a: Side, b: Side, texts: Sequence[str]) -> Comparison:
    verdict, reason, message = result.verdict, result.reason, result.message
    if problem := other_space(a.report, b.report):
        # The operator refuses another space before it compares anything; the numbers are shown all the same.
        verdict, reason, message = Verdict.FAILED, problem.reason, problem.message
    return Comparison(
        verdict, reason, message, tuple(result.values), result.sample_digest, result.sample_count,
        _differing(a.token_digests, b.token_digests), _worst(a, b, texts), a, b,
    )  # fmt: skip


def other_space(stable: PlacementReport, told: PlacementReport) -> Problem | None:
    """The operator's own verdict on the embedding spaces of two servers, as it judges a candidate's pod beside stable's."""
    epoch = datetime.fromtimestamp(0, UTC)
    pods = [PodView("A", "A", "A", epoch, report=stable), PodView("B", "B", "B", epoch, report=told)]
    view = RevisionView("A", "A", "A", epoch, Role.STABLE, 1, True, "", pods=(pods[0],))
    return candidate._other_space(Cast(Target("B", "", 1, None), view, None, ()), pods[1])


def _differing(a: Sequence[str], b: Sequence[str]) -> tuple[int, ...]:
    return tuple(number for number, (one, other) in enumerate(zip(a, b, strict=False), 1) if one != other)


def _worst(a: Side, b: Side, texts: Sequence[str]) -> Worst | None:
    if not a.answers or not b.answers or not texts or a.vectors.shape != b.vectors.shape:
        return None
    cosines = compare.cosines(b.vectors, a.vectors)
    index = compare.statistics(cosines).worst
    return Worst(index + 1, float(cosines[index]), texts[index])


@contextlib.asynccontextmanager
async def _opened(places: Mapping[str, str], tokens: Sequence[str]) -> AsyncIterator[tuple[Side, Side]]:
    """Both sides, ready to be asked."""
    directories = {name: Path(place) for name, place in places.items() if "://" not in place}
    for directory in directories.values():
        check_directory(directory)
    urls = {n: _address(p, tokens, i) for i, (n, p) in enumerate(places.items()) if n not in directories}
    async with contextlib.AsyncExitStack() as stack:
        servers = await stack.enter_async_context(serving(directories))
        sides = []
        for name, place in places.items():
            side = _local(name, place, servers[name]) if name in servers else _remote(name, place, *urls[name])
            stack.push_async_callback(side.client.close)
            sides.append(side)
        for side in sides:
            await _connect(side, servers.get(side.target.uid))
        yield sides[0], sides[1]


def _local(name: str, place: str, server: LocalServer) -> Side:
    client = HttpProbe(server.probe_port, QUERY_SECONDS)
    return Side(place, PodTarget(name, name, LOOPBACK, name), server.token, client, _nothing())


def _remote(name: str, place: str, host: str, port: int, token: str) -> Side:
    return Side(place, PodTarget(place, name, host, ""), token, HttpProbe(port, QUERY_SECONDS), _nothing())


def _nothing() -> PlacementReport:
    return PlacementReport(
        revision="", artifact="", space="", ready=False, cpuset="", online="", numa_nodes=[], physical_cores=0,
        threads_requested=0, threads=0, precision="", fingerprint="",
    )  # fmt: skip


async def _connect(side: Side, server: LocalServer | None) -> None:
    """Learn who answers; a local server is waited for, one behind a URL must be ready."""

    async def ready() -> bool:
        with contextlib.suppress(Transient):
            side.report = await side.client.placement(side.target, side.token)
        return side.report.ready

    if server:
        await wait_ready(server, ready)
        return
    try:
        side.report = await side.client.placement(side.target, side.token, 10.0)
    except Transient as error:
        raise CompareError(f"{side.title} cannot be asked: {error}") from error
    if not side.report.ready:
        raise CompareError(f"{side.title} is not ready: wait until its pod is, and compare again")
    side.target = PodTarget(side.target.name, side.target.uid, side.target.ip, side.report.revision)


def _address(place: str, tokens: Sequence[str], index: int) -> tuple[str, int, str]:
    """Host, port and token of a URL. Raises CompareError."""
    parts = urlsplit(place)
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
        raise CompareError(
            f"{place} is no probe port: write http://HOST:PORT (port {names.PROBE_PORT} of a server pod)"
        )
    if not tokens:
        raise CompareError(f"{place} needs --token: a probe port answers only with the token of its revision")
    try:
        port = parts.port or names.PROBE_PORT
    except ValueError as error:
        raise CompareError(f"{place} has a port outside 1 to 65535") from error
    return parts.hostname, port, tokens[min(index, len(tokens) - 1)]
