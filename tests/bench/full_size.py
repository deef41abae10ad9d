"""Full-size models of random weights for benchmarks: `python -m tests.bench.full_size NAME DIRECTORY`.

Speed and memory depend on shapes, not on what was learned, so random weights show them; accuracy they do not show.
The tokenizer is any with a vocabulary that fits.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel

SIZES: dict[str, dict[str, Any]] = {
    "modernbert-base": {
        "kind": "modernbert", "vocab_size": 50368, "hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12,
        "intermediate_size": 1152, "local_attention": 128, "global_attn_every_n_layers": 3, "max_position_embeddings": 8192,
    },
    "lfm2-350m": {
        "kind": "lfm2", "vocab_size": 65536, "hidden_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
        "num_key_value_heads": 8, "block_ff_dim": 6656, "block_auto_adjust_ff_dim": True, "block_multiple_of": 256,
        "conv_L_cache": 3, "max_position_embeddings": 8192, "architectures": ["Lfm2BidirectionalModel"],
        "layer_types": ["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)],
    },
}  # fmt: skip
POOLING = {"modernbert-base": "cls", "lfm2-350m": "cls"}


def write(name: str, folder: Path, tokenizer: Path) -> Path:
    """A sentence-transformers directory of the size asked for, its weights always the same."""
    sizes = dict(SIZES[name])
    kind = sizes.pop("kind")
    torch.manual_seed(20)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes)).eval()
    model.save_pretrained(folder, safe_serialization=True)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = sizes.get("architectures", config["architectures"])
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": sizes["hidden_size"], f"pooling_mode_{POOLING[name]}_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
