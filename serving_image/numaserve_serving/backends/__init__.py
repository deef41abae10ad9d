"""Runtimes behind one Protocol."""

from numaserve_serving.backends.base import Backend, BackendError, BackendFacts, BackendSettings
from numaserve_serving.backends.openvino import OpenVinoBackend

__all__ = ["Backend", "BackendError", "BackendFacts", "BackendSettings", "OpenVinoBackend"]
