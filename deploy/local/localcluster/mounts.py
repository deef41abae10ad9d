"""Mounts below the cluster's folders: pods' volumes and container root filesystems."""

from __future__ import annotations

from pathlib import Path

from localcluster.shell import succeeds


def below(folder: Path, table: Path = Path("/proc/self/mountinfo")) -> list[Path]:
    """Mount points at or under a folder, deepest first."""
    prefix = f"{folder}/"
    points = [line.split()[4].replace("\\040", " ") for line in table.read_text().splitlines()]
    return [Path(p) for p in sorted((p for p in points if f"{p}/".startswith(prefix)), key=len, reverse=True)]


def unmount_below(folder: Path) -> None:
    """Unmount everything at or under a folder, lazily where something still holds it."""
    for point in below(folder):
        if not succeeds(["umount", point]):
            succeeds(["umount", "--lazy", point])
