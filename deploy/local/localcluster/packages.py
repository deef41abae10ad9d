"""Debian packages the cluster is made of, installed only when missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.shell import run

REQUIRED = {
    "containerd": "/usr/bin/containerd",
    "runc": "/usr/sbin/runc",
    "etcd-server": "/usr/bin/etcd",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "buildah": "/usr/bin/buildah",
    "debootstrap": "/usr/sbin/debootstrap",
    "catatonit": "/usr/bin/catatonit",
    "iptables": "/usr/sbin/iptables",
    "iproute2": "/usr/sbin/ip",
    "conntrack": "/usr/sbin/conntrack",
    "procps": "/usr/sbin/sysctl",
    "mount": "/usr/bin/mount",
    "ca-certificates": "/usr/sbin/update-ca-certificates",
}


def missing(*names: str) -> list[str]:
    """Which of these packages (all of the cluster's, when none is named) are not installed, by the file each brings."""
    return [name for name in names or REQUIRED if not _present(Path(REQUIRED[name]))]


def _present(file: Path) -> bool:
    return file.exists() or shutil.which(file.name) is not None


def install(*names: str) -> list[str]:
    """Install what is missing with apt; services of these packages are not started. Returns what was installed."""
    wanted = missing(*names)
    if not wanted:
        return []
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ClusterError(f"not installed: {', '.join(wanted)}. Install these Debian packages, or run this as root")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *wanted]
    try:
        run(command, env=env)
    except ClusterError:  # the package lists may be missing or old
        run(["apt-get", "update", "-qq"], env=env)
        run(command, env=env)
    return wanted
