"""https:// with TLS of an authority of one's own, cut in the middle, and into a directory that is a real mount."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localcluster.certs import Authority
from numaserve_api.conditions import Reason
from numaserve_serving.fetch.errors import FetchError
from numaserve_serving.fetch.fetch import Origin, fetch_to
from tests.integration.fetch.conftest import MIB, Made
from tests.integration.fetch.proxy import DroppingProxy, dropping
from tests.unit.serving.fetching import Site, hurried, served, tree

Secret = Callable[..., Path]


@pytest.fixture
def site(made: Made) -> Iterator[Site]:
    with served(made.folder) as site:
        yield site


@pytest.fixture
def proxy(site: Site, authority: Authority) -> Iterator[DroppingProxy]:
    """HTTPS in front of the site."""
    with dropping(int(site.url.split(":")[2].partition("/")[0]), 4 * MIB, authority.issue("server", "")) as proxy:
        yield proxy


def url(proxy: DroppingProxy, host: str = "127.0.0.1") -> str:
    return f"https://{host}:{proxy.port}/a"


def test_a_connection_cut_in_the_middle_is_taken_up_again(
    tmp_path: Path, proxy: DroppingProxy, secret: Secret, made: Made
) -> None:
    fetch_to(tmp_path / "out", made.digest, Origin(url(proxy, "localhost"), secret()), hurried())
    assert proxy.cuts == 1
    assert len(proxy.ranges) == 1
    assert MIB < proxy.ranges[0] <= 4 * MIB
    assert tree(tmp_path / "out") == tree(made.folder)


def test_an_unknown_authority_and_another_host_are_refused(
    tmp_path: Path, site: Site, proxy: DroppingProxy, secret: Secret, made: Made, authority: Authority
) -> None:
    with dropping(1, 0, authority.issue("stranger", "")) as stranger:
        for origin in (Origin(url(proxy), secret(trust=False, token="t")), Origin(url(stranger), secret())):
            with pytest.raises(FetchError, match="is not trusted") as caught:
                fetch_to(tmp_path / "out", made.digest, origin, hurried())
            assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert site.asked == []


def test_a_redirect_from_tls_to_plain_text_is_refused_even_to_this_machine(
    tmp_path: Path, site: Site, proxy: DroppingProxy, secret: Secret, made: Made
) -> None:
    def redirect(handler: object, asked: object) -> bool:
        handler.status(302, Location=f"{site.url}again")  # type: ignore[attr-defined]
        return True

    site.answer = redirect
    with pytest.raises(FetchError, match=r"leads to plain http at 127\.0\.0\.1"):
        fetch_to(tmp_path / "out", made.digest, Origin(url(proxy), secret(token="t")), hurried())
    assert len(site.asked) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("size", ["32m", "12m"])
def test_a_real_mount_is_filled_or_told_to_be_too_small(tmp_path: Path, made: Made, size: str) -> None:
    out = tmp_path / "emptydir"
    out.mkdir()
    script = (
        'set -e; mount -t tmpfs -o size="$1" tmpfs "$2"; shift; out="$1"; shift; code=0; "$@" --out "$out" || code=$?; '
        'find "$out" -type f -printf "%P\\n"; exit $code'
    )
    fetch = [
        sys.executable,
        "-m",
        "numaserve_serving.fetch",
        "--source",
        f"file://{made.folder}",
        "--hash",
        made.digest,
    ]
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NUMASERVE_TERMINATION_LOG": str(log)}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", size, str(out), *fetch],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if size == "12m":
        assert done.returncode == 78, done.stderr
        assert '"reason": "NoSpace"' in log.read_text()
        assert done.stdout.split() == [".fetching/manifest.json"]
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[0] == str(out)
        assert set(done.stdout.split()[1:]) == set(tree(made.folder))
