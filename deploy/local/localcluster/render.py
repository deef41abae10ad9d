"""Configuration files of a node as pure functions of what the node is."""

from __future__ import annotations

import json
from typing import Any

import yaml

from localcluster.machine import NodeSpec
from localcluster.network import POD_CIDR

PAUSE_IMAGE = "numaserve.local/pause:1"


def containerd(root: str, state: str, socket: str, cni_conf: str, cni_bin: str = "/usr/lib/cni") -> str:
    """containerd 1.6 configuration (TOML) of one node."""
    return f"""version = 2
root = "{root}"
state = "{state}"
oom_score = 0
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_bin}"
    conf_dir = "{cni_conf}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "{state}/runc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
"""


def cni(node: NodeSpec, data_dir: str) -> str:
    """CNI conflist of one node: its own bridge and /24."""
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": node.bridge,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": data_dir,
            "ranges": [[{"subnet": node.pod_cidr}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "0.4.0", "name": node.name, "plugins": plugins}, indent=2)


def kubelet(node: NodeSpec, *, ca: str, cert: str, key: str, socket: str, pod_logs: str, cgroup: str) -> str:
    """KubeletConfiguration of one node."""
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": 10250,
        "healthzBindAddress": node.address,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": ca}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": cert,
        "tlsPrivateKeyFile": key,
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "oomScoreAdj": 0,
        "podLogsDir": pod_logs,
        "resolvConf": "",
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
    }
    if node.policy == "static":
        document |= {
            "cpuManagerPolicy": "static",
            "cpuManagerReconcilePeriod": "5s",
            "topologyManagerPolicy": "single-numa-node",
            "reservedSystemCPUs": node.reserved,
        }
    return yaml.safe_dump(document, sort_keys=False)


def kube_proxy(kubeconfig: str, address: str, node: str) -> str:
    """KubeProxyConfiguration: one proxy in iptables mode serves every node of the namespace."""
    document: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_CIDR,
        "clientConnection": {"kubeconfig": kubeconfig},
        "bindAddress": address,
        "healthzBindAddress": f"{address}:10256",
        "metricsBindAddress": f"{address}:10249",
        "hostnameOverride": node,
        # Reply packets between pods of one bridge would bypass the address translation otherwise.
        "iptables": {"masqueradeAll": True, "minSyncPeriod": "100ms"},
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    return yaml.safe_dump(document, sort_keys=False)
