"""What is told while artifacts are fetched, when that fails, and how it heals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from numaserve_operator.domain.snapshot import PodView
from tests.unit.domain.world import PodFate, SimulatedCluster, digest, healthy, make_spec

SOURCE = "s3://models/a"


def fetching(pod: PodView, _: str) -> PodView:
    """A pod whose init container runs."""
    return replace(pod, node="node-a", scheduled=True, started=True, qos_class="Guaranteed", initializing="fetch")


def failing_fetch(reason: str, restarts: int = 1) -> PodFate:
    """A pod whose init container ended with a reason, so often."""

    def fate(pod: PodView, space: str) -> PodView:
        text = f'{{"reason": "{reason}", "message": "s3://models/a answers 403"}}'
        waiting = {"waiting_reason": "CrashLoopBackOff", "waiting_message": "back-off 20s"}
        return replace(fetching(pod, space), terminated_message=text, exit_code=78, restarts=restarts, **waiting)  # type: ignore[arg-type]

    return fate


def cluster_with(fate: PodFate, **spec: object) -> SimulatedCluster:
    """A first revision whose pods meet a fate, after a few looks."""
    cluster = SimulatedCluster(make_spec(**{"source": SOURCE, **spec}), fate=fate)
    look(cluster, 6)
    return cluster


def look(cluster: SimulatedCluster, times: int) -> None:
    for _ in range(times):
        cluster.reconcile()
        cluster.tick()


def deployed() -> SimulatedCluster:
    """A stable revision from a claim."""
    cluster = SimulatedCluster(make_spec())
    cluster.settle()
    return cluster


def test_a_fetch_under_way_is_told_with_pod_node_and_source() -> None:
    cluster = cluster_with(fetching)
    assert cluster.condition("ModelVerified") == ("Unknown", "Fetching")
    assert cluster.condition("Progressing") == ("True", "Starting")
    for kind in ("ModelVerified", "Progressing"):
        assert "on node node-a fetches the artifact from s3://models/a" in cluster.message(kind)


def test_a_fetch_under_way_writes_nothing_while_it_lasts() -> None:
    cluster = cluster_with(fetching)
    before = cluster.writes
    look(cluster, 20)
    assert cluster.writes == before


@pytest.mark.parametrize("reason", ["SourceDenied", "SourceUnreachable", "SecretNotFound", "NoSpace"])
def test_what_a_change_outside_cures_is_told_and_heals_by_itself(reason: str) -> None:
    """Without this a Secret that comes a minute late would end the candidate for good."""
    cluster = cluster_with(failing_fetch(reason, restarts=7))
    assert cluster.condition("ModelVerified") == ("False", reason)
    assert cluster.condition("Progressing") == ("True", reason)
    assert "on node node-a: s3://models/a answers 403" in cluster.message("ModelVerified")
    assert "tries again by itself" in cluster.message("ModelVerified")
    cluster.fate = healthy
    for pod in cluster.pods():
        pod.view = replace(
            healthy(pod.view, "s@1"),
            initializing=None,
            terminated_message=None,
            waiting_reason=None,
            restarts=0,
        )
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_it_ends_a_candidate_at_its_deadline_with_its_own_reason() -> None:
    cluster = deployed()
    stable = cluster.stable()
    cluster.fate = failing_fetch("SourceDenied")
    cluster.edit(make_spec(hash=digest("2"), source=SOURCE, rollout={"progressDeadlineSeconds": 60}))
    look(cluster, 20)
    assert cluster.condition("ModelVerified") == ("False", "SourceDenied")
    look(cluster, 60)
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert cluster.condition("ModelVerified") == ("False", "SourceDenied")
    assert cluster.stable() == stable
    assert len(cluster.in_service()) == 1


@pytest.mark.parametrize("reason", ["DigestMismatch", "ArtifactMissing", "ArtifactInvalid"])
def test_a_wrong_artifact_ends_the_candidate_before_any_server_starts(reason: str) -> None:
    cluster = deployed()
    cluster.fate = failing_fetch(reason)
    cluster.edit(make_spec(hash=digest("2"), source=SOURCE))
    look(cluster, 6)
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert cluster.condition("ModelVerified") == ("False", reason)


def test_a_corrected_source_replaces_the_pod_that_proves_it_wrong() -> None:
    """The revision stays the same, and a ReplicaSet never touches the pods it has."""
    cluster = deployed()
    cluster.fate = failing_fetch("SourceUnreachable")
    cluster.edit(make_spec(hash=digest("2"), source=SOURCE))
    look(cluster, 4)
    (wrong,) = [p.view for p in cluster.pods() if not p.view.ready]
    candidate = cluster.status["candidateRevision"]
    cluster.fate = healthy
    cluster.edit(make_spec(hash=digest("2"), source="s3://models/b"))
    cluster.settle()
    assert cluster.stable() == candidate == wrong.revision
    assert wrong.uid not in {p.view.uid for p in cluster.pods()}


def test_another_secret_replaces_it_too_and_tries_a_refused_revision_again() -> None:
    cluster = deployed()
    cluster.fate = failing_fetch("ArtifactInvalid")
    cluster.edit(make_spec(hash=digest("2"), source=SOURCE, sourceSecretRef={"name": "old"}))
    cluster.settle()
    assert cluster.condition("Ready") == ("False", "RolledBack")
    cluster.fate = healthy
    cluster.edit(make_spec(hash=digest("2"), source=SOURCE, sourceSecretRef={"name": "new"}))
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_a_corrected_selector_replaces_a_pod_that_fits_no_node() -> None:
    def homeless(pod: PodView, _: str) -> PodView:
        return replace(pod, unscheduled_reason="Unschedulable", unscheduled_message="no node matches")

    cluster = cluster_with(homeless, source="pvc://models/a", placement={"nodeSelector": {"disk": "slow"}})
    assert cluster.condition("Progressing") == ("True", "Unschedulable")
    cluster.fate = healthy
    cluster.edit(make_spec(placement={"nodeSelector": {"disk": "fast"}}))
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_a_moved_source_leaves_pods_that_serve_alone() -> None:
    cluster = SimulatedCluster(make_spec(replicas=2))
    cluster.settle()
    uids = {p.uid for p in cluster.in_service()}
    cluster.edit(make_spec(replicas=2, source=SOURCE))
    cluster.settle()
    assert {p.uid for p in cluster.in_service()} == uids


def test_a_moved_source_leaves_a_pod_alone_that_healed_and_is_compared() -> None:
    """Its last run's refusal is still in its log."""

    def late(pod: PodView, space: str) -> PodView:
        return replace(healthy(pod, space), terminated_message='{"reason": "ArtifactMissing", "message": "late"}')

    cluster = SimulatedCluster(make_spec(source=SOURCE), fate=late)
    look(cluster, 2)
    (pod,) = cluster.pods()
    assert pod.view.ready
    assert not pod.view.in_endpoints
    cluster.edit(make_spec(source="s3://models/b"))
    cluster.settle()
    assert [p.uid for p in cluster.in_service()] == [pod.view.uid]


def test_a_pod_of_an_earlier_release_is_not_replaced_for_want_of_a_mark() -> None:
    cluster = cluster_with(fetching)
    (pod,) = cluster.pods()
    pod.view = replace(pod.view, start_mark=None)
    look(cluster, 3)
    assert [p.view.uid for p in cluster.pods()] == [pod.view.uid]


def test_an_init_container_without_a_reason_of_its_own_is_named() -> None:
    """For example killed for its memory, or of an image that cannot fetch."""

    def killed(pod: PodView, space: str) -> PodView:
        return replace(fetching(pod, space), restarts=3, exit_code=137, terminated_reason="OOMKilled")

    cluster = cluster_with(killed)
    assert cluster.condition("Ready") == ("False", "Crashed")
    message = cluster.message("Ready")
    assert "init container fetch of pod" in message
    assert "OOMKilled" in message
    assert "-c fetch" in message


def test_an_image_that_cannot_be_pulled_is_told_by_the_init_container_too() -> None:
    def unpulled(pod: PodView, space: str) -> PodView:
        return replace(fetching(pod, space), waiting_reason="ImagePullBackOff", waiting_message="no such image")

    cluster = cluster_with(unpulled)
    assert cluster.condition("Progressing") == ("True", "ImagePullFailed")
