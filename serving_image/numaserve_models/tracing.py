"""From a PyTorch module to an OpenVINO graph, whose layers slide over dense masks or block by block."""

from __future__ import annotations

import warnings

import openvino as ov
import torch

from numaserve_models.branches import IDS, MASK, named
from numaserve_models.errors import ExportError, said
from numaserve_models.network import Network, registry

_LENGTH = 48


def trace(network: Network, by_blocks: bool = False) -> ov.Model:
    """The network as a graph from input_ids and attention_mask, int64 [batch, length], to one output.

    Raises ExportError where the module does not trace.
    """
    length = min(_LENGTH, registry.positions(network.config, network.architecture))
    rows = min(1000, int(network.config.vocab_size))
    ids = torch.randint(rows // 20, rows, (2, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, length // 2 :] = 0
    with network.exporting(by_blocks) as module, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            graph = ov.convert_model(module, example_input={IDS: ids, MASK: mask})
        except Exception as error:  # the frontend raises many kinds
            first = said(error)
            raise ExportError(f"{network.architecture.name} cannot be traced to a graph: {first}") from error
    return named(graph, "answer")
