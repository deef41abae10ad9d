"""`models bench`: prepare, probe every rung, measure them in turns, say what was found."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from numaserve_models.artifact import new_directory
from numaserve_models.bench import plan, stats
from numaserve_models.bench.crew import Member, Place
from numaserve_models.bench.machine import Others, machine, memory_limit, physical_cores
from numaserve_models.bench.material import Material, gather, sort_sources
from numaserve_models.bench.request import BenchRequest, Step, Watch
from numaserve_models.bench.results import Accuracy, Bench, Cell, Result
from numaserve_models.bench.rungs import baseline_first, baseline_of, select
from numaserve_models.bench.supply import Supply, Unavailable
from numaserve_models.errors import ExportError
from numaserve_models.quantize.bounds import agreement
from numaserve_models.running import Array, cosines, rows

SAME = 0.999
"""Mean cosine of PyTorch to the artifact's FP32 answers below which they are not one model."""
BUSY = 0.1
"""Share of the CPUs taken by others from which numbers are doubted."""


def bench(request: BenchRequest, watch: Watch = lambda _: None) -> Bench:
    """Run the ladder and write bench.json, bench.md and index.html. Raises ExportError; a rung that fails is a row."""
    from numaserve_models.bench.report import write

    cores = physical_cores()
    request.refuse(len(cores))
    with new_directory(request.out) as folder, tempfile.TemporaryDirectory(prefix="numaserve-bench-") as scratch:
        found = _Ladder(request, Path(scratch), cores, watch).run()
        write(found, folder)
    return found


class _Ladder:
    def __init__(self, request: BenchRequest, folder: Path, cores: list[int], watch: Watch) -> None:
        self._request, self._folder, self._watch = request, folder, watch
        self._rungs = select(request.rungs)
        self._threads = request.threads or len(cores)
        self._place = Place(folder, self._threads, cores[: self._threads], request.max_seconds)
        self._limit = request.memory or memory_limit()
        self._members: dict[str, Member] = {}
        self._notes: list[str] = []
        self._others: float | None = None
        self._step = Step("preparing", "", 0, 0)

    def run(self) -> Bench:
        begin = time.monotonic()
        facts = machine()
        sources = sort_sources(self._request.sources)
        supply = Supply(sources, self._folder, self._threads, self._making)
        self._tell("preparing", "inputs", 0, 0)
        material = gather(sources, self._request.lengths, self._request.batch, supply.describe)
        material.write(self._folder / "inputs.json")
        results = [Result(rung) for rung in self._rungs]
        try:
            self._probe(results, supply, material)
            others = Others()
            self._measure(self._request.budget)
            self._doubt(others.share())
        except KeyboardInterrupt:
            self._notes.append("The bench was stopped by hand: later rounds are missing.")
        finally:
            for member in self._members.values():
                member.close()
        baseline = self._baseline()
        self._finish(material, baseline)
        if not any(result.status != "not run" for result in results):
            raise ExportError(
                "no rung could be measured: " + "; ".join(f"{r.name}: {r.reason}" for r in results if r.reason)
            )
        return Bench(
            model=self._model(material), machine={**facts, "othersShare": self._others}, settings=self._settings(), baseline=baseline,
            lengths=list(material.lengths), results=results, notes=self._notes, seconds=time.monotonic() - begin,
        )  # fmt: skip

    def _probe(self, results: Sequence[Result], supply: Supply, material: Material) -> None:
        """First calls of every rung, one after the other."""
        by_name = {result.name: result for result in results}
        for done, rung in enumerate(baseline_first(self._rungs)):
            result = by_name[rung.name]
            self._tell("probing", rung.name, done, len(results))
            try:
                engine = supply.engine(rung, material)
            except Unavailable as error:
                result.reason = str(error)
                continue
            member = self._members[rung.name] = Member(result, engine, material, self._place)
            member.probe()
            self._make_room(member)

    def _make_room(self, latest: Member) -> None:
        """End the latest worker where another like the largest would not fit beside those alive."""
        alive = [m.result.peak_bytes or 0 for m in self._members.values() if m.alive]
        if sum(alive) + max(alive, default=0) > self._limit and latest.name != self._baseline():
            latest.close()

    def _baseline(self) -> str | None:
        return baseline_of([name for name, member in self._members.items() if member.costs])

    def _measure(self, budget: float) -> None:
        usable = {name: member for name, member in self._members.items() if member.costs and not member.lost}
        baseline = baseline_of(list(usable))
        if baseline is None:
            return
        made = plan.groups({n: m.result.peak_bytes or 0 for n, m in usable.items()}, baseline, self._limit)
        if len(made) > 1:
            self._notes.append(
                f"All rungs together would not fit {self._limit / 2**30:.1f} GiB: they ran in {len(made)} groups, each with {baseline}."
            )
        weights = [sum(sum(usable[name].costs.values()) for name in group) for group in made]
        for group, weight in zip(made, weights, strict=True):
            for name, member in usable.items():
                if name not in group:
                    member.close()
            self._measure_group([usable[name] for name in group], budget * weight / sum(weights), baseline)

    def _measure_group(self, group: list[Member], budget: float, baseline: str) -> None:
        for member in group:
            member.revive()
        lengths = sorted({n for member in group for n in member.costs})
        costs = {n: {m.name: m.costs[n] for m in group if n in m.costs and not m.lost} for n in lengths}
        for length, turns in plan.plan(costs, budget, self._request.rounds).items():
            self._measure_length([m for m in group if m.name in costs[length]], length, turns, baseline)

    def _measure_length(self, group: list[Member], length: int, turns: plan.Turns, baseline: str) -> None:
        """Rounds in which each rung has a turn; cut short, never below three, where they take far longer than planned."""
        if not group:
            return
        planned = sum(turns.calls(m.name) * m.costs[length] for m in group)
        begin = time.monotonic()
        by_name = {member.name: member for member in group}
        for number in range(turns.rounds):
            seconds: dict[str, list[float]] = {}
            for done, name in enumerate(plan.order(list(by_name), number)):
                member = by_name[name]
                self._tell(f"measuring {length} tokens", name, number * len(group) + done, turns.rounds * len(group))
                seconds[name] = [] if member.lost else member.turn(length, turns.bursts[name])
            for name, member in by_name.items():
                cell = member.result.cells[length]
                cell.turns.append(seconds[name])
                cell.baseline_turns.append(seconds.get(baseline, []))
            if number + 1 >= plan.LEAST and time.monotonic() - begin > 1.5 * planned + 1:
                break

    def _doubt(self, others: float) -> None:
        """Say so where the machine was not ours: threads that wait for each other suffer most, and not all rungs alike."""
        self._others = round(others, 3)
        if others > BUSY:
            self._notes.append(
                f"Other processes took {others:.0%} of these CPUs while it was measured: repeat it on an idle machine before "
                "these numbers are used. Runtimes whose threads wait for each other (PyTorch) suffer most."
            )

    def _finish(self, material: Material, baseline: str | None) -> None:
        """Statistics and accuracy of what was measured."""
        exact = self._members[baseline] if baseline else None
        for member in self._members.values():
            for length, cell in member.result.cells.items():
                _summarise(cell)
                if exact is not None:
                    cell.cosine = _cosine(exact.answer_at(length), member.answer_at(length))
            self._judge(member, material, exact)
        plain = self._members.get("torch-fp32")
        if plain is not None and (doubt := stranger(plain.result)):
            self._notes.append(doubt)

    def _judge(self, member: Member, material: Material, exact: Member | None) -> None:
        answers, reference = member.answers(), material.reference
        if reference is None and exact is not None and (known := exact.answers()):
            reference = rows(known)
        if answers is None or reference is None:
            return
        try:
            found = agreement(answers, reference)
        except ExportError as error:
            member.result.accuracy_reason = str(error)
            return
        largest = float(np.abs(rows(answers) - reference).max())
        member.result.accuracy = Accuracy(found.mean, found.worst, stats.drift(found.mean), largest, found.samples)

    def _model(self, material: Material) -> dict[str, object]:
        return {
            "name": material.name, "task": material.task.value, "output": material.output.value,
            "pooling": material.pooling.value, "normalize": material.normalize,
            "reference": "the artifact's FP32 answers" if material.reference is not None else "the baseline's answers",
        }  # fmt: skip

    def _settings(self) -> dict[str, object]:
        request = self._request
        return {
            "batch": request.batch, "threads": self._threads, "rounds": request.rounds, "budgetSeconds": request.budget,
            "maxSecondsPerCall": request.max_seconds, "minCosine": request.min_cosine, "memoryLimitBytes": self._limit,
        }  # fmt: skip

    def _making(self, what: str) -> None:
        self._tell(self._step.stage, what, self._step.done, self._step.total)

    def _tell(self, stage: str, now: str, done: int, total: int) -> None:
        self._step = Step(stage, now, done, total)
        self._watch(self._step)


def stranger(plain: Result) -> str | None:
    """A sentence where PyTorch's answers are not the artifact's: then the directory is of another model."""
    if plain.accuracy is None or plain.accuracy.mean >= SAME:
        return None
    return (
        f"{plain.name} answers with mean cosine {plain.accuracy.mean:.4f} to the artifact's FP32 answers: the directory and the "
        "artifact are not the same model, or answer differently; no rung of PyTorch or ONNX Runtime is comparable."
    )


def _summarise(cell: Cell) -> None:
    calls = [seconds for turn in cell.turns for seconds in turn]
    if not calls:
        return
    cell.latency = stats.latency(calls)
    found = stats.ratio(cell.baseline_turns, cell.turns)
    cell.speedup = found if found.rounds else None


def _cosine(exact: Array | None, ours: Array | None) -> float | None:
    """Mean cosine of two answers to one input, over its rows; None where one is missing or of another shape."""
    if exact is None or ours is None or exact.shape != ours.shape:
        return None
    width = exact.shape[-1]
    values = cosines(exact.reshape(-1, width), ours.reshape(-1, width))
    return float(values.mean()) if np.isfinite(values).all() else None
