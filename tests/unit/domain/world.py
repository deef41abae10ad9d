"""A small simulated cluster for decide(): ReplicaSet controller, kubelet, endpoints, gates. No clock but its own.

It applies plans exactly as the API server would see them, so a test can run the decision to its
fixpoint and watch what happens on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from numaserve_api import names
from numaserve_api.conditions import Reason
from numaserve_api.probe import PlacementReport
from numaserve_api.resource import EncoderDeploymentSpec, GateValue, dump
from numaserve_operator.builders.assemble import plan
from numaserve_operator.domain.plan import GateRequest, Manifest, Plan
from numaserve_operator.domain.snapshot import (
    Defaults,
    GateResult,
    ParentView,
    PodView,
    RevisionView,
    Role,
    SamplesView,
    ServiceView,
    Snapshot,
    Verdict,
)
from numaserve_operator.kube.decode import parse_time
from numaserve_operator.kube.results import dump_result, load_result

START = datetime(2026, 1, 1, tzinfo=UTC)
HASH = "sha256:" + "1" * 64


def make_spec(**changes: Any) -> EncoderDeploymentSpec:
    """A valid spec; keyword arguments replace top-level fields, `hash`, `source`, `threads` and `space` the config's."""
    model = {
        "source": changes.pop("source", "pvc://models/a"),
        "hash": changes.pop("hash", HASH),
        "task": "embedding",
        "space": changes.pop("space", "s@1"),
    }
    config = {
        "version": 1,
        "model": model,
        "window": {"maxTokens": 128},
        "quantization": {"scheme": "none"},
        "threads": changes.pop("threads", 1),
    }
    return EncoderDeploymentSpec.model_validate({"config": config, **changes})


def digest(letter: str) -> str:
    """A hash made of one letter."""
    return "sha256:" + letter * 64


@dataclass
class SimulatedPod:
    """A pod and what happens to it next."""

    view: PodView
    step: int = 0


@dataclass
class SimulatedSet:
    """A ReplicaSet as stored."""

    name: str
    revision: str
    image: str
    uid: str
    created: datetime
    replicas: int
    serving: bool
    annotations: dict[str, str]
    start_mark: str | None = None
    pods: list[SimulatedPod] = field(default_factory=list)


PodFate = Callable[[PodView, str], PodView]
GateFate = Callable[[GateRequest], GateResult]


def healthy(pod: PodView, space: str) -> PodView:
    """What a kubelet makes of a pod when all goes well."""
    report = PlacementReport(
        revision=pod.revision, artifact=HASH, space=space, ready=True, cpuset="1", online="0-3", numa_nodes=[0], physical_cores=1,
        cpus_requested=1, threads_requested=1, threads=1, precision="f32", fingerprint="f32/x",
    )  # fmt: skip
    ready = replace(
        pod, phase="Running", ready=True, node="node-a", ip="10.0.0.1", scheduled=True, qos_class="Guaranteed"
    )
    return replace(ready, started=True, containers=("server",), report=report)


def passing(request: GateRequest) -> GateResult:
    """A gate that passes."""
    return GateResult(
        request.key, Verdict.PASSED, Reason.PASSED, "fine", (GateValue(name="cosine.min", value=1.0, passed=True),)
    )


def failing(request: GateRequest) -> GateResult:
    """A gate that fails."""
    return GateResult(request.key, Verdict.FAILED, Reason.COSINE_BELOW_THRESHOLD, "cosine.min 0.4 < 0.95")


@dataclass
class SimulatedCluster:
    """One resource and its children. `fate` decides what becomes of new pods, `gate` how comparisons end."""

    spec: EncoderDeploymentSpec = field(default_factory=make_spec)
    fate: PodFate = healthy
    gate: GateFate = passing
    cores: int = 1000
    now: datetime = START
    generation: int = 1
    sets: dict[str, SimulatedSet] = field(default_factory=dict)
    others: dict[tuple[str, str], str | None] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    services: tuple[ServiceView, ...] = ()
    samples: SamplesView | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    gates_run: int = 0
    ever_passed: set[str] = field(default_factory=set)
    pending_gate: GateRequest | None = None
    drained: set[str] = field(default_factory=set)
    removed: list[PodView] = field(default_factory=list)
    image: str = "image:1"
    serial: int = 0
    writes: int = 0

    def edit(self, spec: EncoderDeploymentSpec) -> None:
        """The user changes the spec."""
        self.spec = spec
        self.generation += 1

    # Reading

    def snapshot(self) -> Snapshot:
        """What gather would read."""
        parent = ParentView(
            "enc", "team", "uid", self.generation, "1", self.spec, annotations=self.annotations, status=self.status
        )
        return Snapshot(
            now=self.now,
            parent=parent,
            defaults=Defaults(self.image, "numaserve-system"),
            revisions=tuple(self._view(s) for s in self.sets.values()),
            services=self.services,
            other_children=tuple((kind, name, stamp) for (kind, name), stamp in self.others.items()),
            samples=self.samples,
            gate_running=self.pending_gate.key if self.pending_gate else None,
        )

    def _view(self, stored: SimulatedSet) -> RevisionView:
        notes = stored.annotations
        role = notes.get(names.ANNOTATION_ROLE)
        from numaserve_operator.kube import decode

        raw = {
            "metadata": {
                "name": stored.name,
                "uid": stored.uid,
                "creationTimestamp": stored.created.isoformat(),
                "labels": {names.LABEL_REVISION: stored.revision},
                "annotations": notes,
            },
            "spec": {
                "replicas": stored.replicas,
                "template": {"metadata": {"labels": {names.LABEL_SERVING: "true"} if stored.serving else {}}},
            },
        }
        view = decode.revision(raw, tuple(p.view for p in stored.pods), {"cpusPerThread": 1})
        assert view is not None
        assert role is None or view.role is Role(role)
        return view

    # One reconcile

    def reconcile(self) -> Plan:
        """Gather, decide, apply."""
        wanted = plan(self.snapshot())
        before = self.writes
        for manifest in wanted.apply:
            self._apply(manifest)
        for patch in wanted.revision_patches:
            self._patch_set(patch.name, patch)
        for pod_patch in wanted.pod_patches:
            self._patch_pod(pod_patch)
        self.drained |= {t.uid for t in wanted.drains}
        for deletion in wanted.deletions:
            self._delete(deletion.kind, deletion.name)
        status = dump(wanted.status) if wanted.status else self.status
        self.writes += status != self.status
        self.status = status
        self.events += [e.reason for e in wanted.events]
        if wanted.gate and (self.pending_gate is None or self.pending_gate.key != wanted.gate.key):
            self.pending_gate = wanted.gate
        if wanted.cancel_gate:
            self.pending_gate = None
        self.quiet = self.writes == before and not wanted.gate
        return wanted

    def _apply(self, manifest: Manifest) -> None:
        self.writes += 1
        meta = manifest["metadata"]
        if manifest["kind"] == "ReplicaSet":
            self._apply_set(manifest)
        elif manifest["kind"] == "Service":
            self.services = (ServiceView(meta["name"], True, "us", meta["annotations"][names.ANNOTATION_APPLIED_HASH]),)
        else:
            self.others[manifest["kind"], meta["name"]] = meta["annotations"][names.ANNOTATION_APPLIED_HASH]

    def _apply_set(self, manifest: Manifest) -> None:
        meta, spec = manifest["metadata"], manifest["spec"]
        serving = names.LABEL_SERVING in spec["template"]["metadata"]["labels"]
        mark = spec["template"]["metadata"]["annotations"].get(names.ANNOTATION_START)
        old = self.sets.get(meta["name"])
        if old:
            old.start_mark = mark
            old.annotations, old.replicas, old.serving = dict(meta["annotations"]), spec["replicas"], serving
            return
        self.serial += 1
        revision = meta["labels"][names.LABEL_REVISION]
        image = meta["annotations"][names.ANNOTATION_IMAGE]
        self.sets[meta["name"]] = SimulatedSet(
            meta["name"],
            revision,
            image,
            f"rs{self.serial}",
            self.now,
            spec["replicas"],
            serving,
            dict(meta["annotations"]),
            mark,
        )

    def _patch_set(self, name: str, patch: Any) -> None:
        self.writes += 1
        stored = self.sets[name]
        stored.replicas = stored.replicas if patch.replicas is None else patch.replicas
        stored.serving = stored.serving if patch.template_serving is None else patch.template_serving
        for key, value in patch.annotations.items():
            if value is None:
                stored.annotations.pop(key, None)
            else:
                stored.annotations[key] = value

    def _patch_pod(self, patch: Any) -> None:
        self.writes += 1
        for pod in self.pods():
            if pod.view.uid != patch.uid:
                continue
            changes: dict[str, Any] = {}
            if names.LABEL_SERVING in patch.labels:
                changes["serving_label"] = patch.labels[names.LABEL_SERVING] == "true"
            for key, attribute in (
                (names.ANNOTATION_WITHDRAWN_AT, "withdrawn_at"),
                (names.ANNOTATION_DRAIN_TOLD_AT, "drain_told_at"),
            ):
                if key in patch.annotations:
                    changes[attribute] = parse_time(patch.annotations[key])
            pod.view = replace(pod.view, **changes)

    def _delete(self, kind: str, name: str) -> None:
        self.writes += 1
        if kind == "ReplicaSet":
            self.sets.pop(name, None)
        if kind == "ConfigMap":
            self.others.pop(("ConfigMap", name), None)
        for stored in self.sets.values():
            gone = [p for p in stored.pods if kind == "Pod" and p.view.name == name]
            stored.pods = [p for p in stored.pods if p not in gone]
            self.removed += [p.view for p in gone if p.view.phase != "Failed"]

    # The rest of the cluster

    def pods(self) -> list[SimulatedPod]:
        """Every pod."""
        return [p for s in self.sets.values() for p in s.pods]

    def tick(self, seconds: float = 1.0) -> None:
        """Time passes: controllers, kubelets and gates do their part."""
        self.now += timedelta(seconds=seconds)
        for stored in self.sets.values():
            self._replicate(stored)
        for pod in self.pods():
            self._live(pod)
        if self.pending_gate:
            self._finish_gate(self.pending_gate)

    def _replicate(self, stored: SimulatedSet) -> None:
        alive = [p for p in stored.pods if p.view.phase != "Failed"]
        while len(alive) < stored.replicas:
            self.serial += 1
            view = PodView(
                f"pod{self.serial}", f"uid{self.serial}", stored.revision, self.now, serving_label=stored.serving,
                start_mark=stored.start_mark,
            )  # fmt: skip
            pod = SimulatedPod(view)
            stored.pods.append(pod)
            alive.append(pod)
        for pod in sorted(alive, key=_rs_rank)[: max(len(alive) - stored.replicas, 0)]:
            stored.pods.remove(pod)
            self.removed.append(pod.view)

    def _live(self, pod: SimulatedPod) -> None:
        view = pod.view
        if view.phase == "Pending" and self._free() > 0 and not view.unscheduled_reason:
            view = self.fate(view, self.spec.config.model.space or "")
        serving = view.ready and view.serving_label and view.uid not in self.drained
        if view.uid in self.drained and view.report:
            view = replace(view, ready=False, report=view.report.model_copy(update={"draining": True, "ready": False}))
        pod.view = replace(view, in_endpoints=serving)

    def _free(self) -> int:
        return self.cores - sum(1 for p in self.pods() if p.view.scheduled and p.view.phase != "Failed")

    def _finish_gate(self, request: GateRequest) -> None:
        stored = self.sets.get(request.replicaset)
        self.pending_gate = None
        self.gates_run += 1
        if stored:
            result = replace(self.gate(request), finished_at=self.now, attempts=request.attempts)
            if result.verdict is Verdict.PASSED:
                self.ever_passed.add(stored.revision)
            stored.annotations[names.ANNOTATION_GATE_RESULT] = dump_result(result)
            assert load_result(stored.annotations[names.ANNOTATION_GATE_RESULT]) == result

    def settle(self, steps: int = 200, watch: Callable[[SimulatedCluster], None] = lambda _: None) -> None:
        """Run until nothing is written any more. Raises AssertionError when that never happens."""
        rest = 0
        for _ in range(steps):
            self.reconcile()
            watch(self)
            self.tick()
            # A candidate that waits has a deadline: only time ends it, so that is no rest.
            waiting = self.status.get("candidateRevision") and self.spec.replicas
            rest = rest + 1 if self.quiet and not waiting else 0
            if rest >= 15:
                return
        raise AssertionError(f"never at rest; last status {self.status}")

    # Looking

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        found = next(c for c in self.status["conditions"] if c["type"] == kind)
        return found["status"], found["reason"]

    def message(self, kind: str) -> str:
        """Message of a condition."""
        return str(next(c for c in self.status["conditions"] if c["type"] == kind)["message"])

    def in_service(self) -> list[PodView]:
        """Pods that get requests."""
        return [p.view for p in self.pods() if p.view.in_endpoints and p.view.ready]

    def role(self, revision: str) -> str:
        """Role of a revision."""
        return next(s.annotations[names.ANNOTATION_ROLE] for s in self.sets.values() if s.revision == revision)

    def stable(self) -> str:
        """The stable revision."""
        return str(self.status["stableRevision"])


def _rs_rank(pod: SimulatedPod) -> tuple[bool, bool, bool]:
    """The order in which a ReplicaSet gives up pods: unscheduled, not ready, then by deletion cost."""
    return (pod.view.scheduled, pod.view.ready, pod.view.withdrawn_at is None)
