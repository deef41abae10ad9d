"""Gather: one frozen Snapshot of a resource and everything that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from numaserve_api import names
from numaserve_operator.builders.children import policy_name
from numaserve_operator.controller.ports import ClusterPort, Json, Now
from numaserve_operator.controller.reports import Reports
from numaserve_operator.controller.tokens import Tokens
from numaserve_operator.domain.revisions import find_target
from numaserve_operator.domain.snapshot import Defaults, ParentView, PodView, RevisionView, SamplesView, Snapshot
from numaserve_operator.gates.samples import SamplesUnreadable, parse_configmap
from numaserve_operator.kube import decode
from numaserve_operator.kube.gateway import RawChildren


@dataclass
class Gatherer:
    """Reads what a decision needs."""

    cluster: ClusterPort
    reports: Reports
    tokens: Tokens
    defaults: Defaults
    now: Now

    async def gather(self, raw: Json, gate_running: str | None) -> Snapshot:
        """The snapshot of one resource, its object already read."""
        parent = decode.parent(raw)
        children = await self.cluster.children(parent.namespace, parent.name, policy_name(parent.name))
        pods = await self._pods(parent, children)
        revisions = _revisions(parent, children, pods)
        snapshot = Snapshot(
            now=self.now(),
            parent=parent,
            defaults=self.defaults,
            revisions=revisions,
            services=(decode.service(children.service, parent.uid),) if children.service else (),
            other_children=_others(parent, children),
            samples=await self._samples(parent),
            gate_running=gate_running,
        )
        return replace(snapshot, probe_tokens=self._digests(snapshot))

    async def _pods(self, parent: ParentView, children: RawChildren) -> list[PodView]:
        serving = decode.serving_uids(children.slices)
        pods = [decode.pod(raw, serving) for raw in children.pods]
        return await self.reports.add(pods, self.tokens.of(parent.uid))

    async def _samples(self, parent: ParentView) -> SamplesView | None:
        rollout = parent.spec.rollout if parent.spec else None
        named = rollout.gates.samples if rollout and rollout.gates else None
        if named is None or named.config_map_ref is None:
            return None
        name = named.config_map_ref.name
        raw = await self.cluster.configmap(parent.namespace, name)
        if raw is None:
            return SamplesView(
                error=f"ConfigMap {parent.namespace}/{name} named in spec.rollout.gates.samples does not exist: create it"
            )
        try:
            found = parse_configmap(raw)
        except SamplesUnreadable as error:
            return SamplesView(error=str(error))
        return SamplesView(found.digest, len(found.texts))

    def _digests(self, snapshot: Snapshot) -> dict[str, str]:
        parent = snapshot.parent
        if parent.spec is None:
            return {}
        target = find_target(snapshot, parent.spec).revision
        return {target: self.tokens.digest(parent.uid, target)}


def _revisions(parent: ParentView, children: RawChildren, pods: list[PodView]) -> tuple[RevisionView, ...]:
    inputs = {
        raw["metadata"]["labels"].get(names.LABEL_REVISION): decode.hash_inputs(raw)
        for raw in children.configmaps
        if decode.owned(raw, parent.uid)
    }
    views = []
    for raw in children.replicasets:
        if not decode.owned(raw, parent.uid):
            continue
        revision = raw["metadata"]["labels"].get(names.LABEL_REVISION)
        own = tuple(p for p in pods if p.revision == revision)
        view = decode.revision(raw, own, inputs.get(revision))
        if view:
            views.append(view)
    return tuple(views)


def _others(parent: ParentView, children: RawChildren) -> tuple[tuple[str, str, str | None], ...]:
    owned = [("ConfigMap", raw) for raw in children.configmaps if decode.owned(raw, parent.uid)]
    if children.policy and decode.owned(children.policy, parent.uid):
        owned.append(("NetworkPolicy", children.policy))
    return tuple((kind, raw["metadata"]["name"], decode.stamp_of(raw)) for kind, raw in owned)
