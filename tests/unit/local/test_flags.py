"""Command lines of the control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster import flags
from localcluster.certs import Pair
from localcluster.flags import ApiIdentity, Endpoints

HERE = Endpoints("127.0.0.1", 1, 2, 3, 4, 5)
PAIR = Pair(Path("/c.crt"), Path("/c.key"))
IDENTITY = ApiIdentity(Path("/ca"), PAIR, PAIR, PAIR)


def test_free_ports_differ_from_each_other() -> None:
    e = Endpoints.free()
    ports = {e.api_port, e.etcd_port, e.etcd_peer_port, e.manager_port, e.scheduler_port}
    assert len(ports) == 5
    assert e.address == "127.0.0.1"


def test_requests_are_authorized_by_node_and_rbac() -> None:
    assert "--authorization-mode=Node,RBAC" in flags.api_server(HERE, IDENTITY, endpoint_reconciler=True)


@pytest.mark.parametrize("reconciler", [True, False])
def test_only_a_reachable_api_server_publishes_its_endpoint(reconciler: bool) -> None:
    words = flags.api_server(HERE, IDENTITY, endpoint_reconciler=reconciler)
    assert ("--endpoint-reconciler-type=none" in words) is not reconciler


@pytest.mark.parametrize(
    "words",
    [
        flags.etcd(HERE, Path("/d")),
        flags.api_server(HERE, IDENTITY, endpoint_reconciler=False),
        flags.controller_manager(HERE, Path("/k"), Path("/key"), Path("/ca")),
        flags.scheduler(HERE, Path("/k")),
    ],
    ids=["etcd", "api-server", "controller-manager", "scheduler"],
)
def test_every_component_listens_on_the_given_address_only(words: list[str]) -> None:
    line = " ".join(words)
    assert "127.0.0.1" in line
    assert "0.0.0.0" not in line  # noqa: S104 -- looked for, not listened on


def test_no_controller_is_turned_off() -> None:
    words = flags.controller_manager(HERE, Path("/k"), Path("/key"), Path("/ca"))
    assert not [word for word in words if word.startswith("--controllers")]
    assert "--use-service-account-credentials=true" in words
