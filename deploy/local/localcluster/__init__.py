"""A real Kubernetes on one Linux machine, without Docker, KVM or systemd.

etcd, API server, controller manager, scheduler, kube-proxy, kubelets, containerd and runc run as
plain processes in one network namespace. See deploy/local/README.md for how and why.
"""

from __future__ import annotations

from localcluster.cluster import Cluster
from localcluster.controlplane import ControlPlane

__all__ = ["Cluster", "ControlPlane"]
