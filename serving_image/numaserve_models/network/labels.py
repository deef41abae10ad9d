"""What a labelling model says of itself: its task, its activation, and where a pair's second segment begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from numaserve_api.config import Task
from numaserve_models.errors import ExportError
from numaserve_models.running import load_tokenizer
from numaserve_models.source.chain import Chain

_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "none", "Softmax": "softmax"}


def task_of(config: Any, chain: Chain, is_chain: bool) -> Task:
    """What the config's class answers. A sentence-transformers chain is an embedding model unless it says otherwise."""
    if is_chain:
        return chain.task or Task.EMBEDDING
    names = " ".join(getattr(config, "architectures", None) or [])
    if "ForTokenClassification" in names:
        return Task.TOKEN_CLASSIFICATION
    if "ForSequenceClassification" in names:
        return Task.RERANK if _stated(config) or int(config.num_labels) == 1 else Task.CLASSIFICATION
    return Task.EMBEDDING


def activation(config: Any, chain: Chain, task: Task) -> str:
    """What turns logits into scores.

    A cross-encoder's is stated, or sigmoid of a single label and nothing of several, as sentence-transformers has
    it; a classifier's follows from its kind of problem. Raises ExportError for one that is not known.
    """
    stated = (chain.activation or _stated(config) or "").rpartition(".")[2]
    if stated:
        if stated not in _ACTIVATIONS:
            raise ExportError(
                f"the cross-encoder's activation {stated} is not supported: {', '.join(_ACTIVATIONS)} are"
            )
        return _ACTIVATIONS[stated]
    one = int(config.num_labels) == 1
    if task is Task.RERANK:
        return "sigmoid" if one else "none"
    if getattr(config, "problem_type", None) == "regression":
        return "none"
    return "sigmoid" if one or getattr(config, "problem_type", None) == "multi_label_classification" else "softmax"


def _stated(config: Any) -> str:
    named = (getattr(config, "sentence_transformers", None) or {}).get("activation_fn")
    return str(named or getattr(config, "sbert_ce_default_activation_function", None) or "")


def separator(tokenizer: Path | None, folder: Path, config: Any) -> int | None:
    """The token that ends the first segment, where the model tells segments apart and is fed them."""
    if int(getattr(config, "type_vocab_size", 0) or 0) < 2:
        return None
    [(ids, types)] = fed_pairs(tokenizer, folder, [("a", "b")])
    return ids[types.index(1) - 1] if any(types) else None


def fed_pairs(
    tokenizer: Path | None, folder: Path, pairs: Sequence[tuple[str, str]]
) -> list[tuple[list[int], list[int]]]:
    """Ids and segments of pairs as transformers feeds them, which a tokenizer's class and settings decide."""
    own = _own_tokenizer(folder) if tokenizer is None else None
    if own is not None:
        fed = [own(*pair) for pair in pairs]
        return [(list(f["input_ids"]), list(f.get("token_type_ids") or [0] * len(f["input_ids"]))) for f in fed]
    plain = load_tokenizer(tokenizer or folder / "tokenizer.json")
    return [(list(e.ids), list(e.type_ids)) for e in plain.encode_batch(list(pairs))]


def _own_tokenizer(folder: Path) -> Any:
    """The class that transformers takes for the directory; None where it has none, so that tokenizer.json decides alone."""
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception:  # it raises many kinds; what tokenizer.json itself lacks is said by whoever reads it
        return None
