"""Gate results as an annotation: the rollout's memory lives on its ReplicaSet."""

from __future__ import annotations

import json
from datetime import datetime

from numaserve_api.conditions import Reason
from numaserve_api.resource import GateValue, dump
from numaserve_operator.domain.snapshot import GateResult, Verdict


def dump_result(result: GateResult) -> str:
    """A gate result as JSON."""
    document = {
        "key": result.key,
        "verdict": result.verdict.value,
        "reason": result.reason.value,
        "message": result.message,
        "values": [dump(v) for v in result.values],
        "sampleDigest": result.sample_digest,
        "sampleCount": result.sample_count,
        "finishedAt": result.finished_at.isoformat() if result.finished_at else None,
        "attempts": result.attempts,
    }
    return json.dumps(document)


def load_result(text: str | None) -> GateResult | None:
    """A stored gate result; one that cannot be read counts as absent, so the gate runs again."""
    try:
        document = json.loads(text or "")
        finished = document.get("finishedAt")
        return GateResult(
            key=document["key"],
            verdict=Verdict(document["verdict"]),
            reason=Reason(document["reason"]),
            message=document["message"],
            values=tuple(GateValue.model_validate(v) for v in document["values"]),
            sample_digest=document["sampleDigest"],
            sample_count=document["sampleCount"],
            finished_at=datetime.fromisoformat(finished) if finished else None,
            attempts=document["attempts"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
