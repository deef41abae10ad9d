"""The chart as helm renders it, put to a real API server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.main import get_command

from localcluster import binaries
from localcluster.paths import REPOSITORY
from localcluster.shell import run
from numaserve_operator.__main__ import app
from numaserve_operator.builders.fetch import PYTHON
from numaserve_operator.builders.podtemplate import USER

Json = dict[str, Any]
CACHE = {"artifactCache": {"enabled": True, "namespaces": ["team-a", "team-b"], "limit": "50Gi"}}
PATHS = {
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "DaemonSet": "/apis/apps/v1/namespaces/default/daemonsets",
}
Render = Callable[..., list[Json]]


@pytest.fixture(scope="module")
def render() -> Render:
    """Renders the chart with values."""

    def rendered(**values: Any) -> list[Json]:
        chart = REPOSITORY / "charts" / "numaserve"
        document = yaml.safe_dump({"operatorImage": "operator:1", "servingImage": "serving:1", **values})
        words: list[str | Path] = [binaries.helm(), "template", "numaserve", chart, "-n", "default", "--values", "-"]
        text = run([*words, "--kube-version", binaries.KUBERNETES_VERSION], stdin=document)
        return [found for found in yaml.safe_load_all(text) if found]

    return rendered


def one(documents: list[Json], kind: str) -> Json:
    (found,) = (d for d in documents if d["kind"] == kind)
    return found


def arguments(documents: list[Json]) -> list[str]:
    (container,) = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def test_nothing_of_a_cache_is_rendered_by_default(render: Render) -> None:
    documents = render()
    assert [d for d in documents if d["kind"] == "DaemonSet"] == []
    assert not any(word.startswith("--artifact-cache") for word in arguments(documents))


def test_the_operator_is_told_of_the_cache_and_understands(render: Render) -> None:
    words = arguments(render(**CACHE))
    assert "--artifact-cache=/var/lib/numaserve/artifacts" in words
    assert "--artifact-cache-limit=50Gi" in words
    assert [w for w in words if "namespace" in w] == [
        "--artifact-cache-namespace=team-a",
        "--artifact-cache-namespace=team-b",
    ]
    context = get_command(app).make_context("operator", words)
    assert context.params["artifact_cache_namespace"] == ["team-a", "team-b"]


def test_nodes_are_prepared_for_the_user_that_fetches(render: Render) -> None:
    spec = one(render(**CACHE), "DaemonSet")["spec"]["template"]["spec"]
    (prepare,), (sleep,) = spec["initContainers"], spec["containers"]
    assert prepare["command"][0] == sleep["command"][0] == PYTHON
    assert f"os.chown('/artifacts', {USER}, {USER})" in prepare["command"][-1]
    assert prepare["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert sleep["securityContext"]["runAsUser"] == USER
    assert "volumeMounts" not in sleep
    assert prepare["resources"]["requests"] == prepare["resources"]["limits"] == sleep["resources"]["limits"]


def test_prepared_nodes_need_no_daemon_set(render: Render) -> None:
    cache = {"artifactCache": {**CACHE["artifactCache"], "prepareNodes": False}}
    assert [d for d in render(**cache) if d["kind"] == "DaemonSet"] == []


@pytest.mark.parametrize("kind", PATHS)
def test_the_api_server_takes_it(kind: str, render: Render, api: httpx.Client) -> None:
    params = {"dryRun": "All", "fieldValidation": "Strict"}
    answer = api.post(PATHS[kind], params=params, json=one(render(**CACHE), kind))
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    "wrong", [{"limit": "much"}, {"hostPath": "relative"}, {"hostPath": "/"}, {"size": 3}, {"namespaces": ["A"]}]
)
def test_values_that_cannot_work_are_refused_by_helm(wrong: Json, render: Render) -> None:
    with pytest.raises(Exception, match=next(iter(wrong))):
        render(artifactCache={"enabled": True, **wrong})


def test_the_operator_reads_no_secret_of_a_tenant(render: Render) -> None:
    """The kubelet mounts the Secret of a source; the one Secret the operator reads is its own key."""
    documents = render(**CACHE)
    rules = one(documents, "ClusterRole")["rules"]
    assert not any("secrets" in rule["resources"] or "*" in rule["resources"] for rule in rules)
    own = [r for r in one(documents, "Role")["rules"] if r["resources"] == ["secrets"] and "get" in r["verbs"]]
    assert [r["resourceNames"] for r in own] == [["numaserve-probe-key"]]
