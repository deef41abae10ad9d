"""What the operator's command line makes of its options."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from numaserve_operator import __main__ as command
from numaserve_operator.domain.snapshot import ArtifactCache
from numaserve_operator.runtime.main import Settings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Settings the process was started with."""
    found: list[Settings] = []

    def run(settings: Settings) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr(command, "run", run)
    return found


def test_no_cache_is_used_unless_one_is_named(started: list[Settings]) -> None:
    assert CliRunner().invoke(command.app, ["--serving-image=i"]).exit_code == 0
    assert started[0].artifact_cache is None


def test_a_cache_travels_with_its_limit_and_namespaces(started: list[Settings]) -> None:
    words = ["--artifact-cache=/srv/a", "--artifact-cache-limit=2Gi"]
    words += ["--artifact-cache-namespace=a", "--artifact-cache-namespace=b"]
    assert CliRunner().invoke(command.app, ["--serving-image=i", *words]).exit_code == 0
    assert started[0].artifact_cache == ArtifactCache("/srv/a", "2Gi", frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--artifact-cache=relative", "must be an absolute path"),
        ("--artifact-cache=/", "must be an absolute path"),
        ("--artifact-cache=/srv/../etc", "must be an absolute path"),
        ("--artifact-cache-limit=many", "many"),
        ("--artifact-cache-limit=-1Gi", "above 0"),
    ],
)
def test_a_cache_that_would_stop_every_pod_stops_the_operator_instead(
    started: list[Settings], option: str, words: str
) -> None:
    result = CliRunner().invoke(command.app, ["--serving-image=i", "--artifact-cache=/srv/a", option])
    assert result.exit_code == 2
    assert words in result.output
    assert started == []
