"""Prometheus metrics of the server."""

from __future__ import annotations

import resource
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from numaserve_serving.engine.observer import Observer

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


class Metrics(Observer):
    """Everything a dashboard or an autoscaler reads; texts never enter a label."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.requests = Counter("numaserve_requests", "Answered requests.", ["route", "code"], registry=r)
        self.seconds = Histogram("numaserve_request_seconds", "End to end.", ["route"], buckets=_SECONDS, registry=r)
        self.texts = Counter("numaserve_texts", "Texts embedded.", registry=r)
        self.tokens = Counter("numaserve_tokens", "Tokens computed, special tokens included.", registry=r)
        self.cut = Counter(
            "numaserve_truncated_tokens", "Tokens cut because a text was longer than the window.", registry=r
        )
        self.queued = Histogram(
            "numaserve_queue_seconds", "Time a text waited for its batch.", buckets=_SECONDS, registry=r
        )
        self.tokenise = Histogram(
            "numaserve_tokenise_seconds", "Time to tokenise a request.", buckets=_SECONDS, registry=r
        )
        self.infer = Histogram("numaserve_inference_seconds", "Time of a batch.", buckets=_SECONDS, registry=r)
        self.batch = Histogram(
            "numaserve_batch_tokens", "Tokens of a batch, padding included.", buckets=_TOKENS, registry=r
        )
        self.padding = Gauge("numaserve_padding_ratio", "Padding share of the latest batch.", ["bucket"], registry=r)
        self.depth = Gauge("numaserve_queue_tokens", "Tokens waiting.", registry=r)
        self.in_flight = Gauge("numaserve_requests_in_flight", "Requests being answered.", registry=r)
        self.rss = Gauge("numaserve_max_resident_bytes", "Largest resident memory so far.", registry=r)
        self.throttled = Gauge(
            "numaserve_throttled_periods", "CFS periods in which the cgroup was throttled.", registry=r
        )
        self.switches = Gauge("numaserve_involuntary_context_switches", "Times a thread lost its core.", registry=r)
        self.info = Info("numaserve_model", "Revision, space and what is really executed.", registry=r)

    def tokenised(self, seconds: float) -> None:
        self.tokenise.observe(seconds)

    def embedded(self, texts: int, tokens: int, truncated: int) -> None:
        self.texts.inc(texts)
        self.tokens.inc(tokens)
        self.cut.inc(truncated)

    def inferred(self, seconds: float, tokens: Sequence[int], width: int, queued: Sequence[float]) -> None:
        self.infer.observe(seconds)
        self.batch.observe(width * len(tokens))
        self.padding.labels(str(width)).set(1 - sum(tokens) / (width * len(tokens)))
        for wait in queued:
            self.queued.observe(max(wait, 0.0))

    def render(self, queued_tokens: int, throttled: int | None) -> bytes:
        """The exposition, with the readings that are taken when asked for."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.rss.set(usage.ru_maxrss * 1024)
        self.switches.set(usage.ru_nivcsw)
        self.depth.set(queued_tokens)
        if throttled is not None:
            self.throttled.set(throttled)
        content: bytes = generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return content
