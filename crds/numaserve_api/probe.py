"""The probe port of a server pod: what the operator alone may ask, and what the pod answers.

Every request carries ``Authorization: Bearer <token>``; the pod knows only the token's SHA-256.
Paths: ``GET /v1/placement``, ``GET /v1/samples``, ``GET /v1/reference``, ``POST /v1/gate``, ``POST /v1/drain``.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from numaserve_api.base import Lenient, Strict

PATH_PLACEMENT = "/v1/placement"
PATH_SAMPLES = "/v1/samples"
PATH_REFERENCE = "/v1/reference"
PATH_GATE = "/v1/gate"
PATH_DRAIN = "/v1/drain"
MAX_GATE_INPUTS = 256
MAX_PAGE = 1000


class PlacementReport(Lenient):
    """What the server sees of its own cores; facts only, the operator judges.

    CPU sets are in kernel list format ("0-3,8"). ``threads`` is the number the runtime reports
    back, ``threads_requested`` the number asked for.
    """

    revision: str
    artifact: str
    space: str
    ready: bool
    draining: bool = False
    cpuset: str
    online: str
    numa_nodes: list[int]
    physical_cores: int
    shared_sibling_cores: int = 0
    cpus_requested: int | None = None
    threads_requested: int
    threads: int
    cgroup_version: int | None = None
    quota_cpus: float | None = None
    throttled_periods: int | None = None
    mems_allowed: str | None = None
    isa: list[str] = Field(default_factory=list)
    precision: str
    fingerprint: str
    cpu_model: str = ""
    in_flight: int = 0
    open_connections: int = 0
    requests_total: int = 0


class SamplePage(Lenient):
    """A page of the artifact's sample texts."""

    total: int
    offset: int
    digest: str
    texts: list[str]


class VectorPage(Lenient):
    """Vectors: base64 of little-endian float32, row-major [count, dimension]."""

    total: int
    offset: int
    count: int
    dimension: int
    vectors: str


class GateQuery(Strict):
    """Texts to infer for a comparison, all in one batch as the scheduler would form it."""

    inputs: Annotated[list[str], Field(min_length=1, max_length=MAX_GATE_INPUTS)]
    together: bool = True
    """False infers the texts one at a time: the other batching, for the noise floor."""


class GateAnswer(Lenient):
    """Vectors and the facts a comparison needs.

    ``vectors`` is base64 of little-endian float32 [count, dimension]; non-finite values are kept, the
    operator judges them. ``token_digests`` is a short digest of each text's token ids.
    ``inference_seconds`` is the pod's own time for the whole query, queueing excluded.
    """

    revision: str
    space: str
    count: int
    dimension: int
    dtype: str = "float32"
    vectors: str
    token_counts: list[int]
    token_digests: list[str]
    inference_seconds: float


class StartupFailure(Lenient):
    """What a server that refuses to start writes to its termination log, as JSON."""

    reason: str
    message: str
