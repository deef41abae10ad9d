"""Which architectures are exported, and what each of them needs. Everything else is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numaserve_models.errors import ExportError


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model type of transformers.

    ``position_offset`` positions are taken by padding (RoBERTa counts from padding_idx + 1). ``foreign`` code
    comes with the model and is run only when it is trusted.
    """

    name: str
    position_offset: int = 0
    foreign: bool = False


_SUPPORTED = {
    a.name: a
    for a in (
        Architecture("bert"),
        Architecture("roberta", position_offset=2),
        Architecture("xlm-roberta", position_offset=2),
        Architecture("camembert", position_offset=2),
        Architecture("distilbert"),
        Architecture("mpnet", position_offset=2),
        Architecture("electra"),
        Architecture("modernbert"),
        Architecture("eurobert"),
        Architecture("lfm2"),
        Architecture("longformer", position_offset=2),
        Architecture("nomic_bert"),
        Architecture("deberta-v2"),
        Architecture("qwen3"),
        Architecture("gemma3_text"),
        Architecture("jina_embeddings_v3"),
    )
}
_ALIASES = {"lfm2_bidirectional": "lfm2"}
_NEEDS = {
    "t5": "only its encoder half could serve, with relative position biases exported per length",
    "gemma3": "its text half: save `model.language_model` as gemma3_text",
    "llama": "a check that it was trained bidirectionally or pools the last token, as qwen3 has",
    "mistral": "a check that it was trained bidirectionally or pools the last token, as qwen3 has",
    "big_bird": "its random block attention in operations that trace",
    "new": "GTE's own code; its ModernBERT successors are supported",
}


def architecture(config: Any, trusted: bool = False) -> Architecture:
    """The entry of a transformers config. Raises ExportError naming what would be needed.

    ``trusted`` code of the model's own is traced as it is: what it computes is probed and compared, not declared.
    """
    kind = str(getattr(config, "model_type", "") or "unknown")
    kind = _ALIASES.get(kind, kind)
    if trusted and kind not in _SUPPORTED and getattr(config, "auto_map", None):
        return Architecture(kind, foreign=True)
    if kind == "lfm2":
        _check_lfm2(config)
    if kind in _SUPPORTED:
        return _SUPPORTED[kind]
    needs = _NEEDS.get(kind, "a wrapper whose export equals the source at every length, with a test of its own")
    raise ExportError(
        f"architecture {kind} is not supported: it would need {needs}. Supported are {', '.join(sorted(_SUPPORTED))}; "
        "or export it to ONNX elsewhere and give the ONNX file"
    )


def is_lfm2(config: Any) -> bool:
    """Whether the model is one of the bidirectional encoders that are rebuilt here."""
    return str(getattr(config, "model_type", "")) in ("lfm2", "lfm2_bidirectional")


def _check_lfm2(config: Any) -> None:
    names = [str(n) for n in (getattr(config, "architectures", None) or [])]
    if not any("bidirectional" in n.lower() for n in names):
        raise ExportError(
            f"lfm2 with architectures {names or 'unnamed'} is a causal language model: only its bidirectional encoders "
            "(Lfm2Bidirectional…) give embeddings"
        )


def positions(config: Any, entry: Architecture) -> int:
    """Longest sequence the position scheme allows, in tokens."""
    return int(config.max_position_embeddings) - entry.position_offset


def declared_layers(config: Any, leading: int = 0) -> list[str] | None:
    """What the config says each layer attends to, in the manifest's words; None where it says nothing."""
    kind = str(config.model_type)
    if kind not in _SUPPORTED:
        return None
    count = int(config.num_hidden_layers)
    if kind == "longformer":
        windows = config.attention_window
        widths = list(windows) if isinstance(windows, (list, tuple)) else [int(windows)] * count
        return [f"{'global+' if leading else ''}sliding:{int(w)}" for w in widths]
    causal = kind == "qwen3" or (kind == "gemma3_text" and not config.use_bidirectional_attention)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * count
    return [_declared(str(k), config, causal) for k in kinds]


def _declared(kind: str, config: Any, causal: bool) -> str:
    if kind == "conv":
        return f"conv:{int(config.conv_L_cache)}"
    if kind != "sliding_attention":
        return "causal" if causal else "full"
    # ModernBERT stores half of its window and sees both ends; the others store one more than the farthest token.
    side = int(config.sliding_window) - (0 if config.model_type == "modernbert" else 1)
    return f"causal-sliding:{side}" if causal else f"sliding:{2 * side}"
