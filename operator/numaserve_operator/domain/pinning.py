"""Judging what a pod says of its own cores: exclusive and on one NUMA node, or why not."""

from __future__ import annotations

from numaserve_api.conditions import ConditionType, Reason
from numaserve_api.cpuset import parse_cpus
from numaserve_api.probe import PlacementReport
from numaserve_operator.domain.problems import Problem
from numaserve_operator.domain.snapshot import PodView


def judge(pod: PodView, single_numa: bool) -> Problem | None:
    """Why a pod is not pinned as asked; None when it is. Call only with a report at hand."""
    report = pod.report
    if report is None:
        return None
    try:
        cpuset, online = parse_cpus(report.cpuset), parse_cpus(report.online)
    except ValueError as error:
        return _problem(Reason.SHARED_POOL, pod, f"its CPU sets are not understood: {error}")
    checks = (
        _shared_pool(pod, report, cpuset, online),
        _too_few(pod, report, cpuset),
        _misaligned(pod, report, single_numa),
        _siblings(pod, report),
        _quota(pod, report, len(cpuset)),
        _threads(pod, report),
    )
    return next((problem for problem in checks if problem), None)


def warning(pod: PodView) -> str | None:
    """A quota that does not bind today (kubelet 1.32 and older set one on pinned containers)."""
    report = pod.report
    if report is None or report.quota_cpus is None:
        return None
    return f"{Reason.QUOTA_PRESENT}: pod {pod.name} has a CFS quota of {report.quota_cpus:g} CPUs; it can throttle short bursts"


def _problem(reason: Reason, pod: PodView, text: str) -> Problem:
    return Problem(reason, f"pod {pod.name} on node {pod.node}: {text}", True, ConditionType.PINNED)


def _shared_pool(
    pod: PodView, report: PlacementReport, cpuset: frozenset[int], online: frozenset[int]
) -> Problem | None:
    asked = report.cpus_requested
    if cpuset != online and (asked is None or len(cpuset) <= asked):
        return None
    return _problem(
        Reason.SHARED_POOL,
        pod,
        f"its cpuset {report.cpuset} is the node's shared pool, {asked} exclusive CPUs were asked for. "
        "The kubelet's cpuManagerPolicy is not static there: select nodes that have it (spec.placement.nodeSelector), or set it and restart the kubelet",
    )


def _too_few(pod: PodView, report: PlacementReport, cpuset: frozenset[int]) -> Problem | None:
    needed = max(report.threads_requested, report.cpus_requested or 0)
    if len(cpuset) >= needed:
        return None
    return _problem(Reason.TOO_FEW_CPUS, pod, f"its cpuset {report.cpuset} has {len(cpuset)} CPUs, {needed} are needed")


def _misaligned(pod: PodView, report: PlacementReport, single_numa: bool) -> Problem | None:
    if not single_numa or len(report.numa_nodes) <= 1:
        return None
    return _problem(
        Reason.MISALIGNED,
        pod,
        f"its cpuset {report.cpuset} spans NUMA nodes {report.numa_nodes}, spec.placement.numa is single. "
        "Set the kubelet's topologyManagerPolicy to single-numa-node, ask for fewer threads, or allow numa: any",
    )


def _siblings(pod: PodView, report: PlacementReport) -> Problem | None:
    if not report.shared_sibling_cores:
        return None
    return _problem(
        Reason.THREADS_SHARE_CORES,
        pod,
        f"{report.shared_sibling_cores} of its physical cores are shared with other containers. "
        "Set the kubelet's full-pcpus-only option or spec.placement.cpusPerThread to the node's threads per core",
    )


def _quota(pod: PodView, report: PlacementReport, cpus: int) -> Problem | None:
    if report.quota_cpus is None or report.quota_cpus >= cpus:
        return None
    return _problem(
        Reason.THROTTLED,
        pod,
        f"its CFS quota of {report.quota_cpus:g} CPUs is below the {cpus} CPUs of its cpuset {report.cpuset}",
    )


def _threads(pod: PodView, report: PlacementReport) -> Problem | None:
    if report.threads == report.threads_requested:
        return None
    return _problem(
        Reason.THREADS_MISMATCH,
        pod,
        f"the runtime uses {report.threads} threads, {report.threads_requested} were asked for",
    )
