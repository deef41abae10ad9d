"""s3:// from a real S3 server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster.certs import Authority
from numaserve_api.conditions import Reason
from numaserve_serving.fetch.errors import FetchError
from numaserve_serving.fetch.fetch import Origin, fetch_to
from tests.integration.fetch.conftest import ACCESS, BUCKET, MIB, SECRET, Made, Service
from tests.integration.fetch.proxy import dropping
from tests.unit.serving.fetching import hurried, tree

SOURCE = f"s3://{BUCKET}/encoders/tiny"
Secret = Callable[..., Path]


def reader(secret: Secret, address: str, **changes: str) -> Path:
    return secret(endpoint=f"https://{address}", **{"accessKeyId": ACCESS, "secretAccessKey": SECRET, **changes})


def test_an_artifact_comes_from_a_bucket(tmp_path: Path, s3: Service, secret: Secret, made: Made) -> None:
    fetch_to(tmp_path / "out", made.digest, Origin(SOURCE, reader(secret, s3.address)), hurried())
    assert tree(tmp_path / "out") == tree(made.folder)


def test_a_connection_cut_in_the_middle_is_taken_up_again(
    tmp_path: Path, s3: Service, secret: Secret, made: Made, authority: Authority
) -> None:
    with dropping(s3.port, 4 * MIB, authority.issue("server", ""), s3.context) as proxy:
        origin = Origin(SOURCE, reader(secret, f"127.0.0.1:{proxy.port}"))
        fetch_to(tmp_path / "out", made.digest, origin, hurried())
        assert proxy.cuts == 1
        # Every block is a request of its own: the cut one comes again, and none of the others.
        assert sorted(start for start in proxy.ranges if start) == [8 * MIB, 8 * MIB]
    assert tree(tmp_path / "out") == tree(made.folder)


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"secretAccessKey": "wrong"}, Reason.SOURCE_DENIED, "SignatureDoesNotMatch"),
        ({"accessKeyId": "nobody"}, Reason.SOURCE_DENIED, "must hold credentials that may read it"),
        ({"accessKeyId": "", "secretAccessKey": ""}, Reason.SOURCE_DENIED, "AccessDenied"),
    ],
)
def test_credentials_that_do_not_open_it_are_told(
    tmp_path: Path, s3: Service, secret: Secret, made: Made, changes: dict[str, str], reason: Reason, words: str
) -> None:
    with pytest.raises(FetchError, match=words) as caught:
        fetch_to(tmp_path / "out", made.digest, Origin(SOURCE, reader(secret, s3.address, **changes)), hurried())
    assert caught.value.reason is reason
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("source", [f"s3://{BUCKET}/encoders/none", "s3://nowhere/tiny"])
def test_what_is_not_there_is_missing(tmp_path: Path, s3: Service, secret: Secret, made: Made, source: str) -> None:
    with pytest.raises(FetchError, match="does not exist") as caught:
        fetch_to(tmp_path / "out", made.digest, Origin(source, reader(secret, s3.address)), hurried())
    assert caught.value.reason is Reason.ARTIFACT_MISSING


def test_a_certificate_of_an_unknown_authority_is_refused(
    tmp_path: Path, s3: Service, secret: Secret, made: Made
) -> None:
    credentials = reader(lambda **keys: secret(trust=False, **keys), s3.address)
    with pytest.raises(FetchError, match=r"is not trusted .* under the key ca\.crt") as caught:
        fetch_to(tmp_path / "out", made.digest, Origin(SOURCE, credentials), hurried())
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
