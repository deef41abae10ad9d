"""Running a graph on texts: padding, batching by length, answers a text at a time, cosines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import openvino as ov
from tokenizers import Tokenizer

from numaserve_models.errors import ExportError, said
from numaserve_models.source.pointer import refuse_pointer

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Text = str | tuple[str, str]
"""A text, or a query and a text."""
BATCH_TOKENS = 4096
"""Tokens of one batch, padding included: bounds memory at long lengths."""


def load_tokenizer(path: Path) -> Tokenizer:
    """tokenizer.json without padding or truncation. Raises ExportError, also where the Rust side panics."""
    refuse_pointer(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode("warm")
    except BaseException as error:  # the Rust side panics with a BaseException (tokenizers#1349)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise ExportError(
            f"{path.name} is not a usable tokenizer.json ({error}): save it again with the fast tokenizer"
        ) from error
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[Text], max_tokens: int, side: str = "right") -> list[list[int]]:
    """Token ids of texts, special tokens kept whichever text is cut at ``max_tokens``, on ``side``."""
    tokenizer.enable_truncation(max_tokens, direction=side)
    try:
        return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
    finally:
        tokenizer.no_truncation()


def pad(batch: Sequence[Sequence[int]], width: int = 0) -> tuple[Ids, Ids]:
    """Token ids and mask, int64 [batch, longest or ``width``], zero-padded on the right."""
    width = max(width, *(len(ids) for ids in batch))
    ids = np.zeros((len(batch), width), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(batch):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask


class Runner:
    """A graph compiled for one precision. ``threads`` 0 leaves their number to the runtime."""

    def __init__(self, model: ov.Model | Path, precision: str = "f32", group: int = 0, threads: int = 0) -> None:
        core = ov.Core()
        graph = core.read_model(str(model)) if isinstance(model, Path) else model
        options = {"INFERENCE_PRECISION_HINT": precision, "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(group)}
        if threads:
            options["INFERENCE_NUM_THREADS"] = str(threads)
        try:
            self.compiled = core.compile_model(graph, "CPU", options)
        except RuntimeError as error:
            raise ExportError(f"the runtime cannot compile the graph: {said(error)}") from error
        self._request = self.compiled.create_infer_request()

    def __call__(self, ids: Ids, mask: Ids) -> Array:
        """The answer of one batch, float32 [batch, …]."""
        try:
            result = self._request.infer({"input_ids": ids, "attention_mask": mask})
        except RuntimeError as error:
            raise ExportError(
                f"the graph cannot be run on a batch of {ids.shape[0]} x {ids.shape[1]} tokens ({said(error)}): is the window longer "
                "than the model's positions?"
            ) from error
        return np.array(result[0], dtype=np.float32, copy=True)

    def answers(self, encoded: Sequence[Sequence[int]]) -> list[Array]:
        """One answer a text in the order given: [width], or [tokens, width] without padding."""
        out: dict[int, Array] = {}
        for indices in _batches([len(e) for e in encoded]):
            result = self(*pad([encoded[i] for i in indices]))
            for index, row in zip(indices, result, strict=True):
                out[index] = row[: len(encoded[index])] if row.ndim == 2 else row
        return [out[i] for i in range(len(encoded))]


def rows(answers: Sequence[Array]) -> Array:
    """Answers one under the other, float32 [n, width]: a row a text, or a row a token."""
    return np.concatenate([a[np.newaxis] if a.ndim == 1 else a for a in answers]).astype(np.float32)


def summary(answer: Array) -> Array:
    """One row for a text: the answer itself, or the mean over its tokens."""
    return answer if answer.ndim == 1 else answer.mean(axis=0).astype(np.float32)


def cosines(a: Array, b: Array) -> npt.NDArray[np.float64]:
    """Cosine of each pair of rows of two [n, d] arrays, float64 [n]; NaN where a row has no direction."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        values: npt.NDArray[np.float64] = np.einsum("nd,nd->n", left, right) / norms
    return values


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Indices in order of length, as many together as the token budget allows."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        last = batches[-1] if batches else None
        if last is not None and (len(last) + 1) * lengths[index] <= BATCH_TOKENS and len(last) < 32:
            last.append(index)
        else:
            batches.append([index])
    return batches
