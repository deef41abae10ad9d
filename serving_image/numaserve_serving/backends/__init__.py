"""Runtimes behind one Protocol."""

from numaserve_serving.backends.base import Backend, BackendError, BackendFacts, BackendSettings
from numaserve_serving.backends.openvino import OpenVinoBackend, empty_cache

__all__ = ["Backend", "BackendError", "BackendFacts", "BackendSettings", "OpenVinoBackend", "empty_cache"]
