"""Tiny random models of the real classes, saved as directories that an export reads."""

from __future__ import annotations

import json
import random
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel

from numaserve_models.network import NetworkRequest, load
from numaserve_models.running import Ids

VOCABULARY = 120
PAD, CLS, SEP = 1, 2, 3
WORDS = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(VOCABULARY - 4))]
_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP,
}  # fmt: skip
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}


@dataclass(frozen=True)
class Tiny:
    """One architecture: its type, what differs from the common size, and what its layers must be found to compute."""

    kind: str
    changes: dict[str, Any] = field(default_factory=dict)
    layers: tuple[str, ...] = ("full", "full")
    positions: int = 300
    pooling: str = "mean"

    @property
    def sliding(self) -> bool:
        """Whether there is a second, block-local form."""
        return any("sliding" in layer for layer in self.layers)


TINY = (
    Tiny("bert"),
    Tiny("roberta", {"max_position_embeddings": 302, "type_vocab_size": 1}),
    Tiny("xlm-roberta", {"max_position_embeddings": 302, "type_vocab_size": 1}),
    Tiny("camembert", {"max_position_embeddings": 302, "type_vocab_size": 1}),
    Tiny("electra", {"embedding_size": 16}),
    Tiny("distilbert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}, pooling="cls"),
    Tiny("mpnet", {"max_position_embeddings": 302, "relative_attention_num_buckets": 32}),
    Tiny(
        "modernbert",
        {"num_hidden_layers": 4, "local_attention": 32, "global_attn_every_n_layers": 3, "cls_token_id": CLS, "sep_token_id": SEP},
        ("full", "sliding:32", "sliding:32", "full"),
    ),
    Tiny("eurobert", _GROUPED),
    Tiny("longformer", {"attention_window": 16, "max_position_embeddings": 302}, ("sliding:16", "sliding:16")),
    Tiny("nomic_bert"),
    Tiny("deberta-v2", {"relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"], "share_att_key": True}),
    Tiny("qwen3", _GROUPED, ("causal", "causal"), pooling="last"),
    Tiny(
        "gemma3_text",
        {**_GROUPED, "num_hidden_layers": 3, "use_bidirectional_attention": True, "sliding_window": 32,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "query_pre_attn_scalar": 8},
        ("sliding:32", "full", "sliding:32"),
    ),
    Tiny("jina_embeddings_v3", {"type_vocab_size": 1}),
    Tiny(
        "lfm2",
        {**_GROUPED, "num_hidden_layers": 3, "block_ff_dim": 48, "block_auto_adjust_ff_dim": False, "block_multiple_of": 8,
         "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3, "architectures": ["Lfm2BidirectionalModel"]},
        ("conv:3", "full", "conv:3"),
    ),
)  # fmt: skip


def tiny(kind: str) -> Tiny:
    """The entry of an architecture."""
    return next(entry for entry in TINY if entry.kind == kind)


def config_of(entry: Tiny, **more: Any) -> Any:
    """Its transformers config."""
    return AutoConfig.for_model(entry.kind, **{"max_position_embeddings": 300, **_SMALL, **entry.changes, **more})


def randomise(model: Any, seed: int = 3) -> Any:
    """Weights large enough that attention and order matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.25, generator=generator)
            elif "norm" in name.lower() and name.endswith("weight"):
                parameter.uniform_(0.7, 1.3, generator=generator)
            else:
                parameter.normal_(0.0, 0.1, generator=generator)
    return model.eval()


def save_directory(folder: Path, model: Any, **config_changes: Any) -> Path:
    """``folder`` with safetensors, config.json and tokenizer.json."""
    model.save_pretrained(folder, safe_serialization=True)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(config_changes)
    path.write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


def write_tiny_model(folder: Path, entry: Tiny) -> tuple[Path, Any]:
    """A directory with a random model of the real class, and that model."""
    model = randomise(AutoModel.from_config(config_of(entry)))
    # As its authors publish it: transformers halves Gemma's window anew each time it reads what it wrote.
    as_published = {k: v for k, v in entry.changes.items() if k in ("architectures", "sliding_window")}
    return save_directory(folder, model, **as_published), model


def write_tokenizer(folder: Path, words: list[str] = WORDS, pair_types: bool = True) -> Path:
    """A word tokenizer with a class token, separators, and segments for pairs."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    second = ":1" if pair_types else ""
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B{second} [SEP]{second}",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def generic_tokenizer(folder: Path) -> None:
    """Settings under which transformers takes tokenizer.json as it is, segments included."""
    names = ["input_ids", "token_type_ids", "attention_mask"]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


class _Fed(torch.nn.Module):  # type: ignore[misc]
    """A transformers model as ONNX exports have it: ids, mask and maybe segments in, one tensor out."""

    def __init__(self, model: Any, answer: str) -> None:
        super().__init__()
        self.model, self.answer = model, answer

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None = None) -> Any:
        """The answer named."""
        more = {} if types is None else {"token_type_ids": types}
        return getattr(self.model(input_ids=ids, attention_mask=mask, **more), self.answer)


def write_onnx(path: Path, folder: Path, answer: str, segments: bool = False, **request: Any) -> Path:
    """The model of a directory as somebody else's ONNX export, ``answer`` being `logits` or `last_hidden_state`."""
    network = load(NetworkRequest(folder, **request))
    ids = torch.randint(4, 100, (2, 12), generator=torch.Generator().manual_seed(1))
    fed = (ids, torch.ones_like(ids), *((torch.zeros_like(ids),) if segments else ()))
    names = ["input_ids", "attention_mask", "token_type_ids"][: len(fed)]
    axes = {name: {0: "batch", 1: "length"} for name in names}
    axes[answer] = {0: "batch", 1: "length"} if answer == "last_hidden_state" else {0: "batch"}
    with network.exporting(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Fed(network.model, answer).eval(), fed, str(path), dynamo=False, opset_version=17, input_names=names,
            output_names=[answer], dynamic_axes=axes,
        )  # fmt: skip
    return path


def write_chain(
    folder: Path, modules: list[tuple[str, dict[str, Any] | None]], settings: dict[str, Any] | None = None
) -> None:
    """modules.json and the modules' configs; the Transformer is the folder itself."""
    entries = []
    for index, (kind, config) in enumerate(modules):
        path = "" if kind == "Transformer" else f"{index}_{kind}"
        entries.append({"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"})
        if path:
            (folder / path).mkdir(exist_ok=True)
            if config is not None:
                (folder / path / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(json.dumps(entries))
    if settings is not None:
        (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))


def sentences(lengths: tuple[int, ...] = (1, 7, 23, 60, 110)) -> list[str]:
    """Texts of so many words."""
    rng = random.Random(4)
    return [" ".join(rng.choices(WORDS[4:], k=n)) for n in lengths]


def batch(*lengths: int) -> tuple[Ids, Ids]:
    """Random token ids, zero where there is padding: what a caller fills in there must not matter."""
    rng = np.random.default_rng(sum(lengths))
    ids = np.zeros((len(lengths), max(lengths)), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = rng.integers(4, VOCABULARY, size=length)
        mask[row, :length] = 1
    return ids, mask


SAMPLES = tuple({"text": text} for text in sentences())
