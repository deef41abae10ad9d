"""The cluster's network namespace: an empty bridge with the nodes' addresses and a route for Services.

There is no default route in it, so nothing a pod sends can leave the machine. It is entered with
nsenter, never `ip netns exec`, which remounts /sys and hides the cgroups from the kubelet.
"""

from __future__ import annotations

from localcluster.machine import NodeSpec
from localcluster.paths import Layout
from localcluster.shell import run, succeeds

API_ADDRESS = "10.200.0.1"
SERVICE_CIDR = "10.96.0.0/16"
POD_CIDR = "10.244.0.0/16"
BRIDGE = "nodes0"


def create(layout: Layout, nodes: list[NodeSpec]) -> None:
    """Make the namespace, its bridge, addresses and routes; nothing is changed when it is there."""
    if layout.netns.exists():
        return
    run(["ip", "netns", "add", layout.name])
    addresses = [API_ADDRESS, *(node.address for node in nodes)]
    commands = [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", BRIDGE, "type", "bridge"],
        ["ip", "link", "set", BRIDGE, "up"],
        *(["ip", "address", "add", f"{address}/24", "dev", BRIDGE] for address in addresses),
        ["ip", "route", "add", SERVICE_CIDR, "dev", BRIDGE],
        ["sysctl", "-qw", "net.ipv4.ip_forward=1"],
    ]
    for command in commands:
        inside(layout, command)


def inside(layout: Layout, command: list[str]) -> str:
    """Run a command in the namespace and return its output."""
    return run(["nsenter", f"--net={layout.netns}", "--", *command])


def remove(layout: Layout) -> None:
    """Remove the namespace and with it every link, route and rule."""
    if layout.netns.exists():
        succeeds(["ip", "netns", "delete", layout.name])
