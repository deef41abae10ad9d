"""Everything a reconcile reads and writes, and nothing else of the API."""

from __future__ import annotations

import asyncio
import base64
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from numaserve_api import names
from numaserve_api.resource import EncoderDeploymentStatus, dump
from numaserve_operator.domain.errors import Conflict, Terminal
from numaserve_operator.domain.plan import Deletion, EventRecord, Manifest, PodPatch, RevisionPatch
from numaserve_operator.domain.snapshot import GateResult, ParentView
from numaserve_operator.kube.api import Api, Json, path_of
from numaserve_operator.kube.results import dump_result

KEY_SECRET = "numaserve-probe-key"  # noqa: S105 -- the name, not the key
MAX_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class RawChildren:
    """Children of one resource as the API server holds them now."""

    replicasets: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    configmaps: list[Json] = field(default_factory=list)
    slices: list[Json] = field(default_factory=list)
    service: Json | None = None
    policy: Json | None = None


class Gateway:
    """Reads and writes of the operator, over one Api."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def parent(self, namespace: str, name: str) -> Json | None:
        """The resource, None when it is gone."""
        return await self.api.find(path_of(names.KIND, namespace, name))

    async def parents(self, namespace: str | None) -> list[Json]:
        """Every resource of a namespace, or of all."""
        return await self._list(names.KIND, namespace, None)

    async def children(self, namespace: str, name: str, policy: str) -> RawChildren:
        """The resource's children, read live and at once."""
        ours = f"{names.LABEL_NAME}={name},{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
        replicasets, pods, configmaps, slices, service, network = await asyncio.gather(
            self._list("ReplicaSet", namespace, ours),
            self._list("Pod", namespace, f"{names.LABEL_NAME}={name}"),
            self._list("ConfigMap", namespace, ours),
            self._list("EndpointSlice", namespace, f"kubernetes.io/service-name={name}"),
            self.api.find(path_of("Service", namespace, name)),
            self.api.find(path_of("NetworkPolicy", namespace, policy)),
        )
        return RawChildren(replicasets, pods, configmaps, slices, service, network)

    async def configmap(self, namespace: str, name: str) -> Json | None:
        """A ConfigMap of the tenant, for samples."""
        return await self.api.find(path_of("ConfigMap", namespace, name))

    async def apply(self, manifest: Manifest) -> None:
        """Server-side apply of one child."""
        meta = manifest["metadata"]
        await self.api.apply(path_of(manifest["kind"], meta["namespace"], meta["name"]), manifest)

    async def patch_revision(self, namespace: str, patch: RevisionPatch) -> None:
        """Replicas, annotations and serving label of one ReplicaSet."""
        body: Json = {"metadata": {"uid": patch.uid, "annotations": patch.annotations}, "spec": {}}
        if patch.replicas is not None:
            body["spec"]["replicas"] = patch.replicas
        if patch.template_serving is not None:
            label = names.SERVING_TRUE if patch.template_serving else None
            body["spec"]["template"] = {"metadata": {"labels": {names.LABEL_SERVING: label}}}
        await self.api.patch(path_of("ReplicaSet", namespace, patch.name), body)

    async def patch_pod(self, namespace: str, patch: PodPatch) -> None:
        """Labels and annotations of one pod; the uid guards against its successor."""
        body = {"metadata": {"uid": patch.uid, "labels": patch.labels, "annotations": patch.annotations}}
        await self.api.patch(path_of("Pod", namespace, patch.name), body)

    async def delete(self, namespace: str, deletion: Deletion) -> None:
        """Delete one child."""
        await self.api.delete(path_of(deletion.kind, namespace, deletion.name), deletion.uid)

    async def write_status(self, raw: Json, status: EncoderDeploymentStatus) -> bool:
        """Write status when it differs; the parent's resourceVersion and uid guard it. Whether it was written."""
        body = dump(status)
        if body == (raw.get("status") or {}):
            return False
        meta = {k: raw["metadata"][k] for k in ("name", "namespace", "uid", "resourceVersion")}
        document = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": meta,
            "spec": raw["spec"],
            "status": body,
        }
        await self.api.replace(path_of(names.KIND, meta["namespace"], meta["name"], "status"), document)
        return True

    async def store_result(self, namespace: str, replicaset: str, uid: str, result: GateResult) -> None:
        """Keep a gate result on its candidate, before any label moves."""
        note = {names.ANNOTATION_GATE_RESULT: dump_result(result)}
        await self.patch_revision(namespace, RevisionPatch(replicaset, uid, annotations=dict(note)))

    async def emit(self, parent: ParentView, event: EventRecord) -> None:
        """An Event on the resource, as `kubectl describe` shows it."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{parent.name}.", "namespace": parent.namespace},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": parent.name,
                "namespace": parent.namespace,
                "uid": parent.uid,
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:MAX_MESSAGE],
            "source": {"component": names.FIELD_MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self.api.create(path_of("Event", parent.namespace), body)

    async def probe_key(self, namespace: str) -> bytes:
        """The operator's own key, made at its first start; every replica reads the same."""
        path = path_of("Secret", namespace, KEY_SECRET)
        found = await self.api.find(path)
        if found is None:
            try:
                found = await self.api.create(path_of("Secret", namespace), _key_secret(namespace))
            except Conflict:
                found = await self.api.get(path)
        try:
            return base64.b64decode(found["data"]["key"], validate=True)
        except (KeyError, ValueError) as error:
            raise Terminal(
                f"Secret {namespace}/{KEY_SECRET} has no usable `key`: delete it, a new one is made"
            ) from error

    async def _list(self, kind: str, namespace: str | None, selector: str | None) -> list[Json]:
        items: list[Json] = []
        query = {"limit": "500"} | ({"labelSelector": selector} if selector else {})
        while True:
            page = await self.api.get(path_of(kind, namespace), query)
            items += page.get("items") or []
            token: Any = (page.get("metadata") or {}).get("continue")
            if not token:
                return items
            query["continue"] = token


def _key_secret(namespace: str) -> Json:
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    meta = {"name": KEY_SECRET, "namespace": namespace, "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": {"key": key}}
