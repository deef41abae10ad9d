"""Which CPUs each node reserves and hands out, and where Debian packages come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcluster.errors import ClusterError
from localcluster.machine import apt_mirror, format_cpus, plan_nodes
from numaserve_api.cpuset import parse_cpus

MACHINES = st.sets(st.integers(0, 255), min_size=2, max_size=64).map(sorted)


def test_two_cpus_give_one_exclusive_cpu_to_each_pinning_node() -> None:
    a, b, c = plan_nodes([0, 1])
    assert (a.policy, a.reserved) == ("static", "0")
    assert (b.policy, b.reserved) == ("static", "1")
    assert (c.policy, c.reserved) == ("none", "")


def test_sixteen_cpus_are_split_in_halves() -> None:
    a, b, _ = plan_nodes(list(range(16)))
    assert (a.reserved, b.reserved) == ("0-7", "8-15")


@given(MACHINES)
def test_exclusive_cpus_of_the_pinning_nodes_never_overlap_and_cover_the_machine(cpus: list[int]) -> None:
    a, b, _ = plan_nodes(cpus)
    exclusive_a, exclusive_b = (set(cpus) - parse_cpus(node.reserved) for node in (a, b))
    assert exclusive_a
    assert exclusive_b
    assert not exclusive_a & exclusive_b
    assert exclusive_a | exclusive_b == set(cpus)


@given(MACHINES)
def test_nodes_share_no_address_pod_range_or_bridge(cpus: list[int]) -> None:
    nodes = plan_nodes(cpus)
    for values in ({n.name for n in nodes}, {n.address for n in nodes}, {n.pod_cidr for n in nodes}):
        assert len(values) == len(nodes)
    assert len({n.bridge for n in nodes}) == len(nodes)


@pytest.mark.parametrize("cpus", [[], [3]])
def test_fewer_than_two_cpus_are_refused_with_the_number(cpus: list[int]) -> None:
    with pytest.raises(ClusterError, match=f"two CPUs are needed .* may use {len(cpus)}"):
        plan_nodes(cpus)


@given(MACHINES)
def test_the_kernel_list_format_reads_back_as_the_same_cpus(cpus: list[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == set(cpus)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sources.list", "deb http://mirror.example/debian bookworm main\n"),
        (
            "sources.list",
            "# deb http://old.example/debian x\ndeb [signed-by=/k] http://mirror.example/debian/ bookworm main\n",
        ),
        ("sources.list.d/debian.sources", "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n"),
    ],
)
def test_the_mirror_is_read_from_either_form_of_apt_sources(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert apt_mirror(tmp_path) == "http://mirror.example/debian"


def test_a_security_mirror_is_not_taken_for_the_main_one(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://mirror.example/debian-security bookworm-security main\n")
    with pytest.raises(ClusterError, match="no Debian mirror found"):
        apt_mirror(tmp_path)
