"""Runtimes behind one Protocol."""

from numaserve_serving.backends.base import Backend, BackendError, BackendFacts, BackendSettings, Execution
from numaserve_serving.backends.openvino import OpenVinoBackend, empty_cache, execution_table, look_inside

__all__ = [
    "Backend",
    "BackendError",
    "BackendFacts",
    "BackendSettings",
    "Execution",
    "OpenVinoBackend",
    "empty_cache",
    "execution_table",
    "look_inside",
]
