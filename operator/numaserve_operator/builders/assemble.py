"""From a decision to a plan: the manifests to apply beside the patches already decided."""

from __future__ import annotations

from dataclasses import replace

from numaserve_api import names
from numaserve_api.resource import EncoderDeploymentSpec
from numaserve_operator.builders.children import (
    applied_hash,
    child_name,
    configmap,
    network_policy,
    replicaset,
    service,
)
from numaserve_operator.domain.decide import Decision, decide
from numaserve_operator.domain.plan import Manifest, Plan, RevisionPatch
from numaserve_operator.domain.revisions import Target
from numaserve_operator.domain.rollout import candidate_marks
from numaserve_operator.domain.scale import scale_of
from numaserve_operator.domain.snapshot import Snapshot


def plan(snapshot: Snapshot) -> Plan:
    """Decide, then build: the one pure function a reconcile calls."""
    return assemble(snapshot, decide(snapshot))


def assemble(snapshot: Snapshot, decision: Decision) -> Plan:
    """The plan of a decision. Manifests equal to what is live are left out."""
    apply: list[Manifest] = []
    patches = list(decision.patches)
    if decision.spec and decision.target and decision.transition:
        apply = _shared(snapshot, decision.spec)
        own, patches = _revision(snapshot, decision, decision.spec, decision.target)
        apply += own
    return Plan(
        apply=tuple(apply),
        revision_patches=tuple(patches),
        pod_patches=tuple(decision.traffic.patches),
        drains=tuple(decision.traffic.drains),
        deletions=decision.deletions,
        gate=decision.transition.gate if decision.transition else None,
        cancel_gate=decision.transition is None or decision.transition.cast.candidate is None,
        status=decision.status,
        events=decision.events,
        requeue_after=decision.requeue_after,
    )


def _shared(snapshot: Snapshot, spec: EncoderDeploymentSpec) -> list[Manifest]:
    live = {("Service", s.name): s.applied_hash for s in snapshot.services}
    live |= {(kind, name): stamp for kind, name, stamp in snapshot.other_children}
    wanted = [service(snapshot.parent, spec), network_policy(snapshot.parent, snapshot.defaults.operator_namespace)]
    return [m for m in wanted if live.get((m["kind"], m["metadata"]["name"])) != applied_hash(m)]


def _revision(
    snapshot: Snapshot, decision: Decision, spec: EncoderDeploymentSpec, target: Target
) -> tuple[list[Manifest], list[RevisionPatch]]:
    """ReplicaSet and ConfigMap of the revision asked for: made when new, renewed when its template changed."""
    step = decision.transition
    patches = list(decision.patches)
    if step is None or (target.view is None and not step.create):
        return [], patches
    refused = target.view is not None and step.cast.candidate is None and not _is_stable(decision, target)
    if refused:
        return [], patches
    out: list[Manifest] = []
    maps = {name for kind, name, _ in snapshot.other_children if kind == "ConfigMap"}
    if child_name(snapshot.parent.name, target.revision) not in maps:
        made = configmap(
            snapshot.parent, spec, revision=target.revision, image=target.image, cpus_per_thread=target.cpus_per_thread
        )
        out.append(made)
    manifest = _replicaset(snapshot, decision, spec, target)
    if target.view is None:
        out.append(manifest)
    elif target.view.applied_hash != applied_hash(manifest):
        out.append(manifest)
        patches = [_rest_of(p) if p.name == target.view.name else p for p in patches]
    return out, [p for p in patches if not p.empty]


def _rest_of(patch: RevisionPatch) -> RevisionPatch:
    # The applied manifest carries replicas and the serving label; annotations may also be removals.
    return replace(patch, replicas=None, template_serving=None)


def _is_stable(decision: Decision, target: Target) -> bool:
    step = decision.transition
    return step is not None and step.cast.stable is not None and step.cast.stable.revision == target.revision


def _replicaset(snapshot: Snapshot, decision: Decision, spec: EncoderDeploymentSpec, target: Target) -> Manifest:
    view = target.view
    annotations = _annotations(snapshot, decision, spec)
    replicas = decision.traffic.replicas.get(view.name, view.replicas) if view else _first_replicas(decision, spec)
    return replicaset(
        snapshot.parent,
        spec,
        revision=target.revision,
        image=target.image,
        cpus_per_thread=target.cpus_per_thread,
        token_digest=snapshot.probe_tokens.get(target.revision, ""),
        replicas=replicas,
        serving=_is_stable(decision, target),
        annotations=annotations,
        cache=snapshot.defaults.cache_of(snapshot.parent.namespace),
    )


def _annotations(snapshot: Snapshot, decision: Decision, spec: EncoderDeploymentSpec) -> dict[str, str]:
    view = decision.target.view if decision.target else None
    if view is None:
        return {**candidate_marks(snapshot.now, spec), names.ANNOTATION_GENERATION: str(snapshot.parent.generation)}
    # Server-side apply removes what a manager no longer names: name all that is to stay.
    changes = decision.transition.changes.get(view.name, {}) if decision.transition else {}
    kept = {**view.annotations, **changes}
    return {k: v for k, v in kept.items() if v is not None and k != names.ANNOTATION_APPLIED_HASH}


def _first_replicas(decision: Decision, spec: EncoderDeploymentSpec) -> int:
    scale = scale_of(spec)
    step = decision.transition
    stable = step.cast.stable if step else None
    return min(scale.desired, scale.surge if stable else scale.limit)
