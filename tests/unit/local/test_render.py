"""What the configuration files of a node say, read back by a parser of their format."""

from __future__ import annotations

import ipaddress
import json
import tomllib

import yaml

from localcluster import network, render
from localcluster.machine import NodeSpec, plan_nodes

NODE_A, NODE_B, NODE_C = plan_nodes([0, 1])


def kubelet(node: NodeSpec) -> dict[str, object]:
    text = render.kubelet(node, ca="/ca", cert="/crt", key="/key", socket="/s.sock", pod_logs="/logs", cgroup="/x/n")
    loaded: dict[str, object] = yaml.safe_load(text)
    return loaded


def test_a_pinning_node_has_the_static_cpu_manager_on_one_numa_node() -> None:
    config = kubelet(NODE_A)
    assert config["cpuManagerPolicy"] == "static"
    assert config["topologyManagerPolicy"] == "single-numa-node"
    assert config["reservedSystemCPUs"] == "0"


def test_the_ordinary_node_leaves_the_cpu_manager_alone() -> None:
    assert {"cpuManagerPolicy", "topologyManagerPolicy", "reservedSystemCPUs"}.isdisjoint(kubelet(NODE_C))


def test_a_kubelet_stays_in_its_own_cgroup_address_and_runtime() -> None:
    config = kubelet(NODE_B)
    assert config["cgroupRoot"] == "/x/n"
    assert config["address"] == config["healthzBindAddress"] == NODE_B.address
    assert config["containerRuntimeEndpoint"] == "unix:///s.sock"
    assert config["failCgroupV1"] is False


def test_a_kubelet_admits_nobody_without_a_name() -> None:
    config = kubelet(NODE_A)
    assert config["authentication"] == {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/ca"},
    }
    assert config["authorization"] == {"mode": "Webhook"}


def test_containerd_keeps_everything_below_the_folders_it_is_given() -> None:
    config = tomllib.loads(render.containerd("/root", "/state", "/sock", "/cni"))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert (config["root"], config["state"], config["grpc"]["address"]) == ("/root", "/state", "/sock")
    assert cri["netns_mounts_under_state_dir"] is True
    assert cri["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": False, "Root": "/state/runc"}
    assert cri["sandbox_image"] == render.PAUSE_IMAGE


def test_pods_of_a_node_get_addresses_of_its_own_range() -> None:
    config = json.loads(render.cni(NODE_B, "/ipam"))
    bridge = config["plugins"][0]
    assert bridge["bridge"] == NODE_B.bridge
    assert bridge["ipam"]["ranges"] == [[{"subnet": NODE_B.pod_cidr}]]
    assert bridge["ipam"]["dataDir"] == "/ipam"
    assert ipaddress.IPv4Network(NODE_B.pod_cidr).subnet_of(ipaddress.IPv4Network(network.POD_CIDR))


def test_one_proxy_serves_every_node_and_leaves_the_machines_conntrack_alone() -> None:
    config = yaml.safe_load(render.kube_proxy("/kubeconfig", NODE_C.address, NODE_C.name))
    assert config["mode"] == "iptables"
    assert config["conntrack"] == {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    assert config["bindAddress"] == NODE_C.address
