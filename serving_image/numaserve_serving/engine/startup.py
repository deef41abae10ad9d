"""From a config and an artifact to an engine that has proved itself: verify, compile, self-test, warm up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from numaserve_api.conditions import Reason
from numaserve_api.config import ConfigDeploy
from numaserve_serving.backends import (
    Backend,
    BackendError,
    BackendFacts,
    BackendSettings,
    OpenVinoBackend,
    empty_cache,
)
from numaserve_serving.engine.artifact import Artifact, load_artifact
from numaserve_serving.engine.errors import InputError, StartupError
from numaserve_serving.engine.policy import padded_length
from numaserve_serving.engine.tokenizer import Encoded, Tokenizer
from numaserve_serving.system.placement import Roots, online_cpus

SELF_TEST_COSINE = 0.99
"""Kernels of other CPUs round differently; a wrong graph is far below this."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a server needs of a model."""

    config: ConfigDeploy
    artifact: Artifact
    tokenizer: Tokenizer
    backend: Backend
    facts: BackendFacts


def load(
    config: ConfigDeploy, root: Path, cache: Path | None, progress: Progress = lambda _: None, cpus: int | None = None
) -> Loaded:
    """Load a model and prove it; ``cpus`` are the whole CPUs the container was given. Raises StartupError."""
    try:
        return _load(config, root, cache, progress, cpus)
    except StartupError:
        raise
    except Exception as error:
        # Whatever breaks here must reach the operator as a reason, not as a traceback.
        raise StartupError(
            Reason.ARTIFACT_INVALID, f"{type(error).__name__} while loading the artifact: {error}"
        ) from error


def _load(config: ConfigDeploy, root: Path, cache: Path | None, progress: Progress, cpus: int | None) -> Loaded:
    artifact = load_artifact(root, config, progress)
    parts = artifact.manifest.parts
    tokenizer = Tokenizer(artifact.path(parts.tokenizer), config.window)
    settings = backend_settings(config, cache, cpus)
    progress("compiling the graph")
    try:
        backend = OpenVinoBackend(artifact.path(parts.graph), settings)
    except BackendError as error:
        raise StartupError(Reason.ARTIFACT_INVALID, str(error)) from error
    progress("self-test")
    backend = _proved(artifact, tokenizer, backend, settings)
    for bucket in config.buckets:
        progress(f"warming bucket {bucket}")
        _warm(backend, min(bucket, config.window.max_tokens))
    _check_width(artifact, backend)
    facts = backend.facts
    _check_read_back(settings, facts)
    return Loaded(config, artifact, tokenizer, backend, facts)


def _proved(
    artifact: Artifact, tokenizer: Tokenizer, backend: OpenVinoBackend, settings: BackendSettings
) -> OpenVinoBackend:
    """A backend that reproduces the artifact's vectors; a cached graph that does not is compiled once more without cache."""
    try:
        _self_test(artifact, tokenizer, backend)
    except StartupError:
        if settings.cache is None:
            raise
        empty_cache(settings.cache)
        backend = OpenVinoBackend(artifact.path(artifact.manifest.parts.graph), replace(settings, cache=None))
        _self_test(artifact, tokenizer, backend)
    return backend


def backend_settings(config: ConfigDeploy, cache: Path | None, cpus: int | None) -> BackendSettings:
    """How the config is executed: bf16 only where it says so, pinning only on cores nobody else may use."""
    roots = Roots()
    mine = roots.affinity()
    return BackendSettings(
        threads=config.threads,
        precision=config.precision,
        dynamic_group=config.dynamic_group,
        pin=mine != online_cpus(roots) and len(mine) == cpus,
        cache=cache,
    )


def _check_read_back(settings: BackendSettings, facts: BackendFacts) -> None:
    """What the runtime uses must be what was asked: it may choose silently (openvino#21590)."""
    if facts.precision != settings.precision:
        raise StartupError(
            Reason.PRECISION_MISMATCH,
            f"the runtime computes in {facts.precision}, {settings.precision} was asked for. "
            "This CPU may lack it: change spec.config.quantization or select other nodes",
        )
    if facts.threads != settings.threads:
        raise StartupError(
            Reason.THREADS_MISMATCH,
            f"the runtime uses {facts.threads} threads, spec.config.threads is {settings.threads}; "
            f"this process may run on {len(os.sched_getaffinity(0))} CPUs",
        )


def _check_width(artifact: Artifact, backend: Backend) -> None:
    ids = np.ones((1, 1), dtype=np.int64)
    width, claimed = backend.infer(ids, np.ones_like(ids)).shape[-1], max(artifact.manifest.model.dimensions)
    if width != claimed:
        raise StartupError(
            Reason.ARTIFACT_INVALID,
            f"the graph answers {width} components, manifest.json says {claimed}: export the artifact again",
        )


def _warm(backend: Backend, length: int) -> None:
    ids = np.full((1, length), 1, dtype=np.int64)
    backend.infer(ids, np.ones_like(ids))


def _self_test(artifact: Artifact, tokenizer: Tokenizer, backend: Backend) -> None:
    """The artifact's own vectors, recomputed here: catches a stale cache, a wrong kernel, a swapped tokenizer."""
    part = artifact.manifest.parts.selftest
    if part is None:
        return
    limit = artifact.manifest.model.max_tokens
    for entry in _entries(artifact.path(part)):
        try:
            encoded = tokenizer.encode([entry["text"]])[0]
        except InputError:
            continue  # longer than this deployment's window, which rejects instead of truncating
        if len(encoded.ids) != entry["tokens"] and not encoded.truncated:
            raise StartupError(
                Reason.SELF_TEST_FAILED,
                f"the self-test text of bucket {entry['bucket']} has {len(encoded.ids)} tokens, {entry['tokens']} were recorded: "
                "the tokenizer behaves differently",
            )
        if encoded.truncated:
            continue  # the deployment's window is narrower than this bucket
        cosine = _cosine(_vector(backend, encoded, limit), np.asarray(entry["vector"], dtype=np.float64))
        if not (cosine >= SELF_TEST_COSINE):
            raise StartupError(
                Reason.SELF_TEST_FAILED,
                f"the self-test vector of bucket {entry['bucket']} is reproduced with cosine {cosine:.4f}, at least "
                f"{SELF_TEST_COSINE} is needed: the artifact does not run correctly on this CPU",
            )


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text())
    except ValueError as error:
        raise StartupError(Reason.ARTIFACT_INVALID, f"{path.name} is not JSON: {error}") from error
    return entries


def _vector(backend: Backend, encoded: Encoded, limit: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The answer to one text, [width]; of an answer a token the mean, as the artifact recorded it, padding left out."""
    width = padded_length(len(encoded.ids), limit)
    ids = np.zeros((1, width), dtype=np.int64)
    mask = np.zeros_like(ids)
    ids[0, : len(encoded.ids)] = encoded.ids
    mask[0, : len(encoded.ids)] = 1
    answer: np.ndarray[Any, np.dtype[np.float64]] = backend.infer(ids, mask)[0].astype(np.float64)
    return answer if answer.ndim == 1 else answer[: len(encoded.ids)].mean(axis=0)


def _cosine(a: np.ndarray[Any, np.dtype[np.float64]], b: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    if a.shape != b.shape:
        return float("nan")
    with np.errstate(all="ignore"):
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
