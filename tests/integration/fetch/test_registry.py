"""oci:// from a real registry, pushed with oras."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from localcluster.certs import Authority
from numaserve_api.conditions import Reason
from numaserve_serving.fetch.errors import FetchError
from numaserve_serving.fetch.fetch import Origin, fetch_to
from tests.integration.fetch.conftest import MIB, PASSWORD, USER, Made, Service
from tests.integration.fetch.proxy import dropping
from tests.unit.serving.fetching import hurried, tree

Secret = Callable[..., Path]


def test_an_artifact_comes_by_tag_and_by_digest(tmp_path: Path, registry: Service, secret: Secret, made: Made) -> None:
    credentials = secret(username=USER, password=PASSWORD)
    answer = httpx.head(
        f"https://{registry.address}/v2/team/tiny/manifests/1", auth=(USER, PASSWORD), verify=registry.context,
        headers={"Accept": "application/vnd.oci.image.manifest.v1+json"}, trust_env=False,
    )  # fmt: skip
    for reference in (":1", f"@{answer.headers['Docker-Content-Digest']}"):
        out = tmp_path / f"out{len(reference)}"
        fetch_to(out, made.digest, Origin(f"oci://{registry.address}/team/tiny{reference}", credentials), hurried())
        assert tree(out) == tree(made.folder)


def test_a_docker_login_opens_it(tmp_path: Path, registry: Service, secret: Secret, made: Made) -> None:
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    credentials = secret(**{".dockerconfigjson": json.dumps({"auths": {registry.address: {"auth": auth}}})})
    fetch_to(tmp_path / "out", made.digest, Origin(f"oci://{registry.address}/team/tiny:1", credentials), hurried())
    assert tree(tmp_path / "out") == tree(made.folder)


def test_a_connection_cut_in_the_middle_is_taken_up_again(
    tmp_path: Path, registry: Service, secret: Secret, made: Made, authority: Authority
) -> None:
    with dropping(registry.port, 4 * MIB, authority.issue("server", ""), registry.context) as proxy:
        origin = Origin(f"oci://127.0.0.1:{proxy.port}/team/tiny:1", secret(username=USER, password=PASSWORD))
        fetch_to(tmp_path / "out", made.digest, origin, hurried())
        assert proxy.cuts == 1
        assert len(proxy.ranges) == 1
        assert MIB < proxy.ranges[0] <= 4 * MIB
    assert tree(tmp_path / "out") == tree(made.folder)


@pytest.mark.parametrize("keys", [{}, {"username": USER, "password": "wrong"}], ids=["none", "wrong"])
def test_credentials_that_do_not_open_it_are_told(
    tmp_path: Path, registry: Service, secret: Secret, made: Made, keys: dict[str, str]
) -> None:
    with pytest.raises(FetchError, match="answers HTTP 401") as caught:
        fetch_to(
            tmp_path / "out", made.digest, Origin(f"oci://{registry.address}/team/tiny:1", secret(**keys)), hurried()
        )
    assert caught.value.reason is Reason.SOURCE_DENIED


@pytest.mark.parametrize("name", ["team/tiny:2", "team/none:1"])
def test_what_is_not_there_is_missing(tmp_path: Path, registry: Service, secret: Secret, made: Made, name: str) -> None:
    credentials = secret(username=USER, password=PASSWORD)
    with pytest.raises(FetchError, match="does not exist") as caught:
        fetch_to(tmp_path / "out", made.digest, Origin(f"oci://{registry.address}/{name}", credentials), hurried())
    assert caught.value.reason is Reason.ARTIFACT_MISSING


def test_a_registry_on_this_machine_is_spoken_to_in_tls_when_an_authority_is_given_and_it_must_fit(
    tmp_path: Path, registry: Service, secret: Secret, made: Made, authority: Authority
) -> None:
    credentials = secret(username=USER, password=PASSWORD)
    stranger = authority.issue("stranger", "")
    with dropping(registry.port, 2**60, stranger, registry.context) as proxy:  # noqa: SIM117 -- the proxy's port is needed
        with pytest.raises(FetchError, match="is not trusted") as caught:
            fetch_to(
                tmp_path / "out",
                made.digest,
                Origin(f"oci://127.0.0.1:{proxy.port}/team/tiny:1", credentials),
                hurried(),
            )
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
