"""A manifest names files of its own artifact only, and says in a sentence what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from numaserve_api.manifest import Manifest, manifest_digest
from numaserve_api.validate import sentences
from tests.unit.api.resources import HASH, changed

MANIFEST: dict[str, Any] = {
    "version": 1,
    "files": [{"path": "openvino_model.xml", "size": 12, "digest": HASH}],
    "parts": {"samples": "samples/texts.jsonl"},
    "model": {
        "task": "embedding",
        "pooling": "mean",
        "normalize": True,
        "dimensions": [384],
        "maxTokens": 512,
        "positions": 512,
        "layers": ["full"],
        "space": "minilm-l6@1",
        "weightsDigest": HASH,
        "tokenizerDigest": HASH,
    },
    "quantization": {"scheme": "none"},
    "provenance": {"tool": "numaserve models export"},
}


def test_a_manifest_is_read() -> None:
    manifest = Manifest.model_validate(MANIFEST)
    assert manifest.parts.graph == "openvino_model.xml"
    assert manifest.model.dimensions == [384]


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "a/../../b", "a//b", "a/", ".hidden", "a/.b", "", "a b", "a\nb", "a\\b"]
)
def test_a_file_outside_the_artifact_is_refused(path: str) -> None:
    wrong = changed(MANIFEST, {"files": [{"path": path, "size": 1, "digest": HASH}]})
    with pytest.raises(ValidationError) as caught:
        Manifest.model_validate(wrong)
    assert (
        "manifest.json.files.0.path: must be a path inside the artifact" in sentences(caught.value, "manifest.json")[0]
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 2}, "manifest.json.version: Input should be 1 (given 2)"),
        ({"later": 1}, "manifest.json.later is not a known field"),
        ({"model.weightsDigest": "x"}, "manifest.json.model.weightsDigest: must be sha256:"),
    ],
)
def test_a_wrong_manifest_is_told_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Manifest.model_validate(changed(MANIFEST, changes))
    assert words in sentences(caught.value, "manifest.json")[0]


def test_the_digest_is_that_of_sha256sum() -> None:
    assert manifest_digest(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
