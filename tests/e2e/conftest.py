"""Fixtures on the local cluster. Run inside its network: `make e2e`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo import artifacts
from demo.world import World, wait_for
from localcluster import Cluster
from localcluster.product import Product

NAME = "router"


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The running local cluster with this tree's operator in it."""
    cluster = Cluster()
    cluster.up()
    product = Product(cluster)
    product.install(product.load_images(), drain_seconds=5)
    return cluster


@pytest.fixture(scope="session")
def models() -> Path:
    """Artifact directories."""
    return artifacts.ensure()


@pytest.fixture
def world(cluster: Cluster, models: Path) -> Iterator[World]:
    """A namespace of its own with the models in a claim; both exclusive cores are free again afterwards."""
    namespace = f"e2e-{uuid.uuid4().hex[:6]}"
    product = Product(cluster)
    product.namespace(namespace)
    product.models(namespace, models)
    yield World(cluster, namespace)
    remove_namespace(cluster, namespace)


def remove_namespace(cluster: Cluster, namespace: str) -> None:
    """Delete a namespace and its volume, and wait until its pods have given back their cores."""
    cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
    wait_for(lambda: not World(cluster, namespace).items("pods") or None, 90, f"end of the pods in {namespace}")
    cluster.kubectl("delete", "pv", f"{namespace}-models", "--ignore-not-found", "--wait=false")


@pytest.fixture
def resource(models: Path) -> ResourceMaker:
    """Makes resources from the samples."""
    return ResourceMaker(models)


class ResourceMaker:
    """EncoderDeployments from the samples, with changes."""

    def __init__(self, models: Path) -> None:
        self.models = models

    def __call__(self, sample: str = "ticket-router.yaml", name: str = NAME, **changes: Any) -> dict[str, Any]:
        """The resource of a sample file. ``changes`` are dotted paths below `spec`, dots written as `__`."""
        document = artifacts.sample(sample, self.models)
        document["metadata"]["name"] = name
        document["spec"]["rollout"]["gates"].pop("samples")
        for path, value in changes.items():
            target, keys = document["spec"], path.split("__")
            for key in keys[:-1]:
                target = target.setdefault(key, {})
            target[keys[-1]] = value
        return document


@pytest.fixture
def stable(world: World, resource: ResourceMaker) -> str:
    """A first revision that serves; its name."""
    return deploy(world, resource())


def deploy(world: World, document: dict[str, Any]) -> str:
    """Apply and wait until it is ready; the stable revision."""
    world.apply(document)
    name = document["metadata"]["name"]
    world.wait_condition(name, "Ready", "True")
    return str(world.get("encdep", name)["status"]["stableRevision"])


def wait_none(world: World, kind: str, selector: str) -> None:
    """Wait until no object of a kind carries the labels any more."""
    wait_for(lambda: not world.items(kind, selector) or None, 90, f"end of {kind} {selector}")


def wait_gone(world: World, selector: str) -> None:
    """Wait until no pod carries the labels any more."""
    wait_none(world, "pods", selector)
