"""What a source means, which credentials open it, and how hubs and registries answer."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numaserve_api.conditions import Reason
from numaserve_api.config import SOURCE_SCHEMES
from numaserve_serving.fetch.bucket import filesystem
from numaserve_serving.fetch.credentials import Credentials, forget_environment, read_credentials
from numaserve_serving.fetch.errors import FetchError
from numaserve_serving.fetch.fetch import Origin, fetch_to
from numaserve_serving.fetch.location import (
    BucketLocation,
    FolderLocation,
    HubLocation,
    RegistryLocation,
    UrlLocation,
    is_loopback,
    parse_location,
)
from numaserve_serving.fetch.registry import TITLE
from tests.unit.serving.fetching import ZERO, Asked, Handler, hurried, served, tree, write_artifact


@pytest.mark.parametrize(
    ("source", "location"),
    [
        ("hf://team/enc@v1", HubLocation("team/enc", "v1", "")),
        ("hf://team/enc@refs%2Fpr%2F1/int8/", HubLocation("team/enc", "refs%2Fpr%2F1", "int8")),
        ("s3://models", BucketLocation("models", "")),
        ("s3://models/a/b/", BucketLocation("models", "a/b")),
        ("https://host:8443/m", UrlLocation("https://host:8443/m/")),
        ("http://[::1]:80/m/", UrlLocation("http://[::1]:80/m/")),
        ("oci://r.example:5000/team/enc:1.0", RegistryLocation("r.example:5000", "team/enc", "1.0")),
        (f"oci://[::1]:5000/enc:1@{ZERO}", RegistryLocation("[::1]:5000", "enc", ZERO)),
        ("file:///srv/m", FolderLocation("/srv/m")),
    ],
)
def test_a_source_is_understood(source: str, location: object) -> None:
    assert parse_location(source) == location


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("hf://team/enc", "hf://OWNER/NAME@REVISION"),
        ("hf://team/enc@v1/../x", "must not contain"),
        ("s3://UPPER/x", "s3://BUCKET/PREFIX"),
        ("s3://models/a//b", "must not contain empty"),
        ("oci://host/repo", "oci://REGISTRY/REPOSITORY:TAG"),
        ("oci://host/repo@sha256:12", "oci://REGISTRY/REPOSITORY:TAG"),
        ("https://host/m?token=1", "the directory that holds manifest.json"),
        ("https://host:port/m", "the directory that holds manifest.json"),
        ("https://[::1/m", "the directory that holds manifest.json"),
        ("https:///m", "the directory that holds manifest.json"),
        ("http://host/m", "plain http is for this machine only"),
        ("http://127.0.0.1.example/m", "plain http is for this machine only"),
        ("file://srv/m", "three slashes"),
        ("pvc://claim/m", "mounted, not fetched"),
        ("ftp://host/m", "write hf://"),
        ("models", "write hf://"),
    ],
)
def test_a_source_that_means_nothing_says_how_it_is_written(source: str, remedy: str) -> None:
    with pytest.raises(FetchError) as caught:
        parse_location(source)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "https://me:pa55word@host/m",
        "https://me:pa55word@",
        "https://me:pa55word@host/m?x=1",
        "https://me:pa55word@[::1/m",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(source: str) -> None:
    with pytest.raises(FetchError, match="not into the URL") as caught:
        parse_location(source)
    assert "pa55word" not in str(caught.value)


@given(st.sampled_from([*SOURCE_SCHEMES, "http"]), st.text(max_size=60))
def test_any_source_is_a_location_or_a_refusal(scheme: str, rest: str) -> None:
    try:
        location = parse_location(f"{scheme}://{rest}")
    except FetchError:
        return
    assert not isinstance(location, UrlLocation) or location.url.startswith("https://") or "://" in location.url


@pytest.mark.parametrize(("host", "ours"), [("localhost", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("10.0.0.1", False), ("localhost.example", False), (None, False), ("", False)])  # fmt: skip
def test_only_this_machine_is_loopback(host: str | None, ours: bool) -> None:
    assert is_loopback(host) is ours


def secret(tmp_path: Path, **keys: str) -> Path:
    """A mounted Secret as the kubelet lays it out: names are links into a folder that is swapped."""
    data = tmp_path / "secret" / "..2026_01_01"
    data.mkdir(parents=True)
    (tmp_path / "secret" / "..data").symlink_to(data.name)
    for key, value in keys.items():
        name = key.replace("__", ".")
        (data / name).write_text(value)
        (tmp_path / "secret" / name).symlink_to(f"..data/{name}")
    return tmp_path / "secret"


def test_a_mounted_secret_is_read_and_never_shown(tmp_path: Path) -> None:
    credentials = read_credentials(secret(tmp_path, token="t0p\n", ca__crt="PEM"))
    assert credentials.values == {"token": "t0p", "ca.crt": "PEM"}
    assert credentials.ca == tmp_path / "secret" / "ca.crt"
    assert "t0p" not in repr(credentials)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"], ids=["missing", "empty", "binary"])
def test_a_secret_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "secret").mkdir()
    if content:
        (tmp_path / "secret" / "token").write_bytes(content)
    with pytest.raises(FetchError, match="Secret models-reader") as caught:
        read_credentials(tmp_path / "secret", "models-reader")
    assert caught.value.reason is Reason.SECRET_NOT_FOUND


def test_the_environment_of_the_libraries_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "AWS_PROFILE": "me",
        "HF_TOKEN": "t",
        "https_proxy": "p",
        "FSSPEC_S3": "{}",
        "DOCKER_CONFIG": "d",
        "HOME": "/h",
    }
    monkeypatch.setattr(os, "environ", dict(given))
    forget_environment()
    assert given.items() & os.environ.items() == {("HOME", "/h")}
    assert os.environ["AWS_EC2_METADATA_DISABLED"] == "true"


def docker(**entries: dict[str, str]) -> Credentials:
    return Credentials(
        {".dockerconfigjson": json.dumps({"auths": {k.replace("__", "."): v for k, v in entries.items()}})}
    )


def test_a_docker_login_is_found_by_host() -> None:
    coded = base64.b64encode(b"me:pa:ss").decode()
    credentials = docker(r__example={"auth": coded}, s__example={"username": "you", "password": "pw"})
    assert credentials.login("r.example") == ("me", "pa:ss")
    assert credentials.login("s.example") == ("you", "pw")
    assert credentials.login("other.example") is None
    assert Credentials({"username": "u", "password": "p"}).login("r.example") == ("u", "p")


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"auths": {"r": {"auth": "%"}}}', '{"auths": {"r": {}}}', '{"auths": []}']
)
def test_a_docker_configuration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FetchError, match="not a Docker configuration"):
        Credentials({".dockerconfigjson": text}).login("r")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"accessKeyId": "a"}, "only one of the keys"),
        ({"secretAccessKey": "a"}, "only one of the keys"),
        ({"endpoint": "http://s3.example"}, "must be an https:// address"),
        ({"endpoint": "s3.example"}, "must be an https:// address"),
    ],
)
def test_half_of_a_key_pair_and_plain_endpoints_are_refused(keys: dict[str, str], words: str) -> None:
    with pytest.raises(FetchError, match=words):
        filesystem(Credentials(keys))


def test_an_authority_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    for source in ("https://host/m", "s3://models/m", "oci://host/m:1", "hf://team/enc@v1"):
        folder = tmp_path / source[:3]
        folder.mkdir()
        with pytest.raises(FetchError, match=r"ca\.crt of the Secret is not a PEM certificate"):
            fetch_to(tmp_path / "out", ZERO, Origin(source, secret(folder, ca__crt="no PEM")), hurried())


def test_a_hub_is_asked_for_the_revision_and_its_redirects_are_followed(tmp_path: Path) -> None:
    digest = write_artifact(tmp_path / "made")
    files = tree(tmp_path / "made")

    def hub(handler: Handler, asked: Asked) -> bool:
        path = asked.path.removeprefix("/team/enc/resolve/v1.0/int8/")
        if asked.headers.get("Authorization") != "Bearer hf_x":
            handler.status(401)
        elif asked.path.startswith("/lfs/"):
            handler.content(files[asked.path.removeprefix("/lfs/")], asked.start)
        elif path.endswith(".bin"):
            handler.status(302, Location=f"/lfs/{path}")
        elif path in files:
            handler.content(files[path], asked.start)
        else:
            handler.status(404)
        return True

    with served(answer=hub) as site:
        endpoint = site.url.removesuffix("/a/")
        origin = Origin("hf://team/enc@v1.0/int8", secret(tmp_path, endpoint=endpoint, token="hf_x"))
        fetch_to(tmp_path / "out", digest, origin, hurried())
        assert tree(tmp_path / "out") == files
        (tmp_path / "other").mkdir()
        stranger = Origin("hf://team/enc@v1.0/int8", secret(tmp_path / "other", endpoint=endpoint))
        with pytest.raises(FetchError, match="answers HTTP 401") as caught:
            fetch_to(tmp_path / "again", digest, stranger, hurried())
    assert caught.value.reason is Reason.SOURCE_DENIED


def test_a_hub_in_plain_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="must be an https:// address"):
        fetch_to(
            tmp_path / "out", ZERO, Origin("hf://a/b@c", secret(tmp_path, endpoint="http://hub.example")), hurried()
        )


class Registry:
    """A registry that hands out tokens, as the public ones do."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.blobs = {"sha256:" + hashlib.sha256(content).hexdigest(): content for content in files.values()}
        layers: list[dict[str, Any]] = [
            {"digest": "sha256:" + hashlib.sha256(content).hexdigest(), "annotations": {TITLE: path}}
            for path, content in files.items()
        ]
        self.manifest = json.dumps({"schemaVersion": 2, "layers": layers}).encode()
        self.realm = "{here}token"
        self.issued = 0
        self.valid = 1000

    def __call__(self, handler: Handler, asked: Asked) -> bool:
        here = handler.site.url
        if asked.path.startswith("token"):
            ok = asked.headers.get("Authorization") == "Basic " + base64.b64encode(b"me:pw").decode()
            self.issued += ok
            handler.content(json.dumps({"token": f"t{self.issued}"}).encode(), None) if ok else handler.status(401)
        elif asked.headers.get("Authorization") != f"Bearer t{self.issued}" or self.valid == 0:
            self.valid -= self.valid == 0  # one token expires, the next one lasts
            challenge = f'Bearer realm="{self.realm.format(here=here)}",service="r",scope="repository:team/enc:pull"'
            handler.status(401, WWW_Authenticate=challenge)
        elif asked.path == "/v2/team/enc/manifests/1":
            handler.content(self.manifest, None)
        else:
            self.valid -= self.valid > 0
            blob = self.blobs.get(asked.path.removeprefix("/v2/team/enc/blobs/"))
            handler.content(blob, asked.start) if blob is not None else handler.status(404)
        return True


@pytest.fixture
def made(tmp_path: Path) -> Path:
    write_artifact(tmp_path / "made")
    return tmp_path / "made"


def digest_of(folder: Path) -> str:
    return "sha256:" + hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


def test_a_registry_is_logged_into_with_a_token_and_again_when_it_expires(tmp_path: Path, made: Path) -> None:
    registry = Registry(tree(made))
    registry.valid = 2
    with served(answer=registry) as site:
        origin = Origin(f"oci://{site.url[7:-3]}/team/enc:1", secret(tmp_path, username="me", password="pw"))
        fetch_to(tmp_path / "out", digest_of(made), origin, hurried())
    assert tree(tmp_path / "out") == tree(made)
    assert registry.issued == 2


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_registry_that_does_not_know_us_is_a_denial(tmp_path: Path, made: Path, password: str) -> None:
    with served(answer=Registry(tree(made))) as site:
        origin = Origin(f"oci://{site.url[7:-3]}/team/enc:1", secret(tmp_path, username="me", password=password))
        with pytest.raises(FetchError, match="answers HTTP 401") as caught:
            fetch_to(tmp_path / "out", digest_of(made), origin, hurried())
    assert caught.value.reason is Reason.SOURCE_DENIED


def test_a_token_server_in_plain_text_elsewhere_gets_no_password(tmp_path: Path, made: Path) -> None:
    registry = Registry(tree(made))
    registry.realm = "http://tokens.invalid/token"
    with served(answer=registry) as site:
        origin = Origin(f"oci://{site.url[7:-3]}/team/enc:1", secret(tmp_path, username="me", password="pw"))
        with pytest.raises(FetchError, match=r"plain http at tokens\.invalid"):
            fetch_to(tmp_path / "out", digest_of(made), origin, hurried())


@pytest.mark.parametrize(
    "manifest", [b"{", b"[]", b'{"layers": []}', b'{"layers": [{"digest": "sha256:1"}]}', b'{"manifests": []}']
)
def test_an_image_that_carries_no_titles_is_refused(tmp_path: Path, manifest: bytes) -> None:
    def plain(handler: Handler, asked: Asked) -> bool:
        handler.content(manifest, None)
        return True

    with served(answer=plain) as site, pytest.raises(FetchError, match="oras push") as caught:
        fetch_to(tmp_path / "out", ZERO, Origin(f"oci://{site.url[7:-3]}/team/enc:1"), hurried())
    assert caught.value.reason is Reason.ARTIFACT_INVALID


def test_a_registry_that_answers_another_manifest_than_its_digest_is_refused(tmp_path: Path, made: Path) -> None:
    def plain(handler: Handler, asked: Asked) -> bool:
        handler.content(Registry(tree(made)).manifest, None)
        return True

    with served(answer=plain) as site, pytest.raises(FetchError, match=f"where {ZERO} was asked for"):
        fetch_to(tmp_path / "out", digest_of(made), Origin(f"oci://{site.url[7:-3]}/team/enc@{ZERO}"), hurried())
