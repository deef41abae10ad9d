"""A real API server with the CRD installed, alone on loopback: started once for all integration tests."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from localcluster.controlplane import ControlPlane
from numaserve_api.crd.generate import definition

ESTABLISH_SECONDS = 20
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """etcd, API server and controller manager of their own; no nodes."""
    with ControlPlane.temporary() as plane:
        yield plane


@pytest.fixture(scope="session")
def kubeconfig(plane: ControlPlane) -> Path:
    """Administrator's kubeconfig of the API server."""
    return plane.kubeconfig


@pytest.fixture(scope="session")
def api(plane: ControlPlane) -> Iterator[httpx.Client]:
    """HTTP as an administrator: the API server's own words, with nothing in between."""
    context = ssl.create_default_context(cafile=str(plane.authority.ca.cert))
    admin = plane.authority.issue("admin", "numaserve-admin", ("system:masters",))
    context.load_cert_chain(admin.cert, admin.key)
    with httpx.Client(base_url=plane.endpoints.server, verify=context, trust_env=False, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def crd(api: httpx.Client) -> dict[str, Any]:
    """The installed CustomResourceDefinition, as the API server stored it, established."""
    wanted = definition()
    url = f"{CRDS}/{wanted['metadata']['name']}"
    answer = api.post(CRDS, json=wanted)
    assert answer.status_code == 201, answer.text
    deadline = time.monotonic() + ESTABLISH_SECONDS
    while time.monotonic() < deadline:
        stored: dict[str, Any] = api.get(url).json()
        met = {c["type"] for c in stored.get("status", {}).get("conditions", []) if c["status"] == "True"}
        served = api.get(f"/apis/{wanted['spec']['group']}/v1alpha1/{wanted['spec']['names']['plural']}")
        if "Established" in met and served.status_code == 200:
            return stored
        time.sleep(0.05)
    pytest.fail(f"the CRD was not established within {ESTABLISH_SECONDS} s: {stored.get('status')}")


@pytest.fixture
def namespace(api: httpx.Client) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"test-{uuid4().hex[:8]}"
    answer = api.post("/api/v1/namespaces", json={"metadata": {"name": name}})
    assert answer.status_code == 201, answer.text
    yield name
    api.delete(f"/api/v1/namespaces/{name}")
