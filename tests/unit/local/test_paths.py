"""Where a cluster lives, and the names it may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster.errors import ClusterError
from localcluster.locks import exclusive
from localcluster.machine import plan_nodes
from localcluster.paths import Layout, cache_root

LONGEST_SOCKET = 103


@pytest.mark.parametrize("name", ["", "../etc", "a/b", "-a", "a-", "A", "a.b", "x" * 21])
def test_a_name_that_is_no_plain_word_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMASERVE_CLUSTER", name or "..")
    with pytest.raises(ClusterError, match="cannot name a cluster: use up to 20"):
        Layout.of()


def test_sockets_fit_the_kernels_limit_even_with_the_longest_name() -> None:
    layout = Layout.of("x" * 20)
    for node in plan_nodes([0, 1]):
        assert len(f"{layout.containerd_socket(node.name)}.ttrpc") <= LONGEST_SOCKET


def test_two_clusters_share_nothing() -> None:
    one, two = Layout.of("one"), Layout.of("two")
    for a, b in ((one.root, two.root), (one.run, two.run), (one.netns, two.netns)):
        assert a != b
    assert one.cgroup != two.cgroup


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMASERVE_CACHE", "/elsewhere")
    assert cache_root() == Path("/elsewhere")


def test_a_lock_is_free_again_after_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with exclusive(tmp_path / "deep" / "lock"):
            assert (tmp_path / "deep" / "lock").exists()
