"""The engine: a token-counted queue, one worker thread per model, and vectors that are vectors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from numaserve_serving.backends import Backend
from numaserve_serving.backends.base import Ids, Vectors
from numaserve_serving.engine.errors import InferenceError, InputError, QueueFull
from numaserve_serving.engine.observer import Observer
from numaserve_serving.engine.policy import Limits, next_batch, padded_length
from numaserve_serving.engine.tokenizer import Encoded, Tokenizer

logger = logging.getLogger(__name__)
QUEUE_TOKENS = 65_536
SLICE_TOKENS = 16_384
STUCK_SECONDS = 120.0
"""A single inference this long is taken for a hang: far above the longest window on one thread."""


@dataclass(eq=False)
class _Waiting:
    encoded: Encoded
    future: asyncio.Future[Vectors]
    since: float


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors [n, d] of a request, and what was computed for it."""

    vectors: Vectors
    tokens: int
    truncated: int


@dataclass
class Engine:
    """Turns texts into vectors. One inference runs at a time, on every thread the model owns."""

    backend: Backend
    tokenizer: Tokenizer
    max_tokens: int
    observer: Observer = field(default_factory=Observer)
    limits: Limits = field(default_factory=Limits)
    queue_tokens: int = QUEUE_TOKENS
    slice_tokens: int = SLICE_TOKENS

    def __post_init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="infer")
        self._tokenise = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._worker: asyncio.Task[None] | None = None
        self._busy_since: float | None = None
        self._rate = 2000.0

    def start(self) -> None:
        """Start the worker in the running loop."""
        self._worker = asyncio.get_running_loop().create_task(self._work(), name="worker")

    async def close(self) -> None:
        """Stop the worker; texts still waiting fail."""
        if self._worker:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._tokenise.shutdown(wait=False, cancel_futures=True)

    @property
    def queued_tokens(self) -> int:
        """Tokens waiting to be inferred."""
        return sum(len(w.encoded.ids) for w in self._waiting)

    @property
    def healthy(self) -> bool:
        """Whether the worker lives and is not stuck in one inference."""
        if self._worker is None or self._worker.done():
            return False
        return self._busy_since is None or time.monotonic() - self._busy_since < STUCK_SECONDS

    async def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Token ids of texts, off the event loop."""
        begin = time.perf_counter()
        encoded = await asyncio.get_running_loop().run_in_executor(self._tokenise, self.tokenizer.encode, list(texts))
        self.observer.tokenised(time.perf_counter() - begin)
        return encoded

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Vectors of a request's texts. Raises InputError, QueueFull or InferenceError."""
        encoded = await self.encode(texts)
        vectors = await self.infer(encoded)
        tokens = sum(len(e.ids) for e in encoded)
        truncated = sum(e.truncated for e in encoded)
        self.observer.embedded(len(texts), tokens, truncated)
        return Embedded(vectors, tokens, truncated)

    async def infer(self, encoded: Sequence[Encoded]) -> Vectors:
        """Vectors [n, d] of token ids. A large request is admitted slice by slice, so that others still find room."""
        parts = [await self._admit(piece, first=number == 0) for number, piece in enumerate(self._slices(encoded))]
        return np.concatenate(parts)

    def _slices(self, encoded: Sequence[Encoded]) -> list[list[Encoded]]:
        slices: list[list[Encoded]] = [[]]
        tokens = 0
        for text in encoded:
            if slices[-1] and tokens + len(text.ids) > self.slice_tokens:
                slices.append([])
                tokens = 0
            slices[-1].append(text)
            tokens += len(text.ids)
        return slices

    async def _admit(self, encoded: Sequence[Encoded], first: bool) -> Vectors:
        """Queue a slice and wait for it. Only a request that was not begun is refused for a full queue."""
        tokens = sum(len(e.ids) for e in encoded)
        while self.queued_tokens and self.queued_tokens + tokens > self.queue_tokens:
            queued = self.queued_tokens
            wait = queued / self._rate
            if first:
                raise QueueFull(f"{queued} tokens wait, at most {self.queue_tokens}; come again in {wait:.1f} s", wait)
            await asyncio.sleep(min(wait, 0.05))
        loop = asyncio.get_running_loop()
        entries = [_Waiting(e, loop.create_future(), time.perf_counter()) for e in encoded]
        self._waiting += entries
        self._arrived.set()
        try:
            return np.concatenate(await asyncio.gather(*(entry.future for entry in entries)))
        finally:
            # One text failed, or the caller left: its other texts are not inferred any more.
            for entry in entries:
                entry.future.cancel()

    async def infer_now(self, encoded: Sequence[Encoded]) -> Vectors:
        """Vectors of one batch exactly as given, past the scheduler: warm-up, self-test and gate batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, list(encoded))

    async def _work(self) -> None:
        while True:
            await self._arrived.wait()
            self._waiting = [w for w in self._waiting if not w.future.done()]
            try:
                batch = self._pick()
            except Exception as error:
                # A fault in scheduling fails who waits now; it must not end the worker.
                logger.exception("scheduling failed")
                _fail(self._waiting, InferenceError(f"scheduling failed: {error}"))
                continue
            if not batch:
                self._arrived.clear()
                continue
            await self._infer_batch(batch)

    def _pick(self) -> list[_Waiting]:
        counts = [len(w.encoded.ids) for w in self._waiting]
        chosen = [self._waiting[i] for i in next_batch(counts, self.limits)]
        taken = set(map(id, chosen))
        self._waiting = [w for w in self._waiting if id(w) not in taken]
        return chosen

    async def _infer_batch(self, batch: list[_Waiting]) -> None:
        begin = time.perf_counter()
        try:
            vectors = await self.infer_now([w.encoded for w in batch])
            self._observe(batch, begin)
            for entry, row in zip(batch, vectors, strict=True):
                if not entry.future.done():
                    _deliver(entry, row)
        except Exception as error:
            # A failing batch fails alone; the worker goes on.
            logger.warning("a batch of %d texts failed: %s", len(batch), error)
            _fail(batch, InferenceError(f"inference failed: {error}"))

    def _observe(self, batch: list[_Waiting], begin: float) -> None:
        seconds = time.perf_counter() - begin
        counts = [len(w.encoded.ids) for w in batch]
        self._rate = 0.8 * self._rate + 0.2 * sum(counts) / max(seconds, 1e-6)
        width = padded_length(max(counts), self.max_tokens)
        self.observer.inferred(seconds, counts, width, [begin - w.since for w in batch])

    def _run(self, encoded: list[Encoded]) -> Vectors:
        longest = max(len(e.ids) for e in encoded)
        width = padded_length(longest, self.max_tokens)
        ids: Ids = np.zeros((len(encoded), width), dtype=np.int64)
        mask: Ids = np.zeros_like(ids)
        for row, text in enumerate(encoded):
            ids[row, : len(text.ids)] = text.ids
            mask[row, : len(text.ids)] = 1
        self._busy_since = time.monotonic()
        try:
            return self.backend.infer(ids, mask)
        finally:
            self._busy_since = None


def _deliver(entry: _Waiting, row: Vectors) -> None:
    """A vector that is not one never goes out: better an error than a wrong answer."""
    if not (np.isfinite(row).all() and float(np.linalg.norm(row)) > 1e-12):
        entry.future.set_exception(InferenceError("the model gave NaN, infinity or a zero vector for this text"))
        return
    entry.future.set_result(row[np.newaxis, :])


def _fail(batch: list[_Waiting], error: Exception) -> None:
    for entry in batch:
        if not entry.future.done():
            entry.future.set_exception(error)


def shorten(vectors: Vectors, dimension: int) -> Vectors:
    """The first components of Matryoshka vectors, made unit length again. Raises InputError where nothing is left."""
    cut = vectors[:, :dimension]
    norms = np.linalg.norm(cut, axis=1, keepdims=True)
    if not (norms > 1e-12).all():
        raise InputError(f"a vector has no direction in its first {dimension} components: ask for more dimensions")
    short: Vectors = (cut / norms).astype(np.float32)
    return short
