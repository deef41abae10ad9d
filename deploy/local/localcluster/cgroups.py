"""The cgroups that hold the cluster's processes, so that `down` can find every one of them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
SYSTEM = "system"
"""Child group of every daemon; containerd's shims are born in it."""


def is_unified(root: Path = CGROUP_ROOT) -> bool:
    """Whether the machine has cgroup v2 alone; a hybrid's controllers are v1."""
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = CGROUP_ROOT) -> list[Path]:
    """Every mounted hierarchy: the root itself on v2, one folder a controller on v1."""
    if is_unified(root):
        return [root]
    return sorted({p.resolve() for p in root.iterdir() if p.is_dir() and (p / "cgroup.procs").exists()})


def create(path: str, root: Path = CGROUP_ROOT) -> None:
    """Make a group in every hierarchy; on v1 hand down the CPUs and memory nodes, on v2 the controllers."""
    unified = is_unified(root)
    for hierarchy in hierarchies(root):
        current = hierarchy
        for part in Path(path.lstrip("/")).parts:
            parent, current = current, current / part
            if unified:
                _delegate(parent)
            current.mkdir(exist_ok=True)
            if not unified:
                _inherit_cpuset(parent, current)


def _delegate(group: Path) -> None:
    available = (group / "cgroup.controllers").read_text().split()
    for controller in available:
        try:
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            continue  # a controller that cannot be delegated here is simply not offered below


def _inherit_cpuset(parent: Path, child: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        source, target = parent / name, child / name
        if source.exists() and target.exists() and not target.read_text().strip():
            target.write_text(source.read_text().strip())


def tracking_group(path: str) -> Path:
    """The folder whose cgroup.procs tells membership: one hierarchy is enough."""
    for hierarchy in hierarchies():
        if hierarchy.name in ("pids", "cgroup", "unified") or len(hierarchies()) == 1:
            return hierarchy / path.lstrip("/")
    return hierarchies()[0] / path.lstrip("/")


def members(path: str, root: Path = CGROUP_ROOT) -> list[int]:
    """Process ids in a group and everything below it, in any hierarchy."""
    found: set[int] = set()
    for hierarchy in hierarchies(root):
        group = hierarchy / path.lstrip("/")
        for procs in [group / "cgroup.procs", *group.rglob("cgroup.procs")] if group.exists() else []:
            try:
                found.update(int(line) for line in procs.read_text().split())
            except OSError:
                continue  # the group went away while we looked
    return sorted(found - {os.getpid()})


def kill_all(path: str, patience: float = 20) -> None:
    """End every process in a group: asked first, then killed."""
    deadline = time.monotonic() + patience
    for attempt in range(1000):
        pids = members(path)
        if not pids or time.monotonic() > deadline:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGTERM if attempt == 0 else signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.5 if attempt == 0 else 0.1)


def remove(path: str) -> None:
    """Remove a group and its children from every hierarchy."""
    for hierarchy in hierarchies():
        group = hierarchy / path.lstrip("/")
        if not group.exists():
            continue
        for folder in sorted((p for p in group.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
            _rmdir(folder)
        _rmdir(group)


def _rmdir(folder: Path) -> None:
    deadline = time.monotonic() + 5
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
