"""The `numaserve` command without a cluster."""

from __future__ import annotations

import io
from pathlib import Path

import yaml
from rich.console import Console
from typer.testing import CliRunner

from numaserve_operator.cli.main import build
from numaserve_operator.cli.status import picture

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "samples" / "ticket-router.yaml"


def test_lint_accepts_a_sample_and_names_every_fault(tmp_path: Path) -> None:
    assert CliRunner().invoke(build(), ["lint", "-f", str(SAMPLE)]).output == "ok\n"
    document = yaml.safe_load(SAMPLE.read_text())
    document["spec"]["config"]["threads"] = 0
    document["spec"]["reviewers"] = 2
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(document))
    done = CliRunner().invoke(build(), ["lint", "-f", str(tmp_path / "bad.yaml")])
    assert done.exit_code == 1
    assert "spec.config.threads" in done.output
    assert "spec.reviewers is not a known field" in done.output


def test_lint_says_when_a_file_holds_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("kind: Pod\n")
    assert CliRunner().invoke(build(), ["lint", "-f", str(tmp_path / "other.yaml")]).exit_code == 2


def test_render_shows_every_child() -> None:
    done = CliRunner().invoke(build(), ["render", "-f", str(SAMPLE), "--image", "serving:1"])
    manifests = list(yaml.safe_load_all(done.output))
    assert [m["kind"] for m in manifests] == ["Service", "NetworkPolicy", "ConfigMap", "ReplicaSet"]
    template = manifests[-1]["spec"]["template"]
    server = template["spec"]["containers"][0]
    assert server["resources"]["requests"] == server["resources"]["limits"] == {"cpu": "1", "memory": "512Mi"}
    assert "resources" not in template["spec"]
    assert "initContainers" not in template["spec"]
    assert len(template["spec"]["containers"]) == 1
    assert server["securityContext"]["readOnlyRootFilesystem"] is True
    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert "numaserve.dev/serving" not in template["metadata"]["labels"]


def test_the_status_picture_shows_revisions_cores_and_gates() -> None:
    raw = {
        "metadata": {"name": "enc", "namespace": "team"},
        "status": {
            "stableRevision": "aaa",
            "conditions": [{"type": "Ready", "status": "False", "reason": "RolledBack", "message": "cosine.min 0.4"}],
            "placement": [
                {
                    "pod": "enc-aaa-1",
                    "node": "node-a",
                    "revision": "aaa",
                    "cpuset": "1",
                    "numaNodes": [0],
                    "pinned": True,
                }
            ],
            "rollout": {
                "phase": "RolledBack",
                "gates": [{"name": "cosine.min", "value": 0.4, "threshold": 0.95, "passed": False}],
            },
            "history": [{"revision": "bbb", "outcome": "CosineBelowThreshold"}],
        },
    }
    text = io.StringIO()
    Console(file=text, width=140).print(picture(raw))
    for words in ("RolledBack", "aaa stable", "enc-aaa-1 on node-a: CPUs 1", "bbb CosineBelowThreshold", "cosine.min"):
        assert words in text.getvalue()
