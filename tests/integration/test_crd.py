"""The CRD on a real API server: it is taken, refuses with sentences, keeps every status field, merges and scales."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import yaml

from numaserve_api.crd.generate import schema
from numaserve_api.resource import EncoderDeploymentStatus
from tests.integration.kinds import EncoderDeployments, causes_of
from tests.unit.api.refusals import REFUSALS, Refusal
from tests.unit.api.resources import FULL, MINIMAL, SOURCES, Resource, changed

Answers = dict[str, httpx.Response]


@pytest.fixture
def deployments(crd: dict[str, Any], api: httpx.Client, namespace: str) -> EncoderDeployments:
    return EncoderDeployments(api, namespace)


@pytest.fixture(scope="module")
def answers(crd: dict[str, Any], api: httpx.Client) -> Answers:
    """What the API server says to every row of the table (nothing is stored)."""
    deployments = EncoderDeployments(api, "default")
    return {row.name: deployments.create(changed(MINIMAL, row.changes), dry_run=True) for row in REFUSALS}


class TestInstalling:
    def test_the_schema_is_structural_and_within_cel_cost(self, crd: dict[str, Any]) -> None:
        status = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
        assert status["Established"] == status["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in status
        assert crd["status"]["storedVersions"] == ["v1alpha1"]

    def test_nothing_of_the_schema_is_dropped(self, crd: dict[str, Any]) -> None:
        assert crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == schema()


class TestRefusing:
    @pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.name)
    def test_a_wrong_resource_is_refused_with_its_sentence(self, row: Refusal, answers: Answers) -> None:
        answer = answers[row.name]
        assert answer.status_code == 422, answer.text
        assert row.words in answer.json()["message"]

    def test_every_cel_rule_refuses_at_least_one_row(self, crd: dict[str, Any], answers: Answers) -> None:
        said = {cause for answer in answers.values() for cause in causes_of(answer)}
        rules = set(rules_of(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
        assert len(rules) > 70
        assert rules - said == set()

    @pytest.mark.parametrize("resource", [MINIMAL, FULL], ids=["minimal", "full"])
    def test_a_valid_resource_is_taken(self, resource: Resource, deployments: EncoderDeployments) -> None:
        answer = deployments.create(resource)
        assert answer.status_code == 201, answer.text
        expected = changed(resource, {"spec.replicas": resource["spec"].get("replicas", 1)})
        assert answer.json()["spec"] == expected["spec"]

    @pytest.mark.parametrize("source", SOURCES)
    def test_a_source_that_can_be_fetched_is_taken(self, source: str, deployments: EncoderDeployments) -> None:
        fetched = {"spec.config.model.source": source, "spec.sourceSecretRef": {"name": "reader"}}
        assert deployments.create(changed(MINIMAL, fetched)).status_code == 201

    @pytest.mark.parametrize("name", ["a", "a" * 52, "a-1"])
    def test_a_name_that_leaves_room_for_children_is_taken(self, name: str, deployments: EncoderDeployments) -> None:
        assert deployments.create(changed(MINIMAL, {"metadata.name": name})).status_code == 201

    def test_a_misspelt_field_is_refused_when_fields_are_checked(self, deployments: EncoderDeployments) -> None:
        answer = deployments.create(changed(MINIMAL, {"spec.replica": 2}))
        assert answer.status_code == 400
        assert 'unknown field "spec.replica"' in answer.json()["message"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"spec.image": "a" * 300_000},
            {"spec.config.model.prompts": {f"p{i}": "x" * 5000 for i in range(60)}},
            {"spec.podLabels": {f"k{i}": "v" for i in range(30_000)}},
            {"metadata.annotations": {"note": "x" * 300_000}},
        ],
        ids=lambda changes: "".join(changes),
    )
    def test_a_resource_of_300_kilobytes_is_refused(
        self, changes: dict[str, Any], deployments: EncoderDeployments
    ) -> None:
        answer = deployments.create(changed(MINIMAL, changes))
        assert answer.status_code == 422
        assert "Too long" in answer.text or "Too many" in answer.text or "must have at most" in answer.text

    def test_an_edit_into_something_wrong_is_refused_too(self, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        answer = deployments.patch("ticket-router", {"spec": {"config": {"quantization": {"scheme": "fp16"}}}})
        assert answer.status_code == 422
        assert "no gain on CPUs" in answer.json()["message"]


class TestStatus:
    def test_every_field_survives_a_round_trip(self, deployments: EncoderDeployments) -> None:
        """A pruned field would be written again at every reconciliation, without end."""
        deployments.create(MINIMAL)
        status = full_status()
        answer = deployments.patch("ticket-router", {"status": status}, "/status")
        assert answer.status_code == 200, answer.text
        assert answer.json()["status"] == status
        assert EncoderDeploymentStatus.model_validate(answer.json()["status"]).model_dump(
            mode="json", by_alias=True, exclude_none=True
        ) == status  # fmt: skip

    def test_the_status_example_leaves_no_field_out(self) -> None:
        assert unset_fields(EncoderDeploymentStatus.model_validate(full_status())) == []

    def test_writing_the_status_leaves_the_generation_alone(self, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        before = deployments.get("ticket-router")["metadata"]["generation"]
        deployments.patch("ticket-router", {"status": full_status()}, "/status")
        assert deployments.get("ticket-router")["metadata"]["generation"] == before == 1

    def test_a_spec_edit_does_not_reach_the_status(self, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        answer = deployments.patch("ticket-router", {"status": {"space": "x"}, "spec": {"replicas": 3}})
        assert answer.json()["spec"]["replicas"] == 3
        assert "status" not in answer.json()

    def test_the_columns_show_the_story(self, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        deployments.patch("ticket-router", {"status": full_status()}, "/status")
        row = deployments.table()
        assert row["READY"] == "False"
        assert row["REPLICAS"] == 2
        assert row["REVISION"] == "bcdfghjklm"
        assert row["CANDIDATE"] == "nbcdfghjkl"
        assert row["PHASE"] == "Gating"
        assert row["WEIGHT"] == 50
        assert row["COSINE"] == "0.912345"
        assert row["NUMA"] == "2/2 pinned"

    def test_the_columns_of_a_new_resource_are_empty(self, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        row = deployments.table()
        assert {row[c] for c in ("READY", "REPLICAS", "REVISION", "COSINE")} <= {"", None}


class TestApplying:
    def test_two_managers_each_keep_their_own_fields(self, deployments: EncoderDeployments) -> None:
        deployments.apply(MINIMAL, "gitops")
        partial = {**MINIMAL, "spec": {"replicas": 4, "podLabels": {"team": "support"}}}
        assert deployments.apply(partial, "autoscaler").status_code in (200, 201)
        again = deployments.apply(changed(MINIMAL, {"spec.podLabels": {"tier": "gold"}}), "gitops")
        assert again.status_code == 200, again.text
        spec = again.json()["spec"]
        assert spec["replicas"] == 4
        assert spec["podLabels"] == {"team": "support", "tier": "gold"}

    @pytest.mark.parametrize(
        ("field", "first", "second"),
        [
            ("spec.config.window.buckets", [64, 512], [128, 256]),
            ("spec.config.model.dimensions", [384, 128], [128, 256]),
        ],
    )
    def test_an_ordered_list_has_one_owner(
        self, field: str, first: list[int], second: list[int], deployments: EncoderDeployments
    ) -> None:
        """Merging two owners' lists would give an order that nobody wrote."""
        deployments.apply(changed(MINIMAL, {field: first}), "gitops")
        refused = deployments.apply(changed(MINIMAL, {field: second}), "somebody")
        assert refused.status_code == 409
        assert "gitops" in refused.json()["message"]
        taken = deployments.apply(changed(MINIMAL, {field: second}), "somebody", force=True)
        node = taken.json()
        for key in field.split("."):
            node = node[key]
        assert node == second

    def test_a_field_that_is_no_longer_applied_goes_away(self, deployments: EncoderDeployments) -> None:
        deployments.apply(changed(MINIMAL, {"spec.placement.nodeSelector": {"zone": "a"}}), "gitops")
        assert "placement" not in deployments.apply(MINIMAL, "gitops").json()["spec"]

    def test_conditions_merge_by_type(self, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        for kind in ("Ready", "Pinned"):
            condition = {"type": kind, "status": "True", "reason": "Serving"}
            own = {**MINIMAL, "spec": {}, "status": {"conditions": [condition]}}
            del own["spec"]
            answer = deployments.apply(own, f"writer-{kind.lower()}", subresource="/status")
            assert answer.status_code == 200, answer.text
        assert {c["type"] for c in answer.json()["status"]["conditions"]} == {"Ready", "Pinned"}


class TestScaling:
    def test_a_resource_without_replicas_can_be_scaled(self, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        scale = deployments.get("ticket-router/scale")
        assert scale["spec"] == {"replicas": 1}
        answer = deployments.patch("ticket-router", {"spec": {"replicas": 5}}, "/scale")
        assert answer.status_code == 200, answer.text
        assert deployments.get("ticket-router")["spec"]["replicas"] == 5

    def test_an_autoscaler_reads_replicas_and_selector_of_the_status(self, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        deployments.patch("ticket-router", {"status": full_status()}, "/status")
        scale = deployments.get("ticket-router/scale")
        assert scale["status"] == {"replicas": 2, "selector": full_status()["selector"]}

    @pytest.mark.parametrize("replicas", [-1, 1001])
    def test_a_scale_out_of_bounds_is_refused(self, replicas: int, deployments: EncoderDeployments) -> None:
        deployments.create(MINIMAL)
        answer = deployments.patch("ticket-router", {"spec": {"replicas": replicas}}, "/scale")
        assert answer.status_code == 422
        assert deployments.get("ticket-router")["spec"]["replicas"] == 1


@pytest.mark.usefixtures("crd")
class TestKubectl:
    def test_apply_says_the_sentence_to_the_person(self, kubectl: Any, namespace: str) -> None:
        wrong = changed(MINIMAL, {"spec.config.quantization.scheme": "fp16"})
        done = kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(wrong))
        assert done.returncode == 1
        assert "fp16 is refused: it brings no gain on CPUs; use bf16 or int8-weights" in done.stderr

    def test_the_short_name_and_explain_work(self, kubectl: Any, namespace: str) -> None:
        assert kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(FULL)).returncode == 0
        assert "encoderdeployment.numaserve.dev/ticket-router" in kubectl(
            "get", "encdep", "-n", namespace, "-o", "name"
        ).stdout  # fmt: skip
        told = kubectl("explain", "encdep.spec.config.window.maxTokens").stdout
        assert "Longest sequence, in tokens" in told


def rules_of(node: dict[str, Any], path: str = "") -> list[tuple[str, str]]:
    """Every CEL rule as (path, sentence)."""
    found = [(path or "<nil>", rule["message"]) for rule in node.get("x-kubernetes-validations", [])]
    for key, child in node.get("properties", {}).items():
        found += rules_of(child, f"{path}.{key}" if path else key)
    for inner in ("items", "additionalProperties"):
        if inner in node:
            found += rules_of(node[inner], f"{path}[]")
    return found


def full_status() -> dict[str, Any]:
    """A status with every field the operator can write."""
    return {
        "observedGeneration": 3,
        "replicas": 2,
        "readyReplicas": 2,
        "selector": "numaserve.dev/name=ticket-router,numaserve.dev/serving=true",
        "stableRevision": "bcdfghjklm",
        "candidateRevision": "nbcdfghjkl",
        "lastPromoted": "2026-01-01T00:00:00+00:00",
        "space": "minilm-l6@1",
        "spaceAnchor": "minilm-l6@1",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "Gating",
                "message": "comparing",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "observedGeneration": 3,
            }
        ],
        "placement": [
            {
                "pod": "ticket-router-bcdfghjklm-x",
                "node": "node-a",
                "revision": "bcdfghjklm",
                "cpuset": "2-3",
                "numaNodes": [0],
                "physicalCores": 2,
                "threads": 2,
                "pinned": True,
                "fingerprint": "f32/avx2",
            }
        ],
        "placementSummary": "2/2 pinned",
        "rollout": {
            "phase": "Gating",
            "step": 1,
            "weight": 50,
            "measuredWeight": 49.5,
            "gates": [
                {
                    "name": "cosine.min",
                    "value": 0.912345,
                    "threshold": 0.95,
                    "noiseFloor": 0.9999,
                    "passed": False,
                    "message": "below",
                }
            ],
            "sampleDigest": "sha256:" + "1" * 64,
            "sampleCount": 40,
            "message": "comparing",
        },
        "history": [{"revision": "bcdfghjklm", "outcome": "promoted", "message": "ok", "at": "2026-01-01T00:00:00Z"}],
        "handledAction": "promote@bcdfghjklm#1",
    }


def unset_fields(model: Any) -> list[str]:
    """Fields of a model, and of the models in it, that nobody set."""
    found = sorted(set(type(model).model_fields) - model.model_fields_set)
    for value in dict(model).values():
        for child in value if isinstance(value, list) else [value]:
            if hasattr(child, "model_fields_set"):
                found += unset_fields(child)
    return found
