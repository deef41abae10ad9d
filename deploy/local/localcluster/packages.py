"""Debian packages the cluster is made of, installed only when missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from localcluster.shell import run, succeeds

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
    "ca-certificates": "/usr/sbin/update-ca-certificates",
}


def missing() -> list[str]:
    """Required packages that are not installed, by the file each brings."""
    return [
        name for name, file in REQUIRED.items() if not (Path(file).exists() or shutil.which(file.rpartition("/")[2]))
    ]


def install() -> list[str]:
    """Install what is missing with apt; services of these packages are not started. Returns what was installed."""
    wanted = missing()
    if not wanted:
        return []
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    if not succeeds(["apt-cache", "show", *wanted]):
        run(["apt-get", "update", "-qq"], env=env)
    try:
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *wanted], env=env)
    except Exception:
        run(["apt-get", "update", "-qq"], env=env)
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *wanted], env=env)
    return wanted
