"""Models as PyTorch modules: loaded safely, run as shipped, and run as they are exported."""

from numaserve_models.network.load import Network, NetworkRequest, load

__all__ = ["Network", "NetworkRequest", "load"]
