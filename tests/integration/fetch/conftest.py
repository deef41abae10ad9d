"""A real S3 server and a real OCI registry with TLS and credentials, on loopback, started once and stopped by id."""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localcluster import binaries
from localcluster.certs import Authority
from localcluster.errors import ClusterError
from localcluster.processes import Processes
from tests.unit.serving.fetching import write_artifact

HOSTS = ("127.0.0.1", "localhost")
ACCESS, SECRET = "reader", "reads-models-0123"
USER, PASSWORD = "reader", "reads-models"
HTPASSWD = "reader:$2b$04$kR0SFblfl1/3GmBO6HkJLepV06UkExJjwgv30vP/Y3Sh/QyUwcfmu\n"
BUCKET = "models"
MIB = 1024 * 1024
SIZES = {
    "openvino_model.xml": 2_000,
    "openvino_model.bin": 9 * MIB,
    "whole.bin": 8 * MIB,
    "empty.txt": 0,
    "samples/texts.jsonl": 70_000,
}
"""A file of more than one S3 block and one of exactly one."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running server: where it listens and how it is spoken to."""

    port: int
    context: ssl.SSLContext

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Made:
    """An artifact to be fetched."""

    folder: Path
    digest: str


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that nobody trusts but those who are given its certificate."""
    authority = Authority(tmp_path_factory.mktemp("certs"))
    authority.issue("server", "fetch test", hosts=HOSTS)
    authority.issue("stranger", "fetch test", hosts=("models.example",))
    return authority


@pytest.fixture(scope="session")
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.ca.cert))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """An artifact of 17 MiB."""
    folder = tmp_path_factory.mktemp("made")
    return Made(folder, write_artifact(folder, sizes=SIZES))


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """What the fixtures start, ended by the ids they recorded."""
    root = tmp_path_factory.mktemp("processes")
    processes = Processes(root / "pids", root / "logs")
    yield processes
    for name in processes.names():
        processes.stop(name)


@pytest.fixture(scope="session")
def s3(
    authority: Authority,
    trusting: ssl.SSLContext,
    processes: Processes,
    made: Made,
    tmp_path_factory: pytest.TempPathFactory,
) -> Service:
    """versitygw over a folder, with the artifact under models/encoders/tiny."""
    root, port = tmp_path_factory.mktemp("s3"), free_port()
    for folder in ("data", "meta"):
        (root / folder).mkdir()
    pair = authority.issue("server", "fetch test", hosts=HOSTS)
    words: list[str | Path] = [
        binary(binaries.versitygw), "--access", ACCESS, "--secret", SECRET, "--port", f"127.0.0.1:{port}",
        "--cert", pair.cert, "--key", pair.key, "--quiet", "posix", "--sidecar", root / "meta", root / "data",
    ]  # fmt: skip
    processes.start("versitygw", words)
    processes.wait_for("versitygw", lambda: listens(port), 30, "a listening port")
    upload(f"https://127.0.0.1:{port}", authority, made)
    return Service(port, trusting)


def upload(endpoint: str, authority: Authority, made: Made) -> None:
    """Put the artifact into a bucket."""
    import s3fs

    files = s3fs.S3FileSystem(
        key=ACCESS, secret=SECRET, endpoint_url=endpoint, client_kwargs={"verify": str(authority.ca.cert), "region_name": "us-east-1"},
        config_kwargs={"s3": {"addressing_style": "path"}}, skip_instance_cache=True,
    )  # fmt: skip
    files.call_s3("create_bucket", Bucket=BUCKET)
    for path in made.folder.rglob("*"):
        if path.is_file():
            files.pipe_file(f"{BUCKET}/encoders/tiny/{path.relative_to(made.folder)}", path.read_bytes())
    files.close_session(files.loop, files._s3creator)


@pytest.fixture(scope="session")
def registry(
    authority: Authority,
    trusting: ssl.SSLContext,
    processes: Processes,
    made: Made,
    tmp_path_factory: pytest.TempPathFactory,
) -> Service:
    """The distribution registry with a password, and the artifact pushed with oras as team/tiny:1."""
    root, port = tmp_path_factory.mktemp("registry"), free_port()
    pair = authority.issue("server", "fetch test", hosts=HOSTS)
    (root / "htpasswd").write_text(HTPASSWD)
    (root / "config.yml").write_text(
        f"""
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {root / "data"}}}}}
http: {{addr: "127.0.0.1:{port}", secret: tests, tls: {{certificate: {pair.cert}, key: {pair.key}}}}}
auth: {{htpasswd: {{realm: tests, path: {root / "htpasswd"}}}}}
"""
    )
    processes.start("registry", [binary(binaries.registry), "serve", root / "config.yml"])
    processes.wait_for("registry", lambda: listens(port), 30, "a listening port")
    push(f"127.0.0.1:{port}", authority, made, root)
    return Service(port, trusting)


def push(host: str, authority: Authority, made: Made, work: Path) -> None:
    """Push the artifact with oras, each file under its path."""
    from oras.client import OrasClient

    files = [path for path in made.folder.rglob("*") if path.is_file()]
    titles = {
        str(path): {"org.opencontainers.image.title": str(path.relative_to(made.folder))} for path in files
    }  # oras-py titles a file with its base name unless told
    (work / "annotations.json").write_text(json.dumps(titles))
    client: Any = OrasClient(tls_verify=str(authority.ca.cert), auth_backend="basic")
    client.auth.set_basic_auth(USER, PASSWORD)
    # From the first request on: refused in the middle of a large upload, the connection would only break.
    client.set_header("Authorization", "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode())
    with closing(client.session):
        client.push(
            f"{host}/team/tiny:1", files=[str(path) for path in files], disable_path_validation=True,
            annotation_file=str(work / "annotations.json"), quiet=True,
        )  # fmt: skip


@pytest.fixture
def secret(tmp_path: Path, authority: Authority) -> Callable[..., Path]:
    """Makes the folder of a mounted Secret; the authority is in it unless ``trust`` is False."""

    def make(trust: bool = True, **keys: str) -> Path:
        folder = tmp_path / f"secret-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for key, value in keys.items():
            (folder / key).write_text(value)
        if trust:
            (folder / "ca.crt").write_bytes(authority.ca.cert.read_bytes())
        return folder

    return make


def binary(build: Callable[[], Path]) -> Path:
    """The cached program; a machine without Go is told what it needs."""
    try:
        return build()
    except ClusterError as error:
        pytest.fail(f"these tests need a server that is built with Go 1.26 or newer (https://go.dev/dl): {error}")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
