"""What this machine offers: CPUs for the nodes, cgroup controllers, the apt mirror."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import ClusterError


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One kubelet: its name, addresses, and how its CPU manager is set.

    ``reserved`` are the CPUs (kernel list) kept for the system; every other CPU can be handed out
    exclusively when ``policy`` is static.
    """

    name: str
    index: int
    policy: str
    reserved: str

    @property
    def address(self) -> str:
        return f"10.200.0.{10 + self.index}"

    @property
    def pod_cidr(self) -> str:
        return f"10.244.{self.index}.0/24"

    @property
    def bridge(self) -> str:
        return f"cni{self.index}"


def format_cpus(cpus: list[int]) -> str:
    """Kernel list format of ascending CPUs: [0, 1, 2, 8] is "0-2,8"."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def plan_nodes(cpus: list[int]) -> list[NodeSpec]:
    """Two pinning nodes whose exclusive CPUs are disjoint, and an ordinary one.

    Each pinning node reserves what the other hands out, so a stable and a candidate revision can
    both be pinned on a machine of two CPUs; a bigger machine gives each node half of its CPUs.
    """
    if len(cpus) < 2:
        raise ClusterError(
            f"two CPUs are needed to pin a stable and a candidate revision, this process may use {len(cpus)}"
        )
    half = len(cpus) // 2
    low, high = cpus[:half], cpus[half:]
    return [
        NodeSpec("node-a", 1, "static", format_cpus(low)),
        NodeSpec("node-b", 2, "static", format_cpus(high)),
        NodeSpec("node-c", 3, "none", ""),
    ]


def usable_cpus() -> list[int]:
    """CPUs this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0))


def apt_mirror(sources: Path = Path("/etc/apt")) -> str:
    """The Debian mirror this machine's apt uses, so that debootstrap asks the same one."""
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    for file in files:
        text = file.read_text() if file.is_file() else ""
        found = re.search(r"^(?:URIs:|deb(?:\s+\[[^]]*\])?)\s+(https?://\S+/debian)/?(?:\s|$)", text, re.MULTILINE)
        if found:
            return found.group(1)
    raise ClusterError(f"no Debian mirror found in {sources}: add a `deb` line or a .sources file for apt")
