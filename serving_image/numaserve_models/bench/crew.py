"""The rungs at work: each with its worker, probed one after the other, then called in turns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from numaserve_models.bench.client import Client, Died, Refused, TooLong
from numaserve_models.bench.material import Material
from numaserve_models.bench.results import Cell, Result
from numaserve_models.running import Array

LOAD_SECONDS = 1800.0
COMPILE_SECONDS = 900.0
"""Beyond the longest call, for a first call that compiles."""
FIRST_SECONDS = 60.0
QUICK_SECONDS = 1.0
"""Calls longer than this are told from their first one; shorter ones are called again."""
WARM_BELOW = 0.3
"""Calls shorter than this begin a turn with an untimed one: others have used the caches since."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where workers run: their folder, threads, CPUs, and the longest call in seconds."""

    folder: Path
    threads: int
    cpus: list[int]
    max_seconds: float


class Member:
    """A rung, what it loads, and its worker while it has one."""

    def __init__(self, result: Result, engine: dict[str, Any], material: Material, place: Place) -> None:
        self.result, self._engine, self._material, self._place = result, engine, material, place
        self._client: Client | None = None
        self.lost = False
        batch = len(next(iter(material.inputs.values())))
        result.cells.update({n: Cell(n, n * batch) for n in material.lengths})

    @property
    def name(self) -> str:
        """The rung's name."""
        return self.result.name

    @property
    def alive(self) -> bool:
        """Whether a worker holds the model."""
        return self._client is not None

    @property
    def costs(self) -> dict[int, float]:
        """Seconds of a call by length, where it can be called."""
        return {
            n: cell.estimate
            for n, cell in self.result.cells.items()
            if cell.estimate is not None and cell.reason is None
        }

    def close(self) -> None:
        """End the worker."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def load(self) -> None:
        """Start the worker and load the model, once more where it was ended. Raises Refused, Died or TooLong."""
        if self._client is not None:
            return
        rung, place = self.result.rung, self._place
        self._client = Client(place.folder, rung.name, None if rung.default_threads else place.threads)
        cpus = [] if rung.default_threads else place.cpus
        try:
            reply = self._client.ask(
                LOAD_SECONDS, "load", engine=self._engine, inputs=str(place.folder / "inputs.json"), cpus=cpus
            )
        except (Refused, Died, TooLong):
            self.close()
            raise
        if self.result.load_seconds is None:
            self.result.load_seconds = round(float(reply["seconds"]), 3)
            self.result.peak_counts_loading = not reply["reset"]
            self.result.library_bytes, self.result.loading_bytes = (
                int(reply["libraryBytes"]),
                int(reply["loadingBytes"]),
            )

    def probe(self) -> None:
        """First calls at each length, shortest first: what a call takes, peak memory, an answer to compare. Never raises."""
        try:
            self.load()
            self._probe_lengths()
            if self.costs:
                self.load()
                self._ask(self._answer_seconds(), "answer", save=str(self._answers))
                self.result.facts = self._ask(self._place.max_seconds, "facts")
        except (Refused, Died, TooLong) as error:
            self._give_up(str(error))

    def _probe_lengths(self) -> None:
        cells = list(self.result.cells.values())
        for place, cell in enumerate(cells):
            try:
                self.load()
                self._first_calls(cell)
            except Refused as error:
                cell.reason = str(error)
            except (Died, TooLong) as error:
                self.close()
                cell.reason = (
                    f"a call took over {self._place.max_seconds:g} s" if isinstance(error, TooLong) else str(error)
                )
            if cell.reason:
                for longer in cells[place + 1 :]:
                    longer.reason = f"not tried after {cell.length} tokens"
                if place == 0:
                    self._give_up(f"at {cell.length} tokens: {cell.reason}")
                return

    def _first_calls(self, cell: Cell) -> None:
        compiles = self.result.rung.variant == "compile"
        limit = self._place.max_seconds
        first = self._run(
            cell, limit + (COMPILE_SECONDS if compiles else FIRST_SECONDS), save=str(self._answer(cell.length))
        )[0]
        cell.first_seconds = first
        quick = first < QUICK_SECONDS or compiles
        cell.estimate = min(self._run(cell, 3 * limit, 3)) if quick else first
        if cell.estimate > limit:
            cell.reason = f"a call took {cell.estimate:.1f} s, over the limit of {limit:g} s"

    def warm(self) -> None:
        """One untimed call at each length after the worker was started again. Raises Refused, Died or TooLong."""
        for length in self.costs:
            self._run(self.result.cells[length], self._place.max_seconds + COMPILE_SECONDS)

    def turn(self, length: int, times: int) -> list[float]:
        """Seconds of ``times`` calls; none where the worker is lost, which the result then names."""
        cell = self.result.cells[length]
        warm = int((cell.estimate or 0.0) < WARM_BELOW)
        try:
            return self._run(cell, 10 + 3 * self._place.max_seconds * (times + warm), times, warm)
        except (Refused, Died, TooLong) as error:
            self._give_up(f"while it was measured at {length} tokens: {error}")
            return []

    def revive(self) -> None:
        """Load again for a group whose turn it is. Never raises."""
        if self.alive or self.lost:
            return
        try:
            self.load()
            self.warm()
        except (Refused, Died, TooLong) as error:
            self._give_up(f"when it was loaded again: {error}")

    def answers(self) -> list[Array] | None:
        """Answers of the samples, where it gave any."""
        if not self._answers.is_file():
            return None
        with np.load(self._answers, allow_pickle=False) as found:
            return [found[f"arr_{i}"] for i in range(len(found.files))]

    def answer_at(self, length: int) -> Array | None:
        """Its answer to the input of a length, float32 [batch, …]."""
        path = self._answer(length)
        found: Array | None = np.load(path, allow_pickle=False) if path.is_file() else None
        return found

    @property
    def _answers(self) -> Path:
        return self._place.folder / f"{self.name}.npz"

    def _answer(self, length: int) -> Path:
        return self._place.folder / f"{self.name}-{length}.npy"

    def _answer_seconds(self) -> float:
        return 120 + len(self._material.encoded) * self._place.max_seconds

    def _run(self, cell: Cell, limit: float, times: int = 1, warm: int = 0, save: str | None = None) -> list[float]:
        reply = self._ask(limit, "run", length=cell.length, times=times, warm=warm, save=save)
        cell.peak_bytes = (
            max(cell.peak_bytes or 0, int(reply["peakBytes"])) if cell.estimate is None else cell.peak_bytes
        )
        seconds: list[float] = reply["seconds"]
        return seconds

    def _ask(self, limit: float, do: str, **request: Any) -> dict[str, Any]:
        if self._client is None:
            raise Died("its worker is gone")
        return self._client.ask(limit, do, **request)

    def _give_up(self, reason: str) -> None:
        self.close()
        self.lost = True
        self.result.reason = reason
