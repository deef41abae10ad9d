"""Loaded candidates, as many at once as memory allows."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from numaserve_api.config import DEFAULT_DYNAMIC_GROUP, Quantization, Scheme
from numaserve_models.bench.machine import memory_limit
from numaserve_models.errors import ExportError
from numaserve_models.recommend.decide import Candidate
from numaserve_models.recommend.execution import Executed, executed
from numaserve_serving.backends import BackendError, BackendSettings, OpenVinoBackend

COPIES = 3
"""Times its file that a loaded graph may take: the file mapped, weights packed for the kernels, activations."""
MOST = 12
TOKEN = 1
"""What texts for timing consist of: every vocabulary has it, and speed does not depend on it."""


class Pool:
    """Backends of candidates; the one that was used longest ago makes room."""

    def __init__(
        self, graphs: Mapping[Scheme, Path], groups: Mapping[Scheme, int], limit: Callable[[], int] = memory_limit
    ) -> None:
        self._graphs, self._groups = graphs, groups
        largest = max((path.with_suffix(".bin").stat().st_size for path in graphs.values()), default=1)
        self._capacity = max(1, min(MOST, limit() // max(1, COPIES * largest)))
        self._loaded: OrderedDict[Candidate, tuple[OpenVinoBackend, set[int]]] = OrderedDict()
        self.executed: dict[tuple[Scheme, str], Executed] = {}

    def __len__(self) -> int:
        return len(self._loaded)

    def __call__(self, candidate: Candidate, length: int, times: int) -> list[float]:
        """Seconds of ``times`` calls with one text of ``length`` tokens. Raises ExportError."""
        try:
            return self._timed(candidate, length, times)
        except BackendError as error:
            self._loaded.pop(candidate, None)
            raise ExportError(str(error)) from error

    def clear(self) -> None:
        """Give the memory back."""
        self._loaded.clear()

    def _timed(self, candidate: Candidate, length: int, times: int) -> list[float]:
        backend, warm = self._backend(candidate)
        ids = np.full((1, length), TOKEN, dtype=np.int64)
        mask = np.ones_like(ids)
        if length not in warm:
            backend.infer(ids, mask)  # builds the kernels
            warm.add(length)
            self._note(candidate, backend)
        seconds = []
        for _ in range(times):
            begin = time.perf_counter()
            backend.infer(ids, mask)
            seconds.append(time.perf_counter() - begin)
        return seconds

    def _backend(self, candidate: Candidate) -> tuple[OpenVinoBackend, set[int]]:
        if candidate not in self._loaded:
            while len(self._loaded) >= self._capacity:
                self._loaded.popitem(last=False)
            backend = OpenVinoBackend(self._graphs[candidate.scheme], self.settings(candidate))
            self._loaded[candidate] = backend, set()
        self._loaded.move_to_end(candidate)
        return self._loaded[candidate]

    def settings(self, candidate: Candidate) -> BackendSettings:
        """As a server would compile it, unpinned: these cores are shared."""
        return BackendSettings(candidate.threads, candidate.activations, self._groups.get(candidate.scheme, 0))

    def _note(self, candidate: Candidate, backend: OpenVinoBackend) -> None:
        facts = backend.facts
        if facts.precision != candidate.activations:
            raise ExportError(f"this CPU executes {facts.precision} where {candidate.activations} is asked")
        if facts.threads != candidate.threads:
            raise ExportError(f"the runtime uses {facts.threads} threads where {candidate.threads} are asked")
        if candidate.variant not in self.executed:
            graph = self._graphs[candidate.scheme]
            self.executed[candidate.variant] = executed(graph, backend, self.settings(candidate))


def group_of(quantization: Quantization) -> int:
    """The dynamic group that a config would hand to the runtime."""
    if quantization.scheme is not Scheme.INT8_WEIGHTS:
        return 0
    return DEFAULT_DYNAMIC_GROUP if quantization.dynamic_group is None else quantization.dynamic_group
