"""Pods of the builders on a real API server: what its own defaults, checks and PodSecurity make of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest

from numaserve_operator.builders.podtemplate import pod_template
from numaserve_operator.domain.snapshot import ArtifactCache
from tests.unit.domain.world import make_spec

Json = dict[str, Any]
CACHE = ArtifactCache("/var/lib/numaserve/artifacts", "100Gi")
SECONDS = 20
Create = Callable[[Json], httpx.Response]


def pod(cache: ArtifactCache | None = None, **spec: Any) -> Json:
    template = pod_template(make_spec(**spec), "enc", "rev", "image:1", 1, "t", serving=False, cache=cache)
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "enc-1"}}


@pytest.fixture(scope="module", params=["restricted", "privileged"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def create(api: httpx.Client, level: str) -> Create:
    """Creates pods (nothing is stored) in a namespace where PodSecurity enforces a level."""
    namespace = f"pods-{uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": level}
    made = api.post("/api/v1/namespaces", json={"metadata": {"name": namespace, "labels": labels}})
    assert made.status_code == 201, made.text
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    deadline = time.monotonic() + SECONDS
    while api.get(account).status_code != 200:
        assert time.monotonic() < deadline, "the namespace got no service account"
        time.sleep(0.05)

    def post(document: Json) -> httpx.Response:
        params = {"dryRun": "All", "fieldValidation": "Strict"}
        return api.post(f"/api/v1/namespaces/{namespace}/pods", params=params, json=document)

    return post


@pytest.mark.parametrize("source", ["pvc://models/a/3", "hf://o/n@main", "s3://m/a", "https://h/a", "oci://h/a:1"])
def test_a_pod_is_admitted_and_guaranteed_for_every_source(create: Create, source: str) -> None:
    secret: Json = {} if source.startswith("pvc://") else {"sourceSecretRef": {"name": "reader"}}
    answer = create(pod(source=source, **secret))
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"]["qosClass"] == "Guaranteed"


def test_a_host_path_is_admitted_where_nothing_is_enforced_alone(create: Create, level: str) -> None:
    answer = create(pod(CACHE, source="s3://m/a"))
    if level == "privileged":
        assert answer.status_code == 201, answer.text
        assert answer.json()["status"]["qosClass"] == "Guaranteed"
        return
    assert answer.status_code == 403
    assert "hostPath" in answer.json()["message"]
    # A claim's pod is the same with a cache.
    assert create(pod(CACHE, source="pvc://models/a")).status_code == 201
