"""Exporting an artifact: graph, tokenizer, samples with FP32 vectors, self-test, manifest, config.

The directory appears whole or not at all, and only after the graph agreed with its source.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
import yaml
from tokenizers import Tokenizer

from numaserve_api.config import ConfigDeploy, ModelConfig, Pooling, Quantization, Scheme, Task, Window
from numaserve_api.manifest import CONFIG_FILE, MANIFEST_FILE, ArtifactFiles, Manifest, ModelFacts, manifest_digest
from numaserve_api.resource import dump
from numaserve_models import graph
from numaserve_models.digest import default_space, digest_file, entries
from numaserve_models.errors import ExportError
from numaserve_models.samples import sample_texts

Array = npt.NDArray[np.float32]
MIN_COSINE = {Scheme.NONE: 0.9999, Scheme.BF16: 0.9999, Scheme.INT8_WEIGHTS: 0.95}
"""Below these an export is broken, whatever a gate may ask later."""
MAX_ERROR = 1e-4
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export and how. ``buckets`` and ``max_tokens`` in tokens."""

    source: Path
    tokenizer: Path
    out: Path
    pooling: Pooling = Pooling.MEAN
    scheme: Scheme = Scheme.NONE
    normalize: bool = True
    max_tokens: int = 128
    positions: int = 512
    buckets: tuple[int, ...] = (32, 64, 128)
    threads: int = 1
    space: str | None = None
    deploy_source: str = "pvc://models/artifact"
    samples: tuple[str, ...] = ()


def export(request: ExportRequest, progress: Progress = lambda _: None) -> str:
    """Write the artifact directory and return its hash. Raises ExportError and leaves nothing behind."""
    if request.scheme == "fp16":
        raise ExportError("scheme fp16 is refused: it brings no gain on CPUs; use bf16 or int8-weights")
    if request.out.exists():
        raise ExportError(f"{request.out} exists: remove it or name another directory")
    request.out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{request.out.name}.", dir=request.out.parent))
    try:
        digest = _Export(request, work, progress).run()
        work.chmod(0o755)
        work.rename(request.out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return digest


@dataclass
class _Export:
    request: ExportRequest
    folder: Path
    progress: Progress

    def run(self) -> str:
        request = self.request
        self.progress("reading the source")
        exact = graph.embedding_graph(request.source, request.pooling, request.normalize)
        tokenizer = self._tokenizer()
        texts = list(request.samples or sample_texts())
        encoded = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        self.progress(f"FP32 vectors of {len(texts)} samples")
        reference = run_batches(exact, encoded)
        self._check_against_source(exact, encoded)
        self.progress(f"weights: {request.scheme}")
        final = graph.quantise(
            graph.embedding_graph(request.source, request.pooling, request.normalize), request.scheme
        )
        graph.save(final, self.folder)
        self.progress("comparing the export with FP32")
        answers = run_batches(ov.Core().read_model(str(self.folder / "openvino_model.xml")), encoded)
        self._check_export(reference, answers)
        self._write_samples(texts, reference)
        self._write_selftest(tokenizer, texts, encoded, answers)
        self.progress("manifest")
        return self._write_manifest(exact, reference.shape[1])

    def _tokenizer(self) -> Tokenizer:
        try:
            tokenizer = Tokenizer.from_file(str(self.request.tokenizer))
        except BaseException as error:  # the Rust side panics with a BaseException
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise ExportError(f"{self.request.tokenizer.name} is not a usable tokenizer.json: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.save(str(self.folder / "tokenizer.json"))
        tokenizer.enable_truncation(self.request.max_tokens)
        return tokenizer

    def _check_against_source(self, exact: ov.Model, encoded: Sequence[list[int]]) -> None:
        """Our graph against the source's own token vectors, pooled here in numpy, at several shapes."""
        source = graph.read(self.request.source)
        shapes = _shapes(encoded, self.request.max_tokens)
        worst, where = 0.0, ""
        for name, batch in shapes.items():
            ids, mask = pad(batch)
            expected = _pool_in_numpy(_hidden(source, ids, mask), mask, self.request.pooling, self.request.normalize)
            error = float(np.abs(_infer(exact, ids, mask) - expected).max())
            if error > worst:
                worst, where = error, name
        if not (worst <= MAX_ERROR):
            raise ExportError(
                f"the exported graph differs from its source by {worst:.2e} at shape {where}, at most {MAX_ERROR:g}"
            )

    def _check_export(self, reference: Array, answers: Array) -> None:
        if not np.isfinite(answers).all():
            raise ExportError("the exported graph answers NaN or infinity: its weights do not survive this scheme")
        cosines = _cosines(reference, answers)
        worst, bound = int(cosines.argmin()), MIN_COSINE[self.request.scheme]
        if not (cosines[worst] >= bound):
            raise ExportError(
                f"scheme {self.request.scheme} answers sample {worst + 1} with cosine {cosines[worst]:.4f} to FP32, at least {bound} is asked"
            )

    def _write_samples(self, texts: Sequence[str], reference: Array) -> None:
        lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        (self.folder / "samples.jsonl").write_text(lines, encoding="utf-8")
        np.save(self.folder / "reference.npy", reference.astype("<f4"))

    def _write_selftest(
        self, tokenizer: Tokenizer, texts: Sequence[str], encoded: Sequence[list[int]], answers: Array
    ) -> None:
        """For each bucket the longest sample that fits it whole."""
        tokenizer.no_truncation()
        full = [len(e.ids) for e in tokenizer.encode_batch(list(texts))]
        chosen: dict[int, int] = {}
        for bucket in self.request.buckets:
            fitting = [i for i, n in enumerate(full) if n <= bucket and n == len(encoded[i])]
            if fitting:
                chosen[bucket] = max(fitting, key=lambda i: (full[i], -i))
        tests = [
            {"bucket": b, "text": texts[i], "tokens": full[i], "vector": [round(float(x), 6) for x in answers[i]]}
            for b, i in chosen.items()
        ]
        (self.folder / "selftest.json").write_text(
            json.dumps(tests, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )

    def _write_manifest(self, exact: ov.Model, dimension: int) -> str:
        request = self.request
        weights, tokens = digest_file(request.source), digest_file(self.folder / "tokenizer.json")
        space = request.space or default_space(weights, tokens, request.pooling.value, dimension)
        quantization = Quantization(scheme=request.scheme)
        facts = ModelFacts(
            task=Task.EMBEDDING, pooling=request.pooling, normalize=request.normalize, dimensions=[dimension],
            max_tokens=min(request.max_tokens, request.positions), positions=request.positions, layers=graph.layers(exact),
            space=space, weights_digest=weights, tokenizer_digest=tokens,
        )  # fmt: skip
        parts = ArtifactFiles(samples="samples.jsonl", reference="reference.npy", selftest="selftest.json")
        names = [parts.graph, parts.weights, parts.tokenizer, "samples.jsonl", "reference.npy", "selftest.json"]
        manifest = Manifest(
            version=1, files=entries(self.folder, names), parts=parts, model=facts, quantization=quantization,
            provenance={"source": request.source.name, "sourceDigest": weights, "openvino": ov.get_version()},
        )  # fmt: skip
        content = (json.dumps(dump(manifest), indent=2, ensure_ascii=False) + "\n").encode()
        (self.folder / MANIFEST_FILE).write_bytes(content)
        digest = manifest_digest(content)
        (self.folder / CONFIG_FILE).write_text(yaml.safe_dump(dump(self._config(digest, space)), sort_keys=False))
        return digest

    def _config(self, digest: str, space: str) -> ConfigDeploy:
        request = self.request
        model = ModelConfig(
            source=request.deploy_source, hash=digest, task=Task.EMBEDDING, pooling=request.pooling,
            normalize=request.normalize, space=space,
        )  # fmt: skip
        window = Window(max_tokens=request.max_tokens, buckets=list(request.buckets))
        return ConfigDeploy(
            version=1,
            model=model,
            window=window,
            quantization=Quantization(scheme=request.scheme),
            threads=request.threads,
        )


def pad(batch: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Token ids and mask, int64 [batch, longest], zero-padded on the right."""
    width = max(len(ids) for ids in batch)
    ids = np.zeros((len(batch), width), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(batch):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask


def run_batches(model: ov.Model, encoded: Sequence[list[int]], size: int = 16) -> Array:
    """Vectors [n, d] in FP32 arithmetic, in the order given; inferred in order of length."""
    compiled = _compile(model)
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
    out: dict[int, Any] = {}
    for start in range(0, len(order), size):
        indices = order[start : start + size]
        ids, mask = pad([encoded[i] for i in indices])
        out.update(zip(indices, compiled({graph.IDS: ids, graph.MASK: mask})[0], strict=True))
    return np.stack([out[i] for i in range(len(encoded))]).astype(np.float32)


def _compile(model: ov.Model) -> ov.CompiledModel:
    return ov.Core().compile_model(
        model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    )


def _infer(model: ov.Model, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> Array:
    answer: Array = np.asarray(_compile(model)({graph.IDS: ids, graph.MASK: mask})[0], dtype=np.float32)
    return answer


def _hidden(source: ov.Model, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> Array:
    output = graph.hidden_states(source, "the source")
    feed = {graph.IDS: ids, graph.MASK: mask}
    if any(i.get_any_name() == graph.TYPES for i in source.inputs):
        feed[graph.TYPES] = np.zeros_like(ids)
    index = next(i for i, o in enumerate(source.outputs) if o.get_any_name() == output.get_any_name())
    hidden: Array = np.asarray(_compile(source)(feed)[index], dtype=np.float32)
    return hidden


def _pool_in_numpy(hidden: Array, mask: npt.NDArray[np.int64], pooling: Pooling, normalize: bool) -> Array:
    if pooling is Pooling.CLS:
        pooled = hidden[:, 0]
    elif pooling is Pooling.LAST:
        pooled = hidden[np.arange(len(hidden)), mask.sum(axis=1) - 1]
    else:
        pooled = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    norms = np.linalg.norm(pooled, axis=1, keepdims=True) if normalize else 1.0
    answer: Array = (pooled / norms).astype(np.float32)
    return answer


def _shapes(encoded: Sequence[list[int]], max_tokens: int) -> dict[str, list[list[int]]]:
    """Batch 1, a padded batch, the shortest, a bucket edge and the maximum."""
    by_length = sorted(encoded, key=len)
    longest = by_length[-1]
    stretched = [*(longest[:-1] * (max_tokens // max(len(longest) - 1, 1) + 1))[: max_tokens - 1], longest[-1]]
    return {
        "batch 1": [list(encoded[0])],
        "a padded batch": [by_length[0], by_length[len(by_length) // 2], longest],
        "the shortest": [by_length[0]],
        "16 tokens": [(stretched * 2)[:16]],
        "the maximum": [stretched],
    }


def _cosines(a: Array, b: Array) -> npt.NDArray[np.float64]:
    left, right = a.astype(np.float64), b.astype(np.float64)
    product: npt.NDArray[np.float64] = (left * right).sum(axis=1)
    cosines: npt.NDArray[np.float64] = product / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))
    return cosines
