"""What this process may run on: cpuset, NUMA nodes, physical cores, quota, ISA.

Facts only; a file that is missing or odd makes a fact unknown and nothing else. Sources: proc(5),
Linux Documentation/ABI/stable/sysfs-devices-system-cpu, cgroup-v1/cpuset.rst, cgroup-v2.rst.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from numaserve_api.cpuset import format_cpus, parse_cpus

ISA_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
)


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the kernel's trees are; tests point them at fixtures."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    affinity: Callable[[], frozenset[int]] = lambda: frozenset(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Placement:
    """A reading. CPU sets in kernel list format; ``quota_cpus`` in CPUs, None without a quota."""

    cpuset: str
    online: str
    numa_nodes: tuple[int, ...]
    physical_cores: int
    shared_sibling_cores: int
    cgroup_version: int | None
    quota_cpus: float | None
    throttled_periods: int | None
    mems_allowed: str | None
    isa: tuple[str, ...]
    cpu_model: str


def read_placement(roots: Roots | None = None) -> Placement:
    """Read everything now."""
    roots = roots or Roots()
    mine = roots.affinity()
    version, quota, throttled = _cgroup(roots)
    cores, shared = _cores(roots, mine)
    return Placement(
        cpuset=format_cpus(mine),
        online=format_cpus(online_cpus(roots)),
        numa_nodes=numa_nodes_of(roots, mine),
        physical_cores=cores,
        shared_sibling_cores=shared,
        cgroup_version=version,
        quota_cpus=quota,
        throttled_periods=throttled,
        mems_allowed=_status_field(roots, "Mems_allowed_list"),
        isa=isa_flags(roots),
        cpu_model=_cpu_model(roots),
    )


def online_cpus(roots: Roots) -> frozenset[int]:
    """CPUs the kernel has online; those of the affinity mask when that cannot be read."""
    return _cpus(roots.sys / "devices/system/cpu/online") or roots.affinity()


def numa_nodes_of(roots: Roots, cpus: frozenset[int]) -> tuple[int, ...]:
    """NUMA nodes that own any of the CPUs; node 0 on a kernel without NUMA."""
    folder = roots.sys / "devices/system/node"
    nodes = [
        int(path.name.removeprefix("node")) for path in folder.glob("node[0-9]*") if _cpus(path / "cpulist") & cpus
    ]
    return tuple(sorted(nodes)) or (0,)


def _cores(roots: Roots, mine: frozenset[int]) -> tuple[int, int]:
    """Physical cores touched, and how many of them have a sibling thread that is not ours."""
    groups = {frozenset(_siblings(roots, cpu)) for cpu in mine}
    shared = sum(1 for group in groups if not group <= mine)
    return len(groups), shared


def _siblings(roots: Roots, cpu: int) -> frozenset[int]:
    topology = roots.sys / f"devices/system/cpu/cpu{cpu}/topology"
    return _cpus(topology / "core_cpus_list") or _cpus(topology / "thread_siblings_list") or frozenset({cpu})


def isa_flags(roots: Roots) -> tuple[str, ...]:
    """CPU flags that decide which kernels the runtime has, as the kernel spells them."""
    flags = set(_cpuinfo(roots, "flags").split())
    return tuple(flag for flag in ISA_FLAGS if flag in flags)


def _cpu_model(roots: Roots) -> str:
    return _cpuinfo(roots, "model name")


def _cpuinfo(roots: Roots, key: str) -> str:
    for line in _text(roots.proc / "cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _status_field(roots: Roots, key: str) -> str | None:
    for line in _text(roots.proc / "self/status").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return value.strip()
    return None


def _cgroup(roots: Roots) -> tuple[int | None, float | None, int | None]:
    """cgroup version, CFS quota in CPUs and throttled periods; in a container our group is the root of the mount."""
    base = roots.sys / "fs/cgroup"
    if (base / "cgroup.controllers").exists():
        quota = _quota_v2(_text(base / "cpu.max"))
        return 2, quota, _throttled(_text(base / "cpu.stat"))
    for name in ("cpu,cpuacct", "cpu"):
        group = base / name
        if (group / "cpu.cfs_quota_us").exists():
            return 1, _quota_v1(group), _throttled(_text(group / "cpu.stat"))
    return None, None, None


def _quota_v2(text: str) -> float | None:
    quota, _, period = text.strip().partition(" ")
    return _ratio(quota, period)


def _quota_v1(group: Path) -> float | None:
    return _ratio(_text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str) -> float | None:
    try:
        value = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return value if value > 0 else None


def _throttled(text: str) -> int | None:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "nr_throttled" and value.strip().isdigit():
            return int(value)
    return None


def _cpus(path: Path) -> frozenset[int]:
    try:
        return parse_cpus(_text(path))
    except ValueError:
        return frozenset()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
