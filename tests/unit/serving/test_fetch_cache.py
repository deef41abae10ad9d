"""The node's cache: found again, verified, limited, and never emptied under a reader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from demo.world import wait_for
from numaserve_api.conditions import Reason
from numaserve_api.manifest import MANIFEST_FILE
from numaserve_serving.fetch import lease, verify
from numaserve_serving.fetch.cache import ABANDONED_SECONDS, IDLE_SECONDS, Cache
from numaserve_serving.fetch.errors import FetchError
from numaserve_serving.fetch.fetch import Origin, fetch_cached
from tests.unit.serving.fetching import Asked, Handler, hurried, served, tree, write_artifact

BIN = "openvino_model.bin"
SIZE = {"weights.bin": 10_000}


@dataclass
class Node:
    """A node with a cache for about two artifacts, a clock, and artifacts to be had, by seed."""

    folder: Path
    now: float = field(default_factory=time.time)
    limit: int | None = 23_000

    @property
    def cache(self) -> Cache:
        return Cache(self.folder / "cache", self.limit, lambda: self.now)

    def fetch(self, seed: int) -> Path:
        """What a pod's init container does."""
        made = self.folder / f"made-{seed}"
        digest = write_artifact(made, seed, SIZE)
        self.now += 1
        return fetch_cached(self.cache, digest, Origin(f"file://{made}"), hurried())

    def here(self) -> set[Path]:
        """The artifacts in the cache."""
        return {p for p in (self.folder / "cache").iterdir() if not p.name.startswith(".")}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@contextmanager
def reader(artifact: Path) -> Iterator[subprocess.Popen[str]]:
    """A server of another pod, as far as the cache is concerned."""
    program = "import sys, pathlib; from numaserve_serving.fetch.lease import hold; print(hold(pathlib.Path(sys.argv[1])), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, artifact],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout
        assert process.stdout.readline().strip().isdigit()
        yield process
        process.kill()


def environment(**more: str) -> dict[str, str]:
    """This one, with the product on the path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def test_an_artifact_is_fetched_once_and_lies_there_alone(node: Node) -> None:
    place = node.fetch(1)
    assert place == node.folder / "cache" / place.name
    assert tree(place) == tree(node.folder / "made-1")
    source = node.folder / "made-1" / "weights.bin"
    source.unlink()
    digest = place.name.replace("-", ":")
    assert fetch_cached(node.cache, digest, Origin("file:///nowhere", Path("/nowhere"))) == place


def test_a_verified_artifact_is_not_read_again_until_a_file_changes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = node.fetch(1)
    read: list[Path] = []
    digest = verify._digest

    def noting(path: Path) -> str:
        read.append(path)
        return digest(path)

    monkeypatch.setattr(verify, "_digest", noting)
    node.fetch(1)
    assert read == []
    os.utime(place / "weights.bin", ns=(1, 1))
    node.fetch(1)
    node.fetch(1)
    assert read == [place / "weights.bin"]


@pytest.mark.parametrize(
    "damage", ["changed", "missing", "linked", "no manifest", "other manifest", "a file", "a link"]
)
def test_what_is_damaged_is_fetched_again(node: Node, damage: str) -> None:
    place = node.fetch(1)
    file = place / "weights.bin"
    match damage:
        case "changed":
            file.write_bytes(bytes(10_000))
        case "missing":
            file.unlink()
        case "linked":
            file.rename(node.folder / "weights.bin")
            file.symlink_to(node.folder / "weights.bin")
        case "no manifest":
            (place / MANIFEST_FILE).unlink()
        case "other manifest":
            write_artifact(place, 2, SIZE)
        case _:
            place.rename(node.folder / "moved")
            place.write_text("no folder") if damage == "a file" else place.symlink_to(node.folder / "moved")
    node.fetch(1)
    assert tree(place) == tree(node.folder / "made-1")
    assert not place.is_symlink()
    assert not file.is_symlink()
    assert list((node.folder / "cache" / ".trash").iterdir()) == []


def test_the_one_used_longest_ago_goes_once_it_is_proven_idle(node: Node) -> None:
    a = node.fetch(1)
    node.fetch(2)
    node.fetch(1)  # so that the other one was used longest ago
    node.now += 10 * IDLE_SECONDS
    assert {a, node.fetch(3)} == node.here()


def test_of_two_that_are_idle_the_older_one_goes(node: Node) -> None:
    node.limit = 34_000
    a, b, a_again = node.fetch(1), node.fetch(2), node.fetch(1)
    c = node.fetch(3)
    node.now += IDLE_SECONDS
    d = node.fetch(4)
    assert a == a_again
    assert b not in {a, c, d}
    assert node.here() == {a, c, d}


def test_an_idle_artifact_somebody_came_for_in_the_meantime_stays(node: Node) -> None:
    a = node.fetch(1)
    cache = node.cache
    cache.residents()
    node.now += IDLE_SECONDS
    assert [resident.idle for resident in cache.residents()] == [True]
    with reader(a):
        assert not cache._evict(a)
    with cache.only_one(a.name.replace("-", ":")):
        assert not cache._evict(a)
    node.fetch(1)
    assert not cache._evict(a)
    assert node.here() == {a}


def test_the_limit_bends_until_it_is_known_what_is_idle(node: Node) -> None:
    node.limit = 15_000
    a = node.fetch(1)
    node.now += 10 * IDLE_SECONDS
    b = node.fetch(2)  # the first look that finds nobody reading a
    assert node.here() == {a, b}
    node.now += IDLE_SECONDS
    assert {b, node.fetch(3)} == node.here()


def test_what_is_read_is_never_evicted_and_the_limit_is_told(node: Node) -> None:
    with reader(node.fetch(1)), reader(node.fetch(2)):
        before = node.here()
        for _ in range(3):
            node.now += 10 * IDLE_SECONDS
            with pytest.raises(FetchError, match=r"raise artifactCache\.limit") as caught:
                node.fetch(3)
            assert node.here() == before
    assert caught.value.reason is Reason.NO_SPACE


def test_a_server_killed_keeps_its_artifact_while_the_kubelet_starts_it_again(node: Node) -> None:
    a = node.fetch(1)
    with reader(a) as server:
        node.fetch(2)
        node.now += 10 * IDLE_SECONDS
        server.kill()
        server.wait()
    node.fetch(3)  # nobody holds the lease of a, but only since a moment ago
    assert a in node.here()
    node.now += 300
    with reader(a):  # started again
        node.fetch(4)
        node.now += IDLE_SECONDS
        node.fetch(5)
        assert a in node.here()
    node.fetch(6)
    assert a in node.here()
    node.now += IDLE_SECONDS
    node.fetch(7)
    assert a not in node.here()


def test_an_artifact_that_was_fetched_a_moment_ago_waits_for_its_server(node: Node) -> None:
    a = node.fetch(1)
    node.now += 10 * IDLE_SECONDS
    node.fetch(2)
    node.now += 10 * IDLE_SECONDS
    node.fetch(1)  # a new pod of the idle one
    node.fetch(3)
    assert a in node.here()


def test_an_artifact_larger_than_the_limit_is_refused_and_evicts_nothing_read(node: Node) -> None:
    node.limit = 9_000
    with pytest.raises(FetchError, match=r"needs 10\.\d KiB, the cache .* may hold 8\.8 KiB") as caught:
        node.fetch(1)
    assert caught.value.reason is Reason.NO_SPACE
    assert node.here() == set()


def test_room_that_another_fetch_has_reserved_is_taken(node: Node) -> None:
    with reader(node.fetch(1)):
        made = node.folder / "coming"
        digest = write_artifact(made, 9, SIZE)
        staging = node.cache.staging(digest)
        staging.prepare(digest)
        staging.keep(verify.read_contents(made, digest))
        with pytest.raises(FetchError, match=r"raise artifactCache\.limit"):
            node.fetch(3)
        node.now += ABANDONED_SECONDS + 60
        node.fetch(3)
        assert not staging.root.exists()


def test_trash_of_a_killed_eviction_is_emptied(node: Node) -> None:
    node.fetch(1)
    (node.folder / "cache" / ".trash" / "sha256-x.1").mkdir()
    node.fetch(2)
    assert list((node.folder / "cache" / ".trash").iterdir()) == []


def test_a_directory_outside_a_cache_has_no_lease(tmp_path: Path) -> None:
    assert lease.hold(tmp_path) is None


def command(cache: Path, url: str, digest: str) -> list[str]:
    return [sys.executable, "-m", "numaserve_serving.fetch", "--source", url, "--hash", digest, "--cache", str(cache)]


@contextmanager
def started(cache: Path, url: str, digest: str) -> Iterator[subprocess.Popen[str]]:
    """A fetch in a process of its own, which does not outlive the block."""
    with subprocess.Popen(
        command(cache, url, digest), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_two_processes_on_one_cache_fetch_once(tmp_path: Path) -> None:
    digest = write_artifact(tmp_path / "made")
    begun, go = threading.Event(), threading.Event()

    def slow(handler: Handler, asked: Asked) -> bool:
        if asked.path == BIN:
            begun.set()
            assert go.wait(30)
        return False

    cache = tmp_path / "cache"
    with served(tmp_path / "made", answer=slow) as site:
        try:
            with started(cache, site.url, digest) as first:
                assert begun.wait(60)
                with started(cache, site.url, digest) as second:
                    assert second.stderr
                    assert "another pod of this node fetches" in second.stderr.readline()
                    go.set()
                    places = {Path(process.communicate(timeout=60)[0].splitlines()[-1]) for process in (first, second)}
        finally:
            go.set()
        assert (first.returncode, second.returncode) == (0, 0)
        assert places == {cache / digest.replace(":", "-")}
        assert site.starts(BIN) == [None]
    assert tree(places.pop()) == tree(tmp_path / "made")


def test_a_fetch_killed_in_the_middle_is_finished_by_the_next_pod(tmp_path: Path) -> None:
    digest = write_artifact(tmp_path / "made")
    begun, go = threading.Event(), threading.Event()

    def half(handler: Handler, asked: Asked) -> bool:
        if asked.path != BIN or asked.start:
            return False
        content = handler.site.files[BIN]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:200_000])
        begun.set()
        assert go.wait(30)
        handler.close_connection = True
        return True

    cache = tmp_path / "cache"
    with served(tmp_path / "made", answer=half) as site:
        try:
            with started(cache, site.url, digest) as first:
                assert begun.wait(60)
                part = cache / ".staging" / digest.replace(":", "-") / "parts" / BIN
                wait_for(lambda: part.exists() and part.stat().st_size == 200_000, 60, "the first part")
                first.send_signal(signal.SIGKILL)
        finally:
            go.set()
        assert not (cache / digest.replace(":", "-")).exists()
        with started(cache, site.url, digest) as second:
            place = Path(second.communicate(timeout=60)[0].splitlines()[-1])
        assert site.starts(BIN) == [None, 200_000]
    assert tree(place) == tree(tmp_path / "made")
