"""Exporting an artifact: graph, tokenizer, samples with FP32 answers, self-test, manifest, config.

The directory appears whole or not at all, and only after the graph agreed with its source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from pydantic import ValidationError

from numaserve_api.config import ConfigDeploy, ModelConfig, Output, Pooling, Quantization, Scheme, Task, Window
from numaserve_api.manifest import ModelFacts
from numaserve_api.validate import sentences
from numaserve_models import branches, graph, switch, texts, validation, windows
from numaserve_models.artifact import new_directory, seal, write_samples, write_selftest
from numaserve_models.digest import default_space, digest_file
from numaserve_models.errors import ExportError
from numaserve_models.origin import Origin, Traits, open_origin
from numaserve_models.running import Array, Runner, encode, load_tokenizer, rows, summary
from numaserve_models.source.limits import Limits, buckets, limits
from numaserve_models.source.locate import Location, locate

Progress = Callable[[str], None]
GRAPH = "openvino_model.xml"
NO_HASH = "sha256:" + "0" * 64
SAME = 64
"""Samples that are tokenised a second time by the source's own library."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export and how. Lengths in tokens; None leaves a choice to what the source says of itself.

    ``switch`` is the length above which sliding layers run block-local; None measures it, 0 keeps one form.
    ``positions`` is asked for only where the source is a bare graph.
    """

    source: str | Path
    out: Path
    tokenizer: Path | None = None
    task: Task | None = None
    output: Output | None = None
    pooling: Pooling | None = None
    normalize: bool | None = None
    head: str | None = None
    adapter: Path | None = None
    labels: tuple[str, ...] = ()
    activation: str | None = None
    scheme: Scheme = Scheme.NONE
    max_tokens: int | None = None
    positions: int | None = None
    buckets: tuple[int, ...] | None = None
    switch: int | None = None
    threads: int = 1
    space: str | None = None
    deploy_source: str = "pvc://models/artifact"
    samples: tuple[Mapping[str, Any], ...] = field(default=())
    trust_remote_code: bool = False


def export(request: ExportRequest, progress: Progress = lambda _: None) -> str:
    """Write the artifact directory and return its hash. Raises ExportError and leaves nothing behind."""
    if request.scheme == "fp16":
        raise ExportError("scheme fp16 is refused: it brings no gain on CPUs; use bf16 or int8-weights")
    if request.out.exists():
        raise ExportError(f"{request.out} exists: remove it or name another directory")
    _check_words(request)
    if request.scheme is not Scheme.NONE:
        return _export_quantised(request, progress)
    with new_directory(request.out) as folder:
        return _Export(request, folder, progress).run()


def _check_words(request: ExportRequest) -> None:
    """What ends up in the config is checked before hours of work, not after them."""
    try:
        ModelConfig(source=request.deploy_source, hash=NO_HASH, task=Task.EMBEDDING, space=request.space)
    except ValidationError as error:
        raise ExportError("; ".join(sentences(error, "config.model"))) from error


def _export_quantised(request: ExportRequest, progress: Progress) -> str:
    """In FP32 first, then in the scheme asked for, as `models quantize` does."""
    from numaserve_models.quantize import QuantizeRequest, quantize

    request.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{request.out.name}.fp32.", dir=request.out.parent) as scratch:
        exact = Path(scratch) / "fp32"
        export(replace(request, out=exact, scheme=Scheme.NONE), progress)
        return quantize(exact, request.out, QuantizeRequest(request.scheme), progress)


class _Export:
    def __init__(self, request: ExportRequest, folder: Path, progress: Progress) -> None:
        self.request, self.folder, self.progress = request, folder, progress
        self.notes: list[str] = []

    def run(self) -> str:
        request = self.request
        self.progress("reading the source")
        location = locate(str(request.source), request.trust_remote_code)
        origin = open_origin(location, request)
        traits = origin.traits
        self.task, self.tokenizer = traits.task, self._tokenizer(origin)
        window = limits(request.max_tokens, traits.trained, traits.tokenizer_limit, traits.positions)
        self.buckets = self._buckets(window)
        samples = list(request.samples or texts.default_samples(traits.task, traits.output, window.max_tokens))
        encoded = self._encode(samples, origin, window)
        layers, change = self._write_graph(origin, window)
        runner = Runner(self.folder / GRAPH)
        checked = validation.shapes(encoded, self.buckets, window.max_tokens, change)
        worst = validation.validate(origin, runner, checked, self.progress)
        self.progress(f"FP32 answers of {len(samples)} samples")
        answers = runner.answers(encoded)
        if not all(np.isfinite(answer).all() for answer in answers):
            raise ExportError("the exported graph answers NaN or infinity: its weights do not work in FP32")
        write_samples(self.folder, samples, rows(answers))
        self._write_selftest(samples, encoded, answers)
        self.progress("manifest")
        facts = self._facts(origin, window, layers, change, answers)
        return seal(self.folder, facts, self._config(facts, traits), self._provenance(location, origin, worst))

    def _buckets(self, window: Limits) -> list[int]:
        asked = self.request.buckets
        if asked and asked[-1] > window.max_tokens:
            raise ExportError(
                f"--buckets reaches {asked[-1]} tokens, the window is {window.max_tokens}: name shorter ones"
            )
        return list(asked or buckets(window.max_tokens))

    def _tokenizer(self, origin: Origin) -> Any:
        tokenizer = load_tokenizer(origin.tokenizer)
        if origin.traits.lower_case:
            texts.lower_case(tokenizer)
        texts.check_vocabulary(tokenizer, origin.traits.vocabulary)
        tokenizer.save(str(self.folder / "tokenizer.json"))
        return tokenizer

    def _encode(self, samples: Sequence[Mapping[str, Any]], origin: Origin, window: Limits) -> list[list[int]]:
        traits = origin.traits
        given = texts.inputs(samples, traits.task)
        for note in traits.notes:
            self._note(note)
        encoded = encode(self.tokenizer, given, window.max_tokens, traits.truncate_side)
        texts.check_same(encoded[:SAME], origin.tokenise(given[:SAME], window.max_tokens))
        texts.check_encoded(encoded)
        if traits.task is Task.RERANK and traits.separator is not None:
            texts.check_segments(origin.segments([g for g in given if not isinstance(g, str)]), traits.separator)
        if traits.pooling is Pooling.LAST and not texts.ends_alike(encoded):
            self._note(
                "texts end in different tokens: the tokenizer appends no end token for last-token pooling to read"
            )
        if window.untrained:
            self._note(f"maxTokens {window.max_tokens} is beyond the {window.trained} tokens the model was trained on")
        return encoded

    def _write_graph(self, origin: Origin, window: Limits) -> tuple[list[str], int | None]:
        """The graph on disk; what its layers compute; the switch, where it has two forms."""
        self.progress("making the graph")
        dense = origin.graph()
        traits = origin.traits
        length = windows.probe_length(traits.declared, traits.positions)
        self.progress(f"probing what each layer sees at {length} tokens")
        layers = windows.probe_layers(dense, length)
        layers = windows.check_declared(layers, traits.declared, length)
        change = None
        if traits.sliding and self.request.switch != 0:
            dense, change = self._two_forms(origin, dense, window)
        graph.save(dense, self.folder)
        return layers, change

    def _two_forms(self, origin: Origin, dense: ov.Model, window: Limits) -> tuple[ov.Model, int | None]:
        local = origin.graph(by_blocks=True)
        change = self.request.switch
        if change is None:
            change = switch.choose(switch.measure(dense, local, window.max_tokens, self.request.threads, self.progress))
        if change is None or change >= window.max_tokens:
            self._note("block-local attention wins at no length within the window: the graph is dense throughout")
            return dense, None
        return branches.combine(dense, local, change), change

    def _write_selftest(
        self, samples: Sequence[Mapping[str, Any]], encoded: list[list[int]], answers: list[Array]
    ) -> None:
        """For each bucket the longest sample that fits it whole."""
        full = [len(e.ids) for e in self.tokenizer.encode_batch(texts.inputs(samples, self.task))]
        tests = []
        for bucket in self.buckets:
            fitting = [i for i, n in enumerate(full) if n <= bucket and n == len(encoded[i])]
            if fitting:
                chosen = max(fitting, key=lambda i: (full[i], -i))
                said = {k: samples[chosen][k] for k in ("query", "text") if k in samples[chosen]}
                vector = [round(float(x), 6) for x in summary(answers[chosen])]
                tests.append({"bucket": bucket, **said, "tokens": full[chosen], "vector": vector})
        write_selftest(self.folder, tests)

    def _facts(
        self, origin: Origin, window: Limits, layers: list[str], change: int | None, answers: list[Array]
    ) -> ModelFacts:
        traits, width = origin.traits, int(answers[0].shape[-1])
        tokens = digest_file(self.folder / "tokenizer.json")
        smaller = [d for d in traits.dimensions if d < width]
        if traits.labels and traits.output is not Output.SPARSE and len(traits.labels) != width:
            raise ExportError(
                f"the graph answers {width} logits, {len(traits.labels)} labels are given: name each, in order"
            )
        says = [traits.output.value, traits.normalize, sorted(traits.prompts), traits.settings_digest]
        space = default_space(traits.weights_digest, tokens, traits.pooling.value, width, says)
        return ModelFacts(
            task=traits.task, output=traits.output, pooling=traits.pooling, normalize=traits.normalize,
            dimensions=[width, *smaller], max_tokens=window.max_tokens, positions=traits.positions, layers=layers,
            architecture=traits.architecture, trained_tokens=window.trained, switch_tokens=change,
            labels=list(traits.labels) or None, activation=traits.activation, prompts=dict(traits.prompts) or None,
            default_prompt=traits.default_prompt, space=self.request.space or space, weights_digest=traits.weights_digest,
            tokenizer_digest=tokens,
        )  # fmt: skip

    def _config(self, facts: ModelFacts, traits: Traits) -> ConfigDeploy:
        request = self.request
        default, sizes = traits.default_dimension, facts.dimensions
        if default in sizes:
            sizes = [default, *(d for d in sizes if d != default)]
        model = ModelConfig(
            source=request.deploy_source, hash=NO_HASH, task=facts.task, output=facts.output, pooling=facts.pooling,
            normalize=facts.normalize, dimensions=sizes if len(sizes) > 1 else None, space=facts.space,
        )  # fmt: skip
        window = Window(max_tokens=facts.max_tokens, buckets=self.buckets, truncate_side=traits.truncate_side)
        return ConfigDeploy(
            version=1,
            model=model,
            window=window,
            quantization=Quantization(scheme=Scheme.NONE),
            threads=request.threads,
        )

    def _provenance(self, location: Location, origin: Origin, worst: validation.Worst) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "source": location.name,
            "sourceDigest": origin.traits.weights_digest,
            "tools": {name: version(name) for name in origin.tools},
            "validation": {"shapes": worst.shapes, "maxError": float(f"{validation.MAX_ERROR:g}")},
        }
        if location.revision:
            facts["revision"] = location.revision
        if origin.remote_code:
            facts["remoteCode"] = dict(origin.remote_code)
        if self.notes:
            facts["notes"] = self.notes
        return facts

    def _note(self, sentence: str) -> None:
        """Kept in the manifest, and told."""
        self.notes.append(sentence)
        self.progress(f"note: {sentence}")
