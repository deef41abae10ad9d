"""Quantising an artifact: the same model in another scheme, measured against its own FP32 answers."""

from __future__ import annotations

from numaserve_models.quantize.bounds import FLOORS, Agreement, Bounds
from numaserve_models.quantize.request import QuantizeRequest, parse_scheme
from numaserve_models.quantize.work import quantize

__all__ = ["FLOORS", "Agreement", "Bounds", "QuantizeRequest", "parse_scheme", "quantize"]
