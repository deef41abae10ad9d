"""Sentences of the rollout design, each played out in the simulated cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from numaserve_api.conditions import Reason
from numaserve_api.revision import revision_hash
from numaserve_operator.domain.snapshot import GateResult, PodView, SamplesView, ServiceView, Verdict
from tests.unit.domain.world import SimulatedCluster, digest, failing, healthy, make_spec, passing


def deployed(**spec: object) -> SimulatedCluster:
    """A cluster with a stable first revision."""
    cluster = SimulatedCluster(make_spec(**spec))
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")
    return cluster


def test_a_first_revision_becomes_ready_and_rests() -> None:
    cluster = deployed(replicas=2)
    assert len(cluster.in_service()) == 2
    assert cluster.status["rollout"]["phase"] == "Complete"
    assert cluster.condition("Pinned") == ("True", "Exclusive")
    assert cluster.condition("GatesPassed") == ("True", "Passed")
    assert cluster.events == ["RevisionCreated", "GatePassed", "Promoted"]


def test_at_rest_nothing_is_written() -> None:
    cluster = deployed()
    before = cluster.writes
    for _ in range(50):
        cluster.reconcile()
        cluster.tick(10)
    assert cluster.writes == before


def test_no_pod_serves_before_the_gates_have_passed() -> None:
    cluster = SimulatedCluster(make_spec(replicas=3))
    seen = []

    def watch(world: SimulatedCluster) -> None:
        if any(p.view.serving_label for p in world.pods()):
            seen.append(world.gates_run)

    cluster.settle(watch=watch)
    assert min(seen) >= 1


def test_a_good_revision_is_promoted_and_the_old_one_drained_and_gone() -> None:
    cluster = deployed(replicas=3)
    old = cluster.stable()
    lowest = [3]

    def watch(world: SimulatedCluster) -> None:
        lowest.append(len(world.in_service()))

    cluster.edit(make_spec(replicas=3, hash=digest("2")))
    cluster.settle(watch=watch)
    assert cluster.stable() != old
    assert {p.view.revision for p in cluster.pods()} == {cluster.stable()}
    assert min(lowest) >= 3
    assert cluster.role(old) == "retired"
    gone = [p for p in cluster.removed if p.revision == old]
    assert gone
    assert all(p.uid in cluster.drained for p in gone)


def test_surge_bounds_the_pods_of_a_rollout() -> None:
    cluster = deployed(replicas=4)
    most = [0]

    def watch(world: SimulatedCluster) -> None:
        most.append(len(world.pods()))

    cluster.edit(make_spec(replicas=4, hash=digest("2"), rollout={"maxSurge": 2}))
    cluster.settle(watch=watch)
    assert max(most) <= 6


def test_a_failed_gate_rolls_back_and_leaves_stable_alone() -> None:
    cluster = deployed()
    stable, pods = cluster.stable(), {p.view.uid for p in cluster.pods()}
    cluster.gate = failing
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    assert cluster.stable() == stable
    assert {p.view.uid for p in cluster.pods()} == pods
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert cluster.condition("Stalled") == ("True", "CosineBelowThreshold")
    assert cluster.condition("GatesPassed") == ("False", "CosineBelowThreshold")
    assert "cosine.min 0.4 < 0.95" in cluster.message("Ready")
    assert cluster.condition("Available")[0] == "True"


def test_a_failed_revision_is_not_tried_again_by_itself() -> None:
    cluster = deployed()
    cluster.gate = failing
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    runs = cluster.gates_run
    cluster.edit(make_spec())
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    assert cluster.gates_run == runs
    assert cluster.condition("Ready") == ("False", "RolledBack")


def test_changed_gates_try_a_failed_revision_again() -> None:
    cluster = deployed()
    cluster.gate = failing
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    cluster.gate = passing
    cluster.edit(make_spec(hash=digest("2"), rollout={"gates": {"cosine": {"min": 0.1, "p1": 0.2, "mean": 0.3}}}))
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_changed_gates_compare_the_same_candidate_again() -> None:
    cluster = deployed()
    cluster.gate = lambda r: GateResult(r.key, Verdict.INCONCLUSIVE, Reason.INCONCLUSIVE, "no answer")
    cluster.edit(make_spec(hash=digest("2")))
    for _ in range(10):
        cluster.reconcile()
        cluster.tick()
    pods = {p.view.uid for p in cluster.pods()}
    cluster.gate = passing
    cluster.edit(make_spec(hash=digest("2"), rollout={"gates": {"cosine": {"min": 0.1, "p1": 0.2, "mean": 0.3}}}))
    for _ in range(6):
        cluster.reconcile()
        cluster.tick()
    assert {p.view.uid for p in cluster.pods()} <= pods
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")
    assert {p.view.uid for p in cluster.pods()} <= pods


def test_two_edits_leave_one_candidate_and_the_newest_wins() -> None:
    cluster = deployed()
    cluster.edit(make_spec(hash=digest("2")))
    for _ in range(3):
        cluster.reconcile()
        cluster.tick()
    cluster.edit(make_spec(hash=digest("3")))
    candidates = []

    def watch(world: SimulatedCluster) -> None:
        candidates.append(sum(s.annotations.get("numaserve.dev/role") == "candidate" for s in world.sets.values()))

    cluster.settle(watch=watch)
    assert max(candidates[1:]) <= 1
    newest = revision_hash(make_spec(hash=digest("3")), "image:1", 1)
    assert cluster.stable() == newest
    assert cluster.role(revision_hash(make_spec(hash=digest("2")), "image:1", 1)) == "abandoned"


def test_going_back_to_the_stable_spec_aborts_the_canary() -> None:
    cluster = deployed()
    stable = cluster.stable()
    cluster.edit(make_spec(hash=digest("2")))
    for _ in range(3):
        cluster.reconcile()
        cluster.tick()
    cluster.edit(make_spec())
    cluster.settle()
    assert cluster.stable() == stable
    assert cluster.condition("Ready") == ("True", "Promoted")
    assert len(cluster.pods()) == 1


def test_going_back_to_an_older_revision_gates_it_again() -> None:
    cluster = deployed()
    first = cluster.stable()
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    runs = cluster.gates_run
    cluster.edit(make_spec())
    cluster.settle()
    assert cluster.stable() == first
    assert cluster.gates_run == runs + 1


def test_replicas_gates_and_labels_make_no_revision() -> None:
    cluster = deployed()
    stable = cluster.stable()
    cluster.edit(make_spec(replicas=3, podLabels={"team": "a"}, rollout={"progressDeadlineSeconds": 100}))
    cluster.settle()
    assert cluster.stable() == stable
    assert len(cluster.in_service()) == 3
    assert len(cluster.sets) == 1


def test_scaling_down_withdraws_before_it_deletes() -> None:
    cluster = deployed(replicas=3)
    cluster.edit(make_spec(replicas=1))
    cluster.settle()
    assert len(cluster.in_service()) == 1
    assert len(cluster.removed) == 2
    assert all(p.uid in cluster.drained for p in cluster.removed)


def test_scaling_to_zero_and_back() -> None:
    cluster = deployed(replicas=2)
    cluster.edit(make_spec(replicas=0))
    cluster.settle()
    assert cluster.pods() == []
    assert cluster.condition("Ready") == ("True", "ScaledToZero")
    cluster.edit(make_spec(replicas=2))
    cluster.settle()
    assert len(cluster.in_service()) == 2


def test_scaling_while_a_candidate_is_compared() -> None:
    cluster = deployed(replicas=2)
    cluster.edit(make_spec(replicas=2, hash=digest("2")))
    cluster.reconcile()
    cluster.tick()
    cluster.edit(make_spec(replicas=4, hash=digest("2")))
    cluster.settle()
    assert len(cluster.in_service()) == 4
    assert {p.view.revision for p in cluster.pods()} == {cluster.stable()}


def test_a_paused_rollout_tries_nothing_and_its_deadline_waits() -> None:
    cluster = deployed()
    stable = cluster.stable()
    cluster.fate = lambda pod, _: replace(
        pod, unscheduled_reason="Unschedulable", unscheduled_message="Insufficient cpu"
    )
    rollout = {"progressDeadlineSeconds": 60}
    cluster.edit(make_spec(hash=digest("2"), rollout=rollout))
    for _ in range(20):
        cluster.reconcile()
        cluster.tick()
    cluster.edit(make_spec(hash=digest("2"), rollout={**rollout, "paused": True}))
    for _ in range(10):
        cluster.reconcile()
        cluster.tick(60)
    assert cluster.condition("Progressing") == ("False", "Paused")
    cluster.edit(make_spec(hash=digest("2"), rollout=rollout))
    cluster.reconcile()
    assert cluster.condition("Progressing")[1] == "NoFreeCores"
    cluster.settle(steps=300)
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert cluster.stable() == stable


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('0/3 nodes are available: persistentvolumeclaim "models" not found.', "PVCNotFound"),
        ("0/3 nodes are available: 3 Insufficient cpu.", "NoFreeCores"),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "Unschedulable"),
    ],
)
def test_an_unschedulable_candidate_is_told_at_once_and_ends_at_the_deadline(message: str, reason: str) -> None:
    cluster = deployed()
    cluster.fate = lambda pod, _: replace(pod, unscheduled_reason="Unschedulable", unscheduled_message=message)
    cluster.edit(make_spec(hash=digest("2"), rollout={"progressDeadlineSeconds": 60}))
    for _ in range(4):
        cluster.reconcile()
        cluster.tick()
    assert cluster.condition("Ready") == ("False", reason)
    assert message.rstrip(".") in cluster.message("Ready")
    cluster.settle(steps=300)
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert cluster.condition("Stalled") == ("True", reason)
    assert "progressDeadlineSeconds (60 s)" in cluster.message("Progressing")
    assert len(cluster.pods()) == 1


def test_a_first_revision_waits_beyond_its_deadline_and_heals() -> None:
    cluster = SimulatedCluster(make_spec(rollout={"progressDeadlineSeconds": 30}))
    cluster.fate = lambda pod, _: replace(
        pod, unscheduled_reason="Unschedulable", unscheduled_message="Insufficient cpu"
    )
    for _ in range(50):
        cluster.reconcile()
        cluster.tick()
    assert cluster.condition("Stalled") == ("True", "NoFreeCores")
    cluster.fate = healthy
    for pod in cluster.pods():
        pod.view = replace(pod.view, unscheduled_reason=None, unscheduled_message=None)
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def refuse(reason: str) -> object:
    """A pod whose server refuses to start."""

    def fate(pod: PodView, space: str) -> PodView:
        text = f'{{"reason": "{reason}", "message": "digest a, expected b"}}'
        return replace(healthy(pod, space), ready=False, report=None, terminated_message=text, exit_code=78, restarts=1)

    return fate


@pytest.mark.parametrize(
    "reason", ["DigestMismatch", "ManifestMismatch", "ArtifactMissing", "ArtifactInvalid", "SelfTestFailed"]
)
def test_an_artifact_refused_in_the_pod_ends_the_candidate_at_once(reason: str) -> None:
    cluster = deployed()
    cluster.fate = refuse(reason)  # type: ignore[assignment]
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    assert cluster.condition("ModelVerified") == ("False", reason)
    assert "digest a, expected b" in cluster.message("ModelVerified")
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert len(cluster.in_service()) == 1


def test_a_pod_that_is_not_guaranteed_is_refused() -> None:
    cluster = deployed()
    cluster.fate = lambda pod, space: replace(healthy(pod, space), qos_class="Burstable", containers=("server", "mesh"))
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    assert cluster.condition("Pinned") == ("False", "NotGuaranteed")
    assert "mesh" in cluster.message("Pinned")
    assert len(cluster.in_service()) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cpuset": "0-3"}, "SharedPool"),
        ({"cpuset": "1-2"}, "SharedPool"),
        ({"cpuset": "1", "numa_nodes": [0, 1]}, "Misaligned"),
        ({"shared_sibling_cores": 1}, "ThreadsShareCores"),
        ({"quota_cpus": 0.5}, "Throttled"),
        ({"threads": 2}, "ThreadsMismatch"),
        ({"cpuset": "1", "cpus_requested": 2}, "TooFewCPUs"),
        ({"cpuset": "what"}, "SharedPool"),
    ],
)
def test_a_candidate_that_is_not_pinned_never_serves(changes: dict[str, object], reason: str) -> None:
    cluster = deployed()

    def fate(pod: PodView, space: str) -> PodView:
        view = healthy(pod, space)
        assert view.report
        return replace(view, report=view.report.model_copy(update=changes))

    cluster.fate = fate
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    assert cluster.condition("Pinned") == ("False", reason)
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert len(cluster.in_service()) == 1


def test_two_numa_nodes_are_fine_where_any_is_asked_for() -> None:
    def fate(pod: PodView, space: str) -> PodView:
        view = healthy(pod, space)
        assert view.report
        return replace(view, report=view.report.model_copy(update={"numa_nodes": [0, 1]}))

    cluster = SimulatedCluster(make_spec(placement={"numa": "any"}), fate=fate)
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_a_quota_that_does_not_bind_is_only_a_warning() -> None:
    def fate(pod: PodView, space: str) -> PodView:
        view = healthy(pod, space)
        assert view.report
        return replace(view, report=view.report.model_copy(update={"quota_cpus": 1.0}))

    cluster = SimulatedCluster(fate=fate)
    cluster.settle()
    assert cluster.condition("Pinned") == ("True", "Exclusive")
    assert "QuotaPresent" in cluster.message("Pinned")


def test_another_embedding_space_is_refused() -> None:
    cluster = deployed()
    cluster.edit(make_spec(hash=digest("2"), space="other@1"))
    cluster.settle()
    assert cluster.condition("GatesPassed") == ("False", "DifferentSpace")
    assert "s@1" in cluster.message("GatesPassed")
    assert cluster.gates_run == 1


def test_pods_of_one_revision_that_execute_differently_are_refused() -> None:
    cluster = deployed(replicas=3)

    def fate(pod: PodView, space: str) -> PodView:
        view = healthy(pod, space)
        assert view.report
        return replace(view, report=view.report.model_copy(update={"fingerprint": pod.name}))

    cluster.fate = fate
    cluster.edit(make_spec(replicas=3, hash=digest("2"), rollout={"maxSurge": 2}))
    cluster.settle()
    assert cluster.condition("GatesPassed") == ("False", "DifferentExecution")


def test_refused_pods_are_bounded_and_end_the_candidate() -> None:
    cluster = deployed()
    total = [0]

    def fate(pod: PodView, _: str) -> PodView:
        total[0] += 1
        return replace(pod, phase="Failed", reason="TopologyAffinityError", message="cannot align", node="node-a")

    cluster.fate = fate
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    assert total[0] <= 4
    assert cluster.condition("Stalled") == ("True", "AdmissionRejected")
    assert "TopologyAffinityError" in cluster.message("Stalled")
    assert [p.view.phase for p in cluster.pods()] == ["Running"]


def test_refused_pods_of_the_stable_revision_stay_bounded() -> None:
    cluster = deployed()
    total = [0]

    def fate(pod: PodView, _: str) -> PodView:
        total[0] += 1
        return replace(pod, phase="Failed", reason="UnexpectedAdmissionError", message="no cpus", node="node-a")

    cluster.fate = fate
    for stored in cluster.sets.values():
        stored.pods.clear()
    for _ in range(300):
        cluster.reconcile()
        cluster.tick()
    assert total[0] <= 6
    assert cluster.condition("Available") == ("False", "NoReadyPods")
    cluster.fate = healthy
    for _ in range(700):
        cluster.reconcile()
        cluster.tick()
    assert cluster.condition("Available")[0] == "True"
    assert all(p.view.phase == "Running" for p in cluster.pods())


def test_an_inconclusive_gate_is_retried_with_pauses_and_ends_at_the_deadline() -> None:
    cluster = deployed()
    attempts = []

    def inconclusive(request: object) -> GateResult:
        attempts.append(cluster.now)
        return GateResult(request.key, Verdict.INCONCLUSIVE, Reason.INCONCLUSIVE, "pod does not answer")  # type: ignore[attr-defined]

    cluster.gate = inconclusive
    cluster.edit(make_spec(hash=digest("2"), rollout={"progressDeadlineSeconds": 100}))
    cluster.settle(steps=400)
    assert 3 <= len(attempts) <= 8
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert "pod does not answer" in cluster.message("Ready")


def test_a_missing_sample_set_holds_the_candidate_and_names_the_configmap() -> None:
    cluster = deployed()
    cluster.samples = SamplesView(error="ConfigMap team/samples does not exist: create it")
    gates = {"samples": {"configMapRef": {"name": "samples"}}}
    cluster.edit(make_spec(hash=digest("2"), rollout={"gates": gates}))
    for _ in range(10):
        cluster.reconcile()
        cluster.tick()
    assert cluster.condition("GatesPassed") == ("False", "SamplesUnreadable")
    cluster.samples = SamplesView("sha256:x", 300)
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_an_unhealthy_stable_needs_the_reference_as_baseline() -> None:
    cluster = deployed()
    for pod in cluster.pods():
        pod.view = replace(pod.view, ready=False, restarts=9, exit_code=1)
    cluster.edit(make_spec(hash=digest("2")))
    for _ in range(10):
        cluster.reconcile()
        cluster.tick()
    assert cluster.condition("GatesPassed") == ("False", "Inconclusive")
    assert "against: reference" in cluster.message("GatesPassed")
    cluster.edit(make_spec(hash=digest("2"), rollout={"gates": {"against": "reference"}}))
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_stable_pods_that_die_during_a_canary_are_not_held_against_the_candidate() -> None:
    cluster = deployed(replicas=2)
    cluster.edit(make_spec(replicas=2, hash=digest("2")))
    cluster.reconcile()
    stored = next(s for s in cluster.sets.values() if s.revision == cluster.stable())
    stored.pods.pop()
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")
    assert len(cluster.in_service()) == 2


def test_a_candidate_that_crashes_while_traffic_shifts_is_rolled_back_above_the_floor() -> None:
    cluster = deployed(replicas=3)
    stable = cluster.stable()
    cluster.edit(make_spec(replicas=3, hash=digest("2")))
    for _ in range(60):
        cluster.reconcile()
        cluster.tick()
        moved = [p for p in cluster.pods() if p.view.revision != stable and p.view.in_endpoints]
        if moved:
            break
    assert moved

    def crash(pod: PodView, space: str) -> PodView:
        return replace(
            healthy(pod, space), ready=False, report=None, restarts=5, exit_code=139, terminated_reason="Error"
        )

    cluster.fate = lambda pod, space: crash(pod, space) if pod.revision != stable else healthy(pod, space)
    lowest = []

    def watch(world: SimulatedCluster) -> None:
        lowest.append(len(world.in_service()))

    for _ in range(3):
        cluster.reconcile()
        watch(cluster)
        cluster.tick()
    cluster.settle(watch=watch)
    assert cluster.stable() == stable
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert min(lowest) >= 3
    assert len(cluster.in_service()) == 3


def test_erasing_the_status_changes_nothing() -> None:
    cluster = deployed(replicas=2)
    cluster.edit(make_spec(replicas=2, hash=digest("2")))

    def erase(world: SimulatedCluster) -> None:
        world.status = {}

    for _ in range(100):
        cluster.reconcile()
        erase(cluster)
        cluster.tick()
    cluster.reconcile()
    assert cluster.stable() == revision_hash(make_spec(hash=digest("2")), "image:1", 1)
    assert cluster.condition("Ready") == ("True", "Promoted")
    assert len(cluster.status["history"]) == 2


def test_a_foreign_service_is_never_taken_over() -> None:
    cluster = SimulatedCluster(services=(ServiceView("enc", False, "Deployment shop"),))
    cluster.settle()
    assert cluster.condition("Ready") == ("False", "NameConflict")
    assert "Deployment shop" in cluster.message("Ready")
    assert cluster.sets == {}
    cluster.services = ()
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_an_operator_upgrade_rolls_nothing() -> None:
    cluster = deployed()
    stable = cluster.stable()
    cluster.image = "image:2"
    cluster.settle()
    assert cluster.stable() == stable
    assert len(cluster.sets) == 1
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    assert next(s.image for s in cluster.sets.values() if s.revision == cluster.stable()) == "image:2"


def test_history_keeps_ten_past_revisions() -> None:
    cluster = deployed()
    for number in range(13):
        cluster.edit(make_spec(hash=digest(f"{number:x}"[0]), threads=number + 1))
        cluster.settle()
    assert len(cluster.sets) == 11
    assert len(cluster.status["history"]) == 10
    assert len([key for key in cluster.others if key[0] == "ConfigMap"]) == 11


def test_a_new_source_url_alone_restarts_nothing() -> None:
    cluster = deployed()
    pods, stable = {p.view.uid for p in cluster.pods()}, cluster.stable()
    moved = make_spec()
    model = moved.config.model.model_copy(update={"source": "pvc://other/a"})
    cluster.edit(moved.model_copy(update={"config": moved.config.model_copy(update={"model": model})}))
    cluster.settle()
    assert {p.view.uid for p in cluster.pods()} == pods
    assert cluster.stable() == stable
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_no_cores_for_a_surge_is_told_and_stable_goes_on() -> None:
    cluster = deployed()
    cluster.cores = 1
    cluster.fate = lambda pod, space: healthy(pod, space)
    cluster.edit(make_spec(hash=digest("2"), rollout={"progressDeadlineSeconds": 60}))
    for _ in range(3):
        cluster.reconcile()
        cluster.tick()
    assert len(cluster.in_service()) == 1
    cluster.settle(steps=300)
    assert cluster.condition("Ready") == ("False", "RolledBack")
    assert "progressDeadlineSeconds" in cluster.message("Ready")


def test_scaling_down_and_up_again_leaves_no_drained_pod_behind() -> None:
    cluster = deployed(replicas=3)
    cluster.edit(make_spec(replicas=2))
    cluster.reconcile()
    cluster.tick()
    cluster.edit(make_spec(replicas=3))
    cluster.settle()
    assert len(cluster.in_service()) == 3
    assert len(cluster.pods()) == 3


def test_a_remedy_that_makes_no_revision_tries_a_failed_one_again() -> None:
    cluster = deployed()
    cluster.fate = refuse("ArtifactMissing")  # type: ignore[assignment]
    cluster.edit(make_spec(hash=digest("2")))
    cluster.settle()
    assert cluster.condition("Ready") == ("False", "RolledBack")
    cluster.fate = healthy
    cluster.edit(make_spec(hash=digest("2"), placement={"nodeSelector": {"disk": "fast"}}))
    cluster.settle()
    assert cluster.condition("Ready") == ("True", "Promoted")


def test_a_pod_that_healed_is_not_called_refused() -> None:
    cluster = deployed()
    pod = cluster.pods()[0]
    pod.view = replace(
        pod.view, terminated_message='{"reason": "ArtifactMissing", "message": "late volume"}', restarts=1
    )
    cluster.settle()
    assert cluster.condition("ModelVerified") == ("True", "Verified")
    assert cluster.condition("Progressing") == ("False", "Complete")
