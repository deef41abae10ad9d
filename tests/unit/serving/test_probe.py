"""The probe port, draining, and what a server refuses at its start."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest
import yaml

from demo.world import wait_for
from numaserve_api.conditions import Reason
from numaserve_api.manifest import manifest_digest
from numaserve_api.resource import dump
from numaserve_serving.engine.errors import StartupError
from numaserve_serving.engine.startup import load
from tests.unit.serving.conftest import DIMENSION, Running, free_port, make_config


def test_the_probe_port_wants_its_token(server: Running) -> None:
    assert server.probe("GET", "/v1/placement", token="wrong").status_code == 401
    assert httpx.get(f"{server.probe_url}/v1/placement").status_code == 401
    assert server.probe("GET", "/v1/placement").status_code == 200


def test_placement_tells_cores_threads_and_precision(server: Running) -> None:
    report = server.probe("GET", "/v1/placement").json()
    assert report["ready"] is True
    assert report["threads"] == report["threadsRequested"] == 1
    assert report["precision"] == "f32"
    assert report["space"] == "tiny@1"
    assert report["cpuset"]


def test_gate_answers_the_same_vectors_as_the_service(server: Running) -> None:
    texts = ["hello", "world hello"]
    told = server.probe("POST", "/v1/gate", json={"inputs": texts}).json()
    vectors = np.frombuffer(base64.b64decode(told["vectors"]), "<f4").reshape(told["count"], told["dimension"])
    served = [d["embedding"] for d in server.embed(input=texts).json()["data"]]
    assert np.allclose(vectors, served, atol=1e-6)
    assert told["revision"] == "rev1"
    assert told["tokenCounts"] == [3, 4]
    alone = server.probe("POST", "/v1/gate", json={"inputs": texts, "together": False}).json()
    assert alone["tokenDigests"] == told["tokenDigests"]
    assert "numaserve_texts_total 2.0" in httpx.get(f"{server.url}/metrics").text


def test_samples_and_reference_are_paged(server: Running) -> None:
    page = server.probe("GET", "/v1/samples?offset=1&limit=1").json()
    assert (page["total"], page["texts"]) == (3, ["a\u2028b"])
    vectors = server.probe("GET", "/v1/reference?offset=2&limit=5").json()
    assert (vectors["total"], vectors["count"], vectors["dimension"]) == (3, 1, DIMENSION)


def test_a_drained_server_is_not_ready_and_ends_connections_but_still_answers(server: Running) -> None:
    assert server.probe("POST", "/v1/drain").status_code == 202
    assert httpx.get(f"{server.url}/v2/health/ready").status_code == 503
    assert httpx.get(f"{server.url}/v2/health/live").status_code == 200
    answer = server.embed(input="hello")
    assert answer.status_code == 200
    assert answer.headers["connection"] == "close"
    assert server.probe("GET", "/v1/placement").json()["draining"] is True


def digest_of(folder: Path) -> str:
    """Hash of an artifact."""
    return manifest_digest((folder / "manifest.json").read_bytes())


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ("changed", Reason.DIGEST_MISMATCH, "openvino_model.bin"),
        ("missing", Reason.ARTIFACT_MISSING, "tokenizer.json"),
        ("added", Reason.ARTIFACT_INVALID, "extra.bin"),
        ("linked", Reason.ARTIFACT_INVALID, "tokenizer.json"),
        ("other", Reason.DIGEST_MISMATCH, "sha256:0000"),
        ("empty", Reason.ARTIFACT_MISSING, "manifest.json"),
    ],
)
def test_an_artifact_with_a_fault_is_refused_by_name(
    artifact: Path, tmp_path: Path, fault: str, reason: Reason, words: str
) -> None:
    digest = digest_of(artifact)
    if fault == "changed":
        content = bytearray((artifact / "openvino_model.bin").read_bytes())
        content[0] ^= 1
        (artifact / "openvino_model.bin").write_bytes(content)
    if fault in ("missing", "linked"):
        (artifact / "tokenizer.json").rename(tmp_path / "elsewhere.json")
    if fault == "linked":
        (artifact / "tokenizer.json").symlink_to(tmp_path / "elsewhere.json")
    if fault == "added":
        (artifact / "extra.bin").write_bytes(b"x")
    if fault == "other":
        digest = "sha256:" + "0" * 64
    if fault == "empty":
        shutil.rmtree(artifact)
        artifact.mkdir()
    with pytest.raises(StartupError, match=words) as caught:
        load(make_config(digest), artifact, None)
    assert caught.value.reason is reason


def test_a_config_that_disagrees_with_the_artifact_is_refused(artifact: Path) -> None:
    config = make_config(digest_of(artifact), maxTokens=64, buckets=[64])
    with pytest.raises(StartupError, match="at most 16") as caught:
        load(config, artifact, None)
    assert caught.value.reason is Reason.MANIFEST_MISMATCH


def test_a_cache_that_cannot_be_written_is_not_fatal(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    loaded = load(make_config(digest_of(artifact)), artifact, tmp_path / "file")
    assert loaded.facts.precision == "f32"


def start_process(artifact: Path, tmp_path: Path, digest: str, port: int) -> subprocess.Popen[bytes]:
    """The server as its own process, as a pod runs it."""
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(dump(make_config(digest))))
    code = (
        "import sys; from pathlib import Path\n"
        "from numaserve_api.validate import parse_config\n"
        "from numaserve_serving.http.state import Identity, ServerState\n"
        "from numaserve_serving.server import Ports, run\n"
        f"state = ServerState(parse_config(Path({str(config)!r}).read_text()), Identity())\n"
        f"sys.exit(run(state, Path({str(artifact)!r}), None, Ports('127.0.0.1', {port}, 0)))\n"
    )
    environment = {**os.environ, "NUMASERVE_TERMINATION_LOG": str(tmp_path / "termination")}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)


def test_a_refusal_ends_the_process_and_is_written_to_the_termination_log(artifact: Path, tmp_path: Path) -> None:
    with start_process(artifact, tmp_path, "sha256:" + "0" * 64, free_port()) as process:
        assert process.wait(30) == 78
    told = json.loads((tmp_path / "termination").read_text())
    assert told["reason"] == "DigestMismatch"


def test_sigterm_under_load_loses_no_accepted_request(artifact: Path, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    results: list[int] = []
    stop = threading.Event()

    def ready() -> bool | None:
        try:
            return httpx.get(f"{url}/health").status_code == 200 or None
        except httpx.TransportError:
            return None

    def ask() -> None:
        while not stop.is_set():
            answer = httpx.post(f"{url}/v1/embeddings", json={"input": ["hello world"] * 50}, timeout=20)
            results.append(answer.status_code)

    with start_process(artifact, tmp_path, digest_of(artifact), port) as process:
        wait_for(ready, 30, "a ready server")
        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        wait_for(lambda: len(results) > 20 or None, 20, "some answers")
        # In a cluster the pod has left the endpoints by now: what counts are the requests under way.
        stop.set()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        for client in clients:
            client.join(20)
    assert set(results) == {200}
