"""From API objects to the frozen views decisions use; every field may be missing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from numaserve_api import names
from numaserve_api.resource import Phase
from numaserve_api.validate import InvalidDocument, parse_spec
from numaserve_operator.domain.snapshot import ParentView, PodView, RevisionView, Role, ServiceView
from numaserve_operator.kube.results import load_result

Json = Mapping[str, Any]
_EPOCH = datetime.fromtimestamp(0, UTC)
_STATUSES = ("containerStatuses", "initContainerStatuses")


def parse_time(text: str | None) -> datetime | None:
    """An RFC 3339 or ISO time as aware UTC; None when absent or unreadable."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def parent(raw: Json) -> ParentView:
    """The resource; a spec that does not parse is told, not raised."""
    meta = raw["metadata"]
    spec, fault = None, None
    unsupported: tuple[str, ...] = ()
    try:
        spec = parse_spec(raw)
    except InvalidDocument as error:
        fault = str(error)
        unsupported = tuple(p for p in error.problems if "not supported yet" in p)
    return ParentView(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        generation=meta.get("generation", 0),
        resource_version=meta["resourceVersion"],
        spec=spec,
        spec_error=fault,
        unsupported=unsupported,
        annotations=dict(meta.get("annotations") or {}),
        status=dict(raw.get("status") or {}),
        deleting="deletionTimestamp" in meta,
    )


def owned(raw: Json, uid: str) -> bool:
    """Whether an object is controlled by the resource of this uid."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(o.get("uid") == uid and o.get("controller") for o in owners)


def revision(raw: Json, pods: tuple[PodView, ...], config: dict[str, Any] | None) -> RevisionView | None:
    """A ReplicaSet of ours; None when it carries no revision (not made by us)."""
    meta, spec = raw["metadata"], raw["spec"]
    labels, notes = meta.get("labels") or {}, dict(meta.get("annotations") or {})
    if names.LABEL_REVISION not in labels or "deletionTimestamp" in meta:
        return None
    template_labels = (spec.get("template", {}).get("metadata") or {}).get("labels") or {}
    return RevisionView(
        name=meta["name"],
        uid=meta["uid"],
        revision=labels[names.LABEL_REVISION],
        created=parse_time(meta.get("creationTimestamp")) or _EPOCH,
        role=_role(notes.get(names.ANNOTATION_ROLE)),
        replicas=spec.get("replicas", 0),
        template_serving=template_labels.get(names.LABEL_SERVING) == names.SERVING_TRUE,
        image=notes.get(names.ANNOTATION_IMAGE, ""),
        generation=_whole(notes.get(names.ANNOTATION_GENERATION)),
        space=notes.get(names.ANNOTATION_SPACE),
        applied_hash=notes.get(names.ANNOTATION_APPLIED_HASH),
        annotations={k: v for k, v in notes.items() if k.startswith(f"{names.GROUP}/")},
        outcome=notes.get(names.ANNOTATION_OUTCOME),
        outcome_message=notes.get(names.ANNOTATION_OUTCOME_MESSAGE),
        outcome_at=parse_time(notes.get(names.ANNOTATION_OUTCOME_AT)),
        gates_hash=notes.get(names.ANNOTATION_GATES_HASH),
        gate_result=load_result(notes.get(names.ANNOTATION_GATE_RESULT)),
        promoted_at=parse_time(notes.get(names.ANNOTATION_PROMOTED_AT)),
        phase=_phase(notes.get(names.ANNOTATION_PHASE)),
        phase_since=parse_time(notes.get(names.ANNOTATION_PHASE_SINCE)),
        paused_at=parse_time(notes.get(names.ANNOTATION_PAUSED_AT)),
        replica_failure=_condition(raw, "ReplicaFailure").get("message"),
        config=config,
        pods=pods,
    )


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def _role(text: str | None) -> Role:
    return Role(text) if text in set(Role) else Role.ABANDONED


def _phase(text: str | None) -> Phase | None:
    return Phase(text) if text in set(Phase) else None


def pod(raw: Json, endpoints: frozenset[str]) -> PodView:
    """A pod reduced to what decisions use. ``endpoints`` are uids that serve according to EndpointSlices."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    server: Json = next((c for c in status.get("containerStatuses") or () if c["name"] == names.SERVER_CONTAINER), {})
    init = _unfinished_init(spec, status)
    teller = server if init is None else init
    waiting = (teller.get("state") or {}).get("waiting") or {}
    ended = (teller.get("state") or {}).get("terminated") or (teller.get("lastState") or {}).get("terminated") or {}
    placed = _condition(raw, "PodScheduled")
    return PodView(
        name=meta["name"],
        uid=meta["uid"],
        revision=labels.get(names.LABEL_REVISION, ""),
        created=parse_time(meta.get("creationTimestamp")) or _EPOCH,
        phase=status.get("phase", "Pending"),
        ready=_condition(raw, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in meta,
        serving_label=labels.get(names.LABEL_SERVING) == names.SERVING_TRUE,
        in_endpoints=meta["uid"] in endpoints,
        node=spec.get("nodeName"),
        ip=status.get("podIP"),
        qos_class=status.get("qosClass"),
        reason=status.get("reason"),
        message=status.get("message"),
        scheduled=bool(spec.get("nodeName")),
        unscheduled_reason=placed.get("reason") if placed.get("status") == "False" else None,
        unscheduled_message=placed.get("message") if placed.get("status") == "False" else None,
        initializing=init["name"] if init else None,
        waiting_reason=waiting.get("reason"),
        waiting_message=waiting.get("message"),
        terminated_reason=ended.get("reason"),
        terminated_message=ended.get("message"),
        exit_code=ended.get("exitCode"),
        restarts=teller.get("restartCount", 0),
        containers=tuple(c["name"] for kind in ("initContainers", "containers") for c in spec.get(kind) or ()),
        started=any("containerID" in c for kind in _STATUSES for c in status.get(kind) or ()),
        start_mark=notes.get(names.ANNOTATION_START),
        withdrawn_at=parse_time(notes.get(names.ANNOTATION_WITHDRAWN_AT)),
        drain_told_at=parse_time(notes.get(names.ANNOTATION_DRAIN_TOLD_AT)),
    )


def _unfinished_init(spec: Json, status: Json) -> Json | None:
    """Status of the first init container that has still to succeed; sidecars never do and hold nothing up."""
    sidecars = {c["name"] for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    for found in status.get("initContainerStatuses") or ():
        ended: Json = (found.get("state") or {}).get("terminated") or {}
        if found["name"] not in sidecars and ended.get("exitCode") != 0:
            return dict(found)
    return None


def _condition(raw: Json, kind: str) -> Json:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == kind), {})


def serving_uids(slices: Iterable[Json]) -> frozenset[str]:
    """Uids of pods that EndpointSlices list as ready: kube-proxy sends them requests."""
    return frozenset(
        (endpoint.get("targetRef") or {}).get("uid", "")
        for piece in slices
        for endpoint in piece.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
    )


def service(raw: Json, uid: str) -> ServiceView:
    """A Service of the resource's name."""
    meta = raw["metadata"]
    owners = [f"{o['kind']} {o['name']}" for o in meta.get("ownerReferences") or ()]
    manager = (meta.get("labels") or {}).get(names.LABEL_MANAGED_BY)
    return ServiceView(
        name=meta["name"],
        ours=owned(raw, uid),
        owner=", ".join(owners) or (f"`{manager}`" if manager else "nobody we know (no owner reference)"),
        applied_hash=stamp_of(raw),
    )


def stamp_of(raw: Json) -> str | None:
    """The hash an object was applied with."""
    return (raw["metadata"].get("annotations") or {}).get(names.ANNOTATION_APPLIED_HASH)


def hash_inputs(raw: Json) -> dict[str, Any] | None:
    """The canonical form kept in a revision's ConfigMap."""
    try:
        parsed = json.loads((raw.get("data") or {}).get(names.HASH_INPUTS_KEY, ""))
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None
