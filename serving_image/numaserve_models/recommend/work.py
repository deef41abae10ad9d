"""`models recommend`: make the schemes, measure their answers, race them, write the config that meets the bounds."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import yaml

from numaserve_api.config import ConfigDeploy, Scheme
from numaserve_api.manifest import CONFIG_FILE
from numaserve_api.resource import dump
from numaserve_models.artifact import Artifact, open_artifact
from numaserve_models.bench.machine import machine
from numaserve_models.errors import ExportError
from numaserve_models.quantize import QuantizeRequest, quantize
from numaserve_models.recommend.accuracy import Judge
from numaserve_models.recommend.decide import Candidate, Choice, choose, shortfall, variants
from numaserve_models.recommend.pool import Pool, group_of
from numaserve_models.recommend.report import Recommendation, Variant
from numaserve_models.recommend.request import RecommendRequest, refuse, schemes_of
from numaserve_models.recommend.rounds import Race

Progress = Callable[[str], None]
MAKING = 0.6
"""Share of the budget after which no step of making a scheme is begun: the rest is for timing."""


def recommend(
    request: RecommendRequest, progress: Progress = lambda _: None, now: Callable[[], float] = time.monotonic
) -> Recommendation:
    """Measure, choose, and write artifact and config where something meets the bounds. Raises ExportError.

    What is begun when the budget ends is finished: one step of making a scheme, or one call.
    """
    source = open_artifact(request.source)
    refuse(request, source)
    parent = request.artifact_out.parent if request.artifact_out is not None else None
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".recommend.", dir=parent) as scratch:
        return _Recommending(request, source, Path(scratch), progress, now).run()


class _Recommending:
    def __init__(
        self, request: RecommendRequest, source: Artifact, scratch: Path, progress: Progress, now: Callable[[], float]
    ) -> None:
        self.request, self.source, self.scratch, self.progress, self.now = request, source, scratch, progress, now
        self.goal = request.goal(source.config.buckets)
        self.threads = request.ladder()
        self.begin = now()
        self.artifacts: dict[Scheme, Artifact] = {}
        self.variants: dict[tuple[Scheme, str], Variant] = {}

    def run(self) -> Recommendation:
        judge = Judge(self.source, self.request.samples, max(self.threads))
        for scheme, hint in variants(schemes_of(self.request, self.source), self.request.activations):
            self.variants[scheme, hint] = self._judged(judge, scheme, hint)
        standing = [v for v in self.variants.values() if v.reason is None]
        pool = Pool(
            {s: a.graph for s, a in self.artifacts.items()},
            {s: group_of(a.config.quantization) for s, a in self.artifacts.items()},
        )
        race = Race(self.goal, pool, self.now, self.begin + self.request.budget, self.progress)
        race.run([Candidate(n, v.scheme, v.activations) for v in standing for n in self.threads])
        pool.clear()
        final = {c: t for c, t in race.timings.items() if c not in race.left}
        accuracy = {v.key: v.agreement for v in standing if v.agreement is not None}
        choice = choose(final, accuracy, self.goal) if standing else self._nothing_accurate()
        written = None if choice.candidate is None else self._write(choice.candidate)
        return Recommendation(
            self.goal, self.request.bounds, choice, list(self.variants.values()), race.timings, race.left, pool.executed,
            machine(), self.now() - self.begin, written,
        )  # fmt: skip

    def _judged(self, judge: Judge, scheme: Scheme, hint: Literal["f32", "bf16"]) -> Variant:
        """A variant with its accuracy, or with the reason why it takes no part."""
        try:
            artifact = self._artifact(scheme)
            self.progress(f"comparing {scheme}, {hint} with FP32")
            found = judge(artifact.graph, hint, group_of(artifact.config.quantization))
        except ExportError as error:
            return Variant(scheme, hint, None, str(error))
        return Variant(scheme, hint, found, shortfall(found, self.request.bounds))

    def _artifact(self, scheme: Scheme) -> Artifact:
        """The source in a scheme; made once, one after the other."""
        if scheme in self.artifacts:
            return self.artifacts[scheme]
        failed = next((v.reason for v in self.variants.values() if v.scheme is scheme and v.agreement is None), None)
        if failed is not None:
            raise ExportError(failed)
        # Scheme bf16 is the same graph: a copy of it is made only if it is chosen.
        if scheme in (self.source.manifest.quantization.scheme, Scheme.BF16):
            self.artifacts[scheme] = self.source
            return self.source
        self._making(f"making {scheme}")
        quantize(self.source.root, self.scratch / scheme, self._quantize_request(scheme), self._making)
        self.artifacts[scheme] = open_artifact(self.scratch / scheme)
        return self.artifacts[scheme]

    def _making(self, step: str) -> None:
        """Shows a step of making a scheme; raises ExportError where its time is over, which leaves nothing behind."""
        if self.now() - self.begin > MAKING * self.request.budget:
            raise ExportError(
                f"not made: {MAKING:.0%} of {self.request.budget:g} s were over before {step!r}, give it more with --budget"
            )
        self.progress(step)

    def _quantize_request(self, scheme: Scheme) -> QuantizeRequest:
        # Static int8 keeps layers in FP32 until the bound holds; the others have no such means and are judged here.
        return QuantizeRequest(scheme, bounds=self.request.bounds if scheme is Scheme.INT8 else None)

    def _nothing_accurate(self) -> Choice:
        judged = [v for v in self.variants.values() if v.agreement is not None]
        if not judged:
            reasons = "; ".join(f"{v.name}: {v.reason}" for v in self.variants.values())
            return Choice(None, None, f"no scheme could be measured: {reasons}")
        nearest = max(judged, key=lambda v: v.ranking)
        return Choice(None, None, f"no scheme is accurate enough; nearest is {nearest.name}: {nearest.reason}")

    def _write(self, chosen: Candidate) -> tuple[Path, Path]:
        """The artifact in place and the config written; their paths."""
        root, artifact = self._place(chosen.scheme)
        quantization = artifact.config.quantization
        hint = quantization.activations if chosen.scheme is Scheme.BF16 else chosen.activations
        config = artifact.config.model_copy(
            update={"threads": chosen.threads, "quantization": quantization.model_copy(update={"activations": hint})}
        )
        out = self.request.out or root / CONFIG_FILE
        if root != self.source.root:
            _write_config(root / CONFIG_FILE, config)
        if out != root / CONFIG_FILE or root == self.source.root:
            _write_config(out, config)
        return root, out

    def _place(self, scheme: Scheme) -> tuple[Path, Artifact]:
        out = self.request.artifact_out
        if scheme is self.source.manifest.quantization.scheme or out is None:
            return self.source.root, self.source
        if scheme is Scheme.BF16:
            quantize(self.source.root, out, QuantizeRequest(scheme), self.progress)
        else:
            shutil.move(self.scratch / scheme, out)
        return out, open_artifact(out)


def _write_config(path: Path, config: ConfigDeploy) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(yaml.safe_dump(dump(config), sort_keys=False, allow_unicode=True), encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
