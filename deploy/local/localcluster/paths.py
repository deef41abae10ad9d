"""Where things lie: caches that survive `down`, and the state of one cluster that does not."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import ClusterError

# It becomes a folder, a namespace, a cgroup and a part of socket paths.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?")
REPOSITORY = Path(__file__).resolve().parents[3]


def cache_root() -> Path:
    """Downloads and builds worth keeping: ~/.cache/numaserve, or what NUMASERVE_CACHE names."""
    return Path(os.environ.get("NUMASERVE_CACHE") or Path.home() / ".cache" / "numaserve")


def cluster_name() -> str:
    """The cluster commands act on: NUMASERVE_CLUSTER, by default `numaserve`."""
    return os.environ.get("NUMASERVE_CLUSTER") or "numaserve"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one cluster. Socket paths stay short: the kernel allows 107 characters."""

    name: str
    root: Path

    @classmethod
    def of(cls, name: str | None = None) -> Layout:
        """The layout of the named cluster under /var/lib/numaserve."""
        chosen = name or cluster_name()
        if not NAME.fullmatch(chosen):
            raise ClusterError(
                f"NUMASERVE_CLUSTER={chosen!r} cannot name a cluster: use up to 20 lower-case letters, digits and dashes"
            )
        return cls(chosen, Path("/var/lib/numaserve") / chosen)

    @property
    def run(self) -> Path:
        return Path("/run/numaserve") / self.name

    @property
    def netns(self) -> Path:
        return Path("/run/netns") / self.name

    @property
    def cgroup(self) -> str:
        # Never a name that somebody else's groups may have, such as docker or kubepods.
        return "/numaserve" if self.name == "numaserve" else f"/numaserve-{self.name}"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pids(self) -> Path:
        return self.root / "pids"

    @property
    def certs(self) -> Path:
        return self.root / "certs"

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    def node(self, node: str) -> Path:
        return self.root / "nodes" / node

    def containerd_socket(self, node: str) -> Path:
        return self.run / node / "containerd.sock"
