"""The machine that was measured on: CPU, cores this process may use, memory, versions. No name or path of it."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from numaserve_api.cpuset import format_cpus, parse_cpus

ISA = (
    "avx2",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
)
PACKAGES = ("torch", "transformers", "openvino", "nncf", "onnxruntime", "onnx", "numpy")
_CPU = Path("/sys/devices/system/cpu")


def one_cpu_per_core(allowed: frozenset[int], root: Path = _CPU) -> list[int]:
    """The first allowed CPU of each physical core; where the kernel tells nothing of cores, every CPU."""
    chosen: dict[frozenset[int], int] = {}
    for cpu in sorted(allowed):
        try:
            siblings = parse_cpus((root / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip())
        except (OSError, ValueError):
            siblings = frozenset({cpu})
        chosen.setdefault(siblings & allowed, cpu)
    return sorted(chosen.values())


def physical_cores() -> list[int]:
    """A CPU for each physical core of this process's affinity."""
    return one_cpu_per_core(frozenset(os.sched_getaffinity(0)))


def memory_limit() -> int:
    """Bytes the workers may take together: four fifths of what is free here, cgroup limit included."""
    free = int(psutil.virtual_memory().available)
    limit, used = (_text(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    if limit.isdigit() and used.isdigit():
        free = min(free, int(limit) - int(used))
    return max(0, free * 4 // 5)


class Others:
    """How much of these CPUs other processes take, from now on; workers are children of this process."""

    def __init__(self) -> None:
        self._begin = _times()

    def share(self) -> float:
        """Between 0 and 1; what a hypervisor gave to other machines counts too."""
        (total, busy, own), (total_before, busy_before, own_before) = _times(), self._begin
        passed = total - total_before
        if passed <= 0:
            return 0.0
        return min(1.0, max(0.0, (busy - busy_before) - (own - own_before)) / passed)


def _times() -> tuple[float, float, float]:
    """Seconds since boot of the CPUs allowed: in total, busy or stolen, and by this process and its workers."""
    every = psutil.cpu_times(percpu=True)
    allowed = [every[cpu] for cpu in os.sched_getaffinity(0) if cpu < len(every)]
    total = sum(sum(cpu[:8]) for cpu in allowed)  # guest time is part of user time
    idle = sum(cpu.idle + cpu.iowait for cpu in allowed)
    me = psutil.Process()
    own = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            own += times.user + times.system
    return total, total - idle, own + sum(me.cpu_times()[2:4])


def machine() -> dict[str, Any]:
    """Facts for the report."""
    allowed = frozenset(os.sched_getaffinity(0))
    info = _cpuinfo()
    flags = set(info.get("flags", info.get("Features", "")).split())
    return {
        "cpu": info.get("model name", platform.machine()),
        "isa": [flag for flag in ISA if flag in flags],
        "virtual": "hypervisor" in flags,
        "cpus": format_cpus(allowed),
        "physicalCores": len(one_cpu_per_core(allowed)),
        "smt": len(one_cpu_per_core(allowed)) < len(allowed),
        "governor": _text(_CPU / f"cpu{min(allowed)}/cpufreq/scaling_governor") or None,
        "memoryBytes": int(psutil.virtual_memory().total),
        "load": round(os.getloadavg()[0], 2),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpuinfo() -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    first = _text(Path("/proc/cpuinfo")).partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
