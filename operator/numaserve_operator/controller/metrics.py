"""The operator's own Prometheus metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
RECONCILES = Counter("numaserve_operator_reconciles", "Reconciles by outcome.", ["outcome"], registry=REGISTRY)
SECONDS = Histogram("numaserve_operator_reconcile_seconds", "Duration of a reconcile.", registry=REGISTRY)
QUEUE = Gauge("numaserve_operator_queue_keys", "Keys waiting in the work queue.", registry=REGISTRY)
WRITES = Counter("numaserve_operator_writes", "Writes to the API server by kind.", ["kind"], registry=REGISTRY)
GATES = Counter("numaserve_operator_gate_runs", "Finished gate runs by verdict.", ["verdict"], registry=REGISTRY)
