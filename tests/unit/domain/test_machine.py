"""A model-based test: any sequence of edits, failures and pod deaths keeps the rollout's promises."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from numaserve_api import names
from numaserve_api.conditions import Reason
from numaserve_operator.domain.scale import scale_of
from numaserve_operator.domain.snapshot import GateResult, PodView, Verdict
from numaserve_operator.domain.traffic import count_in_service
from tests.unit.domain.world import SimulatedCluster, digest, failing, healthy, make_spec, passing


def inconclusive(request: object) -> GateResult:
    """A gate that could not measure."""
    return GateResult(request.key, Verdict.INCONCLUSIVE, Reason.INCONCLUSIVE, "no answer")  # type: ignore[attr-defined]


def unschedulable(pod: PodView, _: str) -> PodView:
    """A pod no node has room for."""
    return replace(pod, unscheduled_reason="Unschedulable", unscheduled_message="Insufficient cpu")


def rejected(pod: PodView, _: str) -> PodView:
    """A pod its kubelet refuses."""
    return replace(pod, phase="Failed", reason="TopologyAffinityError", message="cannot align", node="node-a")


def refused(pod: PodView, space: str) -> PodView:
    """A server that refuses its artifact."""
    text = '{"reason": "DigestMismatch", "message": "changed"}'
    return replace(healthy(pod, space), ready=False, report=None, terminated_message=text, exit_code=78)


GATES = {"passing": passing, "failing": failing, "inconclusive": inconclusive}
FATES = {"healthy": healthy, "unschedulable": unschedulable, "rejected": rejected, "refused": refused}


class RolloutMachine(RuleBasedStateMachine):
    """Edits, faults and time in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = SimulatedCluster()
        self.letter, self.replicas, self.paused, self.minimum = "1", 1, False, 0.9
        self.surge, self.unavailable = 1, 0

    @initialize(replicas=st.integers(0, 4), surge=st.integers(1, 3), unavailable=st.integers(0, 2))
    def begin(self, replicas: int, surge: int, unavailable: int) -> None:
        """A first spec."""
        self.replicas, self.surge, self.unavailable = replicas, surge, unavailable
        self._edit()

    def _edit(self) -> None:
        cosine = {"min": self.minimum, "p1": 0.98, "mean": 0.99}
        rollout = {
            "maxSurge": self.surge, "maxUnavailable": self.unavailable, "paused": self.paused,
            "progressDeadlineSeconds": 60, "gates": {"cosine": cosine},
        }  # fmt: skip
        self.cluster.edit(make_spec(hash=digest(self.letter), replicas=self.replicas, rollout=rollout))

    @rule(letter=st.sampled_from("1234"))
    def edit_model(self, letter: str) -> None:
        self.letter = letter
        self._edit()

    @rule(replicas=st.integers(0, 4))
    def edit_replicas(self, replicas: int) -> None:
        self.replicas = replicas
        self._edit()

    @rule(minimum=st.sampled_from([0.8, 0.9]))
    def edit_gates(self, minimum: float) -> None:
        self.minimum = minimum
        self._edit()

    @rule()
    def toggle_pause(self) -> None:
        self.paused = not self.paused
        self._edit()

    @rule(gate=st.sampled_from(sorted(GATES)))
    def change_gate(self, gate: str) -> None:
        self.cluster.gate = GATES[gate]

    @rule(fate=st.sampled_from(sorted(FATES)))
    def change_fate(self, fate: str) -> None:
        self.cluster.fate = FATES[fate]

    @rule()
    def lose_status(self) -> None:
        self.cluster.status = {}

    @precondition(lambda self: self.cluster.pods())
    @rule(which=st.integers(0, 100))
    def kill_pod(self, which: int) -> None:
        pods = self.cluster.pods()
        doomed = pods[which % len(pods)]
        for stored in self.cluster.sets.values():
            stored.pods = [p for p in stored.pods if p is not doomed]

    @rule(seconds=st.sampled_from([1.0, 1.0, 1.0, 5.0, 30.0]))
    def step(self, seconds: float) -> None:
        """The operator looks once, then time passes."""
        self._checked_reconcile()
        self.cluster.tick(seconds)

    @rule(times=st.integers(2, 12))
    def steps(self, times: int) -> None:
        """A while without disturbance."""
        for _ in range(times):
            self._checked_reconcile()
            self.cluster.tick()

    def _checked_reconcile(self) -> None:
        """What the operator does must never take the service below its floor, nor below what it was."""
        before = count_in_service(self.cluster.snapshot().revisions)
        removed = len(self.cluster.removed)
        self.cluster.reconcile()
        after = count_in_service(self.cluster.snapshot().revisions)
        floor = scale_of(self.cluster.spec).floor
        assert after >= min(before, floor), f"{before} pods served, {after} after a reconcile, the floor is {floor}"
        for pod in self.cluster.removed[removed:]:
            assert not (pod.in_endpoints and pod.serving_label), f"{pod.name} was deleted while it served"

    @invariant()
    def at_most_one_candidate(self) -> None:
        """Two edits leave one candidate; between two reconciles at most the old one lingers."""
        roles = [s.annotations.get(names.ANNOTATION_ROLE) for s in self.cluster.sets.values()]
        assert roles.count("candidate") <= 1
        assert roles.count("stable") <= 1

    @invariant()
    def nothing_serves_before_its_gates(self) -> None:
        """A serving label only on pods whose revision passed a comparison at some time."""
        for stored in self.cluster.sets.values():
            if any(p.view.serving_label for p in stored.pods):
                assert stored.revision in self.cluster.ever_passed

    @invariant()
    def pods_stay_bounded(self) -> None:
        """No fault makes pods without end."""
        assert len(self.cluster.pods()) <= 4 + 3 + 4 + 12

    def teardown(self) -> None:
        """When faults end, everything comes to rest, and every pod in service is the right one."""
        cluster = self.cluster
        cluster.fate, cluster.gate, self.paused = healthy, passing, False
        for pod in cluster.pods():
            if not pod.view.ready and pod.view.phase != "Failed":
                fresh = PodView(pod.view.name, pod.view.uid, pod.view.revision, pod.view.created)
                pod.view = replace(fresh, serving_label=pod.view.serving_label, withdrawn_at=pod.view.withdrawn_at)
        self._edit()
        cluster.settle(steps=1500)
        ready, reason = cluster.condition("Ready")
        if self.replicas == 0:
            assert cluster.in_service() == []
        elif ready == "True":
            assert {p.revision for p in cluster.in_service()} == {cluster.stable()}
            assert len(cluster.in_service()) == self.replicas
        else:
            # Remembered as refused: whatever was stable before goes on alone.
            revisions = {p.revision for p in cluster.in_service()}
            assert revisions <= {cluster.status.get("stableRevision")}, reason


TestRollout = RolloutMachine.TestCase
TestRollout.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
