"""Which pods serve and how many each revision keeps, so that the floor is never crossed.

Withdrawal of a pod that serves: label off → seen out of the endpoints → told to drain → its requests
and connections have ended (or the time for it is over) → its ReplicaSet is scaled down by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from numaserve_api import names
from numaserve_operator.domain.plan import Deletion, PodPatch, PodTarget
from numaserve_operator.domain.problems import rejected_pods, startup_failure
from numaserve_operator.domain.scale import Scale
from numaserve_operator.domain.snapshot import PodView, RevisionView

DELETION_COST = "-1000"
DEBRIS_SECONDS = 600.0
BREAKER_REJECTIONS = 5
"""Pods of one revision that kubelets may refuse within DEBRIS_SECONDS before we stop asking."""


@dataclass
class Traffic:
    """Replicas by ReplicaSet name, and what to do to pods. ``waiting`` asks for an early second look."""

    replicas: dict[str, int] = field(default_factory=dict)
    patches: list[PodPatch] = field(default_factory=list)
    drains: list[PodTarget] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    waiting: bool = False
    held: bool = False


def live(view: RevisionView) -> list[PodView]:
    """Pods that exist and are not on their way out."""
    return [p for p in view.pods if not p.deleting and p.phase not in ("Failed", "Succeeded")]


def active(view: RevisionView) -> list[PodView]:
    """Live pods nobody has begun to withdraw."""
    return [p for p in live(view) if p.withdrawn_at is None]


def proven(view: RevisionView) -> frozenset[str]:
    """Uids of pods that are ready and have reported their cores and their model."""
    return frozenset(p.uid for p in active(view) if p.available and p.report and p.report.ready)


def in_service(pod: PodView) -> bool:
    """Whether the pod gets requests now and will go on getting them."""
    return pod.available and pod.serving_label and pod.in_endpoints and pod.withdrawn_at is None


def count_in_service(views: Iterable[RevisionView]) -> int:
    """Pods in service over several revisions."""
    return sum(in_service(p) for view in views for p in view.pods)


def stuck(view: RevisionView, mark: str) -> list[Deletion]:
    """Pods that cannot start, made with another source, Secret or placement than is asked for now.

    A ReplicaSet's template speaks of future pods only: without this a corrected source would wait behind the pod
    that proves it wrong. A pod that serves, or is about to, is never among them.
    """
    old = [p for p in live(view) if p.start_mark not in (None, mark) and not p.ready and not p.in_endpoints]
    return [Deletion("Pod", p.name, p.uid) for p in old if not p.scheduled or p.initializing or startup_failure(p)]


@dataclass
class Router:
    """Works out the traffic of one snapshot; ``slack`` is how many serving pods may still be withdrawn."""

    now: datetime
    scale: Scale
    drain_seconds: float
    stable: RevisionView | None
    candidate: RevisionView | None
    losers: Sequence[RevisionView]
    shifting: bool
    usable: frozenset[str]
    """Uids of candidate pods that are ready, verified and pinned."""
    slack: int = 0
    traffic: Traffic = field(default_factory=Traffic)

    def route(self) -> Traffic:
        """Replicas and pod patches for every revision."""
        views = [v for v in (self.stable, self.candidate, *self.losers) if v]
        self.slack = count_in_service(views) - self.scale.floor
        if self.candidate and self.shifting:
            self._label(self.candidate, self.usable)
        if self.stable:
            # Pods born before the promotion carry no label from the template.
            self._label(self.stable, proven(self.stable))
        for loser in self.losers:
            self._size(loser, 0)
            self._sweep(loser.pods)
        if self.stable:
            self._size(self.stable, self._stable_target(self.stable))
            self._bound_rejections(self.stable)
        if self.candidate:
            self._size(self.candidate, self._candidate_target(self.candidate), serving=self.shifting)
            self._bound_rejections(self.candidate)
        return self.traffic

    def _label(self, view: RevisionView, fit: frozenset[str]) -> None:
        for pod in active(view):
            if pod.uid in fit and not pod.serving_label:
                label = {names.LABEL_SERVING: names.SERVING_TRUE}
                self.traffic.patches.append(PodPatch(pod.name, pod.uid, labels=dict(label)))
                self.traffic.waiting = True

    def _stable_target(self, view: RevisionView) -> int:
        moved = count_in_service([self.candidate]) if self.candidate and self.shifting else 0
        wanted = max(self.scale.desired - moved, 0)
        others = (*self.losers, self.candidate)
        room = self.scale.limit - _alive(others)
        return min(wanted, max(room, len(active(view))))

    def _candidate_target(self, view: RevisionView) -> int:
        if not self.shifting:
            return min(self.scale.desired, self.scale.surge if self.stable else self.scale.limit)
        others = (*self.losers, self.stable)
        room = self.scale.limit - _alive(others)
        return min(self.scale.desired, max(room, len(active(view))))

    def _size(self, view: RevisionView, target: int, serving: bool = True) -> None:
        """Replicas for ``target`` pods; where not ``serving``, pods left in service from an earlier life go first."""
        standing = [p for p in active(view) if serving or not p.serving_label]
        excess = sorted(standing, key=_first_to_go)[: max(len(standing) - target, 0)]
        excess += [p for p in active(view) if p.serving_label and not serving]
        kept = len([pod for pod in excess if self._withdraw(pod)])
        leaving = len([pod for pod in live(view) if pod.withdrawn_at and self._keep_leaving(pod)])
        self.traffic.replicas[view.name] = target + kept + leaving

    def _withdraw(self, pod: PodView) -> bool:
        """Begin to withdraw a surplus pod; true while it still counts as a replica."""
        if not pod.serving_label and not pod.in_endpoints:
            return False
        if in_service(pod):
            if self.slack <= 0:
                self.traffic.held = True
                return True
            self.slack -= 1
        stamp = {names.ANNOTATION_WITHDRAWN_AT: self.now.isoformat(), names.ANNOTATION_POD_DELETION_COST: DELETION_COST}
        patch = PodPatch(pod.name, pod.uid, labels={names.LABEL_SERVING: None}, annotations=dict(stamp))
        self.traffic.patches.append(patch)
        self.traffic.waiting = True
        return True

    def _keep_leaving(self, pod: PodView) -> bool:
        """Carry a withdrawn pod one step further; false once it may be deleted."""
        if pod.in_endpoints:
            self.traffic.waiting = True
            return True
        if pod.drain_told_at is None:
            if pod.ip:
                self.traffic.drains.append(PodTarget(pod.name, pod.uid, pod.ip, pod.revision))
            told = {names.ANNOTATION_DRAIN_TOLD_AT: self.now.isoformat()}
            self.traffic.patches.append(PodPatch(pod.name, pod.uid, annotations=dict(told)))
            self.traffic.waiting = True
            return True
        if self._drained(pod, pod.drain_told_at):
            # Named, because the ReplicaSet controller may give up another pod that is not ready yet.
            self.traffic.deletions.append(Deletion("Pod", pod.name, pod.uid))
            return False
        self.traffic.waiting = True
        return True

    def _drained(self, pod: PodView, told: datetime) -> bool:
        waited = (self.now - told).total_seconds()
        report = pod.report
        idle = report is not None and report.draining and report.in_flight == 0 and report.open_connections == 0
        return idle or waited >= self.drain_seconds or pod.phase != "Running"

    def _sweep(self, pods: Iterable[PodView]) -> None:
        failed = [p for p in pods if p.phase == "Failed" and not p.deleting]
        self.traffic.deletions.extend(Deletion("Pod", p.name, p.uid) for p in failed)

    def _bound_rejections(self, view: RevisionView) -> None:
        """A ReplicaSet replaces refused pods without end (k/k#84869): stop it, clear up, try again later."""
        rejected = rejected_pods(view)
        old = [p for p in rejected if (self.now - p.created).total_seconds() >= DEBRIS_SECONDS]
        self._sweep(old)
        if len(rejected) - len(old) >= BREAKER_REJECTIONS:
            self.traffic.replicas[view.name] = min(self.traffic.replicas[view.name], len(live(view)))


def _first_to_go(pod: PodView) -> tuple[bool, bool, float]:
    return (pod.available, pod.serving_label, -pod.created.timestamp())


def _alive(views: Iterable[RevisionView | None]) -> int:
    return sum(len(live(view)) for view in views if view)
