"""A real API server with the CRD installed, alone on loopback: started once for all integration tests."""

from __future__ import annotations

import ssl
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from localcluster import binaries
from localcluster.controlplane import ControlPlane
from numaserve_api.crd.generate import definition

ESTABLISH_SECONDS = 20
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """etcd, API server and controller manager of their own; no nodes."""
    plane = ControlPlane.temporary()
    try:
        with warnings.catch_warnings():
            # Components outlive the handles they were started with: they are stopped by their recorded ids.
            warnings.simplefilter("ignore", ResourceWarning)
            plane.start()
        yield plane
    finally:
        plane.stop()


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
        conditions = stored.get("status", {}).get("conditions") or []
        met = {c["type"] for c in conditions if c["status"] == "True"}
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


@pytest.fixture(scope="session")
def kubectl(plane: ControlPlane) -> Callable[..., subprocess.CompletedProcess[str]]:
    """kubectl as an administrator; never raises, the test looks at code and words."""

    def run(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(binaries.kubernetes() / "kubectl"), "--kubeconfig", str(plane.kubeconfig), *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    return run
