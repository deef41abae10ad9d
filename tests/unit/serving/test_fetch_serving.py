"""A server and the cache it reads from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.world import wait_for
from numaserve_api.manifest import CONFIG_FILE
from numaserve_serving.engine.artifact import load_artifact
from numaserve_serving.fetch.cache import Cache
from numaserve_serving.fetch.fetch import Origin, fetch_cached
from numaserve_serving.fetch.lease import unused
from tests.unit.serving.conftest import free_port, make_config, sha256


@pytest.fixture
def place(artifact: Path, tmp_path: Path) -> Path:
    """The tiny model, fetched into a cache."""
    return fetch_cached(Cache(tmp_path / "node"), sha256(artifact / "manifest.json"), Origin(f"file://{artifact}"))


def test_a_server_takes_what_was_fetched(place: Path) -> None:
    digest = place.name.replace("-", ":")
    assert load_artifact(place, make_config(digest)).digest == digest


def test_a_server_holds_the_lease_of_its_artifact_while_it_lives(place: Path) -> None:
    config = make_config(place.name.replace("-", ":"))
    (place / CONFIG_FILE).write_text(json.dumps(config.model_dump(mode="json", by_alias=True, exclude_none=True)))
    with unused(place) as free:
        assert free
    command = [sys.executable, "-m", "numaserve_serving.cli", str(place), "--port", str(free_port())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as server:
        try:
            wait_for(lambda: _held(place), 60, "a server that holds its lease")
        finally:
            server.kill()
    assert not _held(place)


def _held(place: Path) -> bool:
    with unused(place) as free:
        return not free
