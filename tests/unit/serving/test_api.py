"""The serving port as clients see it: a real server, the real openai client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest

from numaserve_serving.backends import BackendError
from tests.unit.serving.conftest import DIMENSION, Running, make_config, serve, write_artifact


def test_the_openai_client_gets_the_same_vector_as_floats_and_base64(server: Running) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        floats = client.embeddings.create(model="tiny", input="hello world", encoding_format="float").data[0].embedding
        default = client.embeddings.create(model="tiny", input="hello world").data[0].embedding
        assert [m.id for m in client.models.list().data] == ["tiny"]
    assert len(floats) == DIMENSION
    assert np.allclose(floats, default, atol=1e-7)
    assert abs(np.linalg.norm(floats) - 1) < 1e-5


def test_a_list_is_answered_in_order_and_usage_counts_what_was_computed(server: Running) -> None:
    answer = server.embed(input=["hello", "world hello", "hello"]).json()
    vectors = [d["embedding"] for d in answer["data"]]
    assert [d["index"] for d in answer["data"]] == [0, 1, 2]
    assert vectors[0] == vectors[2]
    assert vectors[0] != vectors[1]
    assert answer["usage"] == {"prompt_tokens": 10, "total_tokens": 10, "truncated_tokens": 0}
    assert answer["model"] == "tiny@tiny@1"


def test_a_long_text_is_truncated_keeps_its_special_tokens_and_says_so(server: Running) -> None:
    answer = server.embed(input="hello " * 40)
    assert answer.json()["usage"] == {"prompt_tokens": 16, "total_tokens": 16, "truncated_tokens": 26}
    assert answer.headers["x-numaserve-truncated-tokens"] == "26"
    exact = server.embed(input=" ".join(["hello"] * 14)).json()["data"][0]["embedding"]
    assert answer.json()["data"][0]["embedding"] == exact


def test_every_answer_names_revision_and_space(server: Running) -> None:
    for answer in (server.embed(input="a"), server.embed(input=[]), httpx.get(f"{server.url}/health")):
        assert answer.headers["x-numaserve-revision"] == "rev1"
        assert answer.headers["x-numaserve-space"] == "tiny@1"


def test_a_request_for_another_space_is_412(server: Running) -> None:
    headers = {"X-Numaserve-Expect-Space": "other@1"}
    answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": "a"}, headers=headers)
    assert answer.status_code == 412
    assert "tiny@1" in answer.json()["error"]["message"]
    headers = {"X-Numaserve-Expect-Space": "tiny@1"}
    assert httpx.post(f"{server.url}/v1/embeddings", json={"input": "a"}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": []}, "empty list"),
        ({"input": ""}, "empty string"),
        ({"input": ["a", ""]}, "input 1"),
        ({"input": [1, 2, 3]}, "token ids"),
        ({"input": [[1, 2], [3]]}, "token ids"),
        ({"input": {"text": "a"}}, "string or a list"),
        ({"input": None}, "string or a list"),
        ({"input": ["a", None]}, "input 1 is no string"),
        ({"input": ["a"] * 2049}, "at most 2048"),
        ({"input": "a", "dimensions": 3}, "dimensions 3"),
        ({"input": "a", "dimensions": -1}, "dimensions -1"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "surprise": 1}, "surprise"),
        ({}, "input"),
    ],
)
def test_wrong_input_is_a_400_that_names_what_and_the_limit(
    server: Running, body: dict[str, object], words: str
) -> None:
    answer = server.embed(**body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert server.embed(input="a").status_code == 200


def test_an_unknown_model_is_404_and_the_known_names_are_accepted(server: Running) -> None:
    assert server.embed(input="a", model="gpt").status_code == 404
    assert server.embed(input="a", model="tiny@tiny@1").status_code == 200


@pytest.mark.parametrize("content", [b'{"input": "\\ud800"}', b"{", b"\xff", b"[1]", b""])
def test_broken_json_and_lone_surrogates_are_400(server: Running, content: bytes) -> None:
    answer = httpx.post(f"{server.url}/v1/embeddings", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "error" in answer.json()


@pytest.mark.parametrize("text", ["\u0000", "a\u0000b", "\u200b", " a ", "é" * 5000, "🙂"])
def test_odd_texts_are_answered_or_refused_but_never_a_500(server: Running, text: str) -> None:
    assert server.embed(input=text).status_code in (200, 400)


def test_a_body_that_is_too_large_is_413_with_and_without_a_length(server: Running) -> None:
    big = b'{"input": "' + b"a" * (33 * 1024 * 1024) + b'"}'

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(big), 1 << 20):
            yield big[start : start + (1 << 20)]

    for content in (big, chunks()):
        headers = {"content-type": "application/json"}
        try:
            answer = httpx.post(f"{server.url}/v1/embeddings", content=content, headers=headers, timeout=30)
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            continue  # the server closed while we were still sending, as it may
        assert answer.status_code == 413
        assert "bytes" in answer.json()["error"]["message"]
    assert server.embed(input="a").status_code == 200


def test_a_window_that_rejects_names_the_limit(artifact: Path, tmp_path: Path) -> None:
    from numaserve_api.manifest import manifest_digest

    config = make_config(manifest_digest((artifact / "manifest.json").read_bytes()), overflow="reject")
    for running in serve(artifact, config, tmp_path):
        answer = running.embed(input="hello " * 20)
        assert answer.status_code == 400
        assert "the window is 16" in answer.json()["error"]["message"]


def test_nan_is_a_500_for_its_text_and_never_a_vector(tmp_path: Path) -> None:
    config = make_config(write_artifact(tmp_path / "poisoned", poison=True))
    for running in serve(tmp_path / "poisoned", config, tmp_path):
        answer = running.embed(input="late invoice")
        assert answer.status_code == 500
        assert "NaN" in answer.json()["error"]["message"]
        assert running.embed(input="hello").status_code == 200


def test_a_batch_that_raises_fails_alone(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = server.state.engine
    assert engine
    backend = engine.backend

    class Failing:
        """A backend that fails once."""

        def __init__(self) -> None:
            self.inner, self.failed = backend, False

        @property
        def facts(self) -> object:
            return self.inner.facts

        def infer(self, ids: object, mask: object) -> object:
            if not self.failed:
                self.failed = True
                raise BackendError("boom")
            return self.inner.infer(ids, mask)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "backend", Failing())
    assert server.embed(input="hello").status_code == 500
    assert server.embed(input="hello").status_code == 200
    assert server.state.ready


def test_a_large_request_leaves_room_for_others(server: Running) -> None:
    engine = server.state.engine
    assert engine
    engine.queue_tokens, engine.slice_tokens = 256, 64
    answers: list[int] = []
    large = threading.Thread(target=lambda: answers.append(server.embed(input=["hello world"] * 2000).status_code))
    large.start()
    small = [server.embed(input="hello").status_code for _ in range(20)]
    large.join(30)
    assert set(small) == {200}
    assert answers == [200]


def test_metrics_count_requests_tokens_and_show_what_is_executed(server: Running) -> None:
    server.embed(input=["hello", "world"])
    server.embed(input=[])
    text = httpx.get(f"{server.url}/metrics").text
    assert 'numaserve_requests_total{code="200",route="/v1/embeddings"} 1.0' in text
    assert 'numaserve_requests_total{code="400",route="/v1/embeddings"} 1.0' in text
    assert "numaserve_tokens_total 6.0" in text


def test_the_openapi_document_describes_the_endpoint(server: Running) -> None:
    document = httpx.get(f"{server.url}/openapi.json").json()
    assert "/v1/embeddings" in document["paths"]
    assert json.dumps(document)
