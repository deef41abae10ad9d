"""`models quantize`: read the FP32 artifact, make the graph, measure it as it will run, write it or nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from numaserve_api.config import ConfigDeploy, Scheme
from numaserve_models import branches, graph
from numaserve_models.artifact import Artifact, new_directory, open_artifact, seal, write_selftest
from numaserve_models.digest import artifact_hash
from numaserve_models.errors import ExportError
from numaserve_models.quantize import schemes
from numaserve_models.quantize.bounds import FLOORS, Agreement, Bounds, agreement, refuse_below
from numaserve_models.quantize.calibration import CalibrationSet, choose_set, read_calibration, stratify
from numaserve_models.quantize.control import control, rank_layers
from numaserve_models.quantize.request import QuantizeRequest, refuse_request, refuse_source
from numaserve_models.running import Array, Runner, encode, load_tokenizer, pad, summary
from numaserve_models.texts import inputs

Progress = Callable[[str], None]
GRAPH = "openvino_model.xml"
LONG_SAMPLES = 8
"""Texts at least that the block-local form answers: short ones are padded beyond the switch where long ones are few."""


def quantize(source: Path, out: Path, request: QuantizeRequest, progress: Progress = lambda _: None) -> str:
    """Write ``source`` in another scheme to ``out`` and return its hash. Raises ExportError and leaves nothing behind."""
    refuse_request(request)
    artifact = open_artifact(source)
    refuse_source(artifact)
    with new_directory(out) as folder:
        return _Quantization(artifact, request, folder, progress).run()


@dataclass(frozen=True, slots=True)
class _Made:
    """A graph in its scheme (None: the source's own files) and how it came about."""

    model: ov.Model | None
    kept: tuple[str, ...] = ()
    calibration: CalibrationSet | None = None


class _Quantization:
    def __init__(self, source: Artifact, request: QuantizeRequest, folder: Path, progress: Progress) -> None:
        self.source, self.request, self.folder, self.progress = source, request, folder, progress
        self.tokenizer = load_tokenizer(source.tokenizer)
        samples = source.samples()
        self.texts = [str(sample["text"]) for sample in samples]
        self.encoded = self._encode(samples)
        self.reference: Array = _present(source.reference())
        self.switch = branches.switch_of(self._read())
        self.padded = self._texts_to_pad()

    def _encode(self, samples: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """Token ids of texts, or of queries and texts where the model takes both."""
        facts = self.source.manifest.model
        side = self.source.config.window.truncate_side
        return encode(self.tokenizer, inputs(samples, facts.task), facts.max_tokens, side)

    def run(self) -> str:
        self.progress("checking the FP32 graph against its own answers")
        self._check_source()
        if self.request.scheme is Scheme.NONE:
            return self._copy()
        self.progress(f"weights: {self.request.scheme}")
        made = self._make()
        self._write_graph(made)
        config = self._config(made)
        self.progress("comparing with FP32")
        runner = Runner(self.folder / GRAPH, config.precision, config.dynamic_group)
        found = self._measure(runner)
        remedy = (
            "use a scheme of higher precision"
            if self.request.bounds is None
            else "lower the bound or use a scheme of higher precision"
        )
        self._refuse_below(found, self.request.target, self.request.scheme, remedy)
        self._carry_over()
        self._write_selftest(runner)
        self.progress("manifest")
        return seal(self.folder, self.source.manifest.model, config, self._provenance(made, runner, found))

    def _check_source(self) -> None:
        found = self._measure(Runner(self.source.graph))
        self._refuse_below(
            found, FLOORS[Scheme.NONE], Scheme.NONE,
            "reference.npy is not what the FP32 graph answers, export the artifact again",
        )  # fmt: skip

    def _texts_to_pad(self) -> list[int]:
        """Samples answered by the block-local form too, padded beyond the switch: else few or none would try it."""
        lengths = [len(ids) for ids in self.encoded]
        missing = 0 if self.switch is None else LONG_SAMPLES - sum(n > self.switch for n in lengths)
        short = [i for i, n in enumerate(lengths) if self.switch is not None and n <= self.switch]
        chosen = stratify([lengths[i] for i in short], self.source.config.buckets, max(0, missing))
        return [short[i] for i in chosen]

    def _measure(self, runner: Runner) -> Agreement:
        answers = runner.answers(self.encoded)
        ends = np.cumsum([1 if answer.ndim == 1 else len(answer) for answer in answers])
        wanted = [self.reference[(ends[i - 1] if i else 0) : ends[i]] for i in self.padded]
        again = [self._beyond_switch(runner, self.encoded[i]) for i in self.padded]
        return agreement([*answers, *again], np.concatenate([self.reference, *wanted]))

    def _beyond_switch(self, runner: Runner, tokens: Sequence[int]) -> Array:
        ids, mask = pad([tokens], (self.switch or 0) + 1)
        answer: Array = runner(ids, mask)[0]
        return answer[: len(tokens)] if answer.ndim == 2 else answer

    def _refuse_below(self, found: Agreement, bounds: Bounds, scheme: Scheme, remedy: str) -> None:
        refuse_below(found, bounds, scheme, [*self.texts, *(self.texts[i] for i in self.padded)], remedy)

    def _copy(self) -> str:
        """Everything as it is: the same files are the same artifact."""
        shutil.copytree(self.source.root, self.folder, dirs_exist_ok=True)
        return artifact_hash(self.folder)

    def _make(self) -> _Made:
        scheme = self.request.scheme
        if scheme is Scheme.INT8_WEIGHTS:
            return _Made(schemes.compress_int8(self._read()))
        if scheme is Scheme.INT4_WEIGHTS:
            return _Made(schemes.compress_int4(self._read(), self.request.ratio))
        return self._static() if scheme is Scheme.INT8 else _Made(None)

    def _static(self) -> _Made:
        chosen = self._calibration_set()
        attempts = 0

        def attempt(kept: Sequence[str]) -> tuple[ov.Model, Agreement]:
            nonlocal attempts
            attempts += 1
            words = f", try {attempts}: {len(kept)} layers kept in FP32" if kept else ""
            self.progress(f"calibrating on {len(chosen.texts)} samples{words}")
            model = schemes.quantise_static(self._read(), chosen.encoded, kept, self.request.smooth)
            return model, self._measure(Runner(model, self.request.activations))

        if not self.request.control:
            return _Made(attempt(())[0], (), chosen)
        done = control(attempt, lambda model: self._rank(model, chosen), self.request.target, self.request.max_kept)
        return _Made(done.model, done.kept, chosen)

    def _rank(self, model: ov.Model, chosen: CalibrationSet) -> list[tuple[str, ...]]:
        self.progress("finding the layers that quantisation hurts")
        return rank_layers(self._read(), model, chosen.encoded)

    def _calibration_set(self) -> CalibrationSet:
        texts, encoded = self.texts, self.encoded
        if self.request.calibration is not None:
            samples = read_calibration(self.request.calibration)
            texts, encoded = [str(sample["text"]) for sample in samples], self._encode(samples)
        return choose_set(texts, encoded, self.source.config.buckets, self.request.calibration_samples)

    def _read(self) -> ov.Model:
        return graph.read(self.source.graph)

    def _write_graph(self, made: _Made) -> None:
        if made.model is not None:
            graph.save(made.model, self.folder)
            return
        shutil.copyfile(self.source.graph, self.folder / GRAPH)
        shutil.copyfile(self.source.root / self.source.manifest.parts.weights, self.folder / "openvino_model.bin")

    def _carry_over(self) -> None:
        """Every other file of the artifact, unchanged: tokenizer, samples, FP32 answers, and what else it has."""
        parts = self.source.manifest.parts
        for entry in self.source.manifest.files:
            if entry.path not in (parts.graph, parts.weights, parts.selftest):
                target = self.folder / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.source.root / entry.path, target)

    def _write_selftest(self, runner: Runner) -> None:
        """The source's texts with the vectors that this graph answers, executed as it will be."""
        part = self.source.manifest.parts.selftest
        if part is None:
            return
        tests: list[dict[str, Any]] = json.loads((self.source.root / part).read_text(encoding="utf-8"))
        vectors = [[round(float(x), 6) for x in summary(a)] for a in runner.answers(self._encode(tests))]
        write_selftest(self.folder, [{**test, "vector": v} for test, v in zip(tests, vectors, strict=True)])

    def _config(self, made: _Made) -> ConfigDeploy:
        config, request = self.source.config, self.request
        facts = made.calibration.facts if made.calibration else None
        model = config.model.model_copy(update={"source": request.deploy_source or config.model.source})
        return config.model_copy(update={"model": model, "quantization": request.quantization(facts)})

    def _provenance(self, made: _Made, runner: Runner, found: Agreement) -> dict[str, Any]:
        # Four digits: enough to judge, and not a digest of the last bit of somebody's CPU.
        facts: dict[str, Any] = {
            "from": artifact_hash(self.source.root),
            "nncf": version("nncf"),
            "executed": runner.compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name(),
            "cosine": {"mean": round(found.mean, 4), "min": round(found.worst, 4), "samples": found.samples},
        }
        if self.request.scheme is Scheme.INT8:
            facts["keptPrecision"] = list(made.kept)
        if self.request.scheme is Scheme.INT4_WEIGHTS:
            facts |= {"groupSize": schemes.group_size(self._read()), "ratio": self.request.ratio}
        return {**self.source.manifest.provenance, "quantization": facts}


def _present(reference: Array | None) -> Array:
    if reference is None:
        raise ExportError("the artifact has no reference.npy: export it with samples")
    return reference
