"""Talking to the probe port of a server pod."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import Protocol, TypeVar

import httpx

from numaserve_api import names
from numaserve_api.base import Lenient
from numaserve_api.probe import (
    MAX_PAGE,
    PATH_DRAIN,
    PATH_GATE,
    PATH_PLACEMENT,
    PATH_REFERENCE,
    PATH_SAMPLES,
    GateAnswer,
    GateQuery,
    PlacementReport,
    SamplePage,
    VectorPage,
)
from numaserve_operator.domain.errors import Transient
from numaserve_operator.domain.plan import PodTarget

Answer = TypeVar("Answer", bound=Lenient)
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class ProbeClient(Protocol):
    """What the operator asks a pod. Every method raises Transient when the pod gives no usable answer."""

    async def placement(self, pod: PodTarget, token: str, seconds: float = 2.0) -> PlacementReport:
        """The pod's own view of its cores and its model."""
        ...

    async def samples(self, pod: PodTarget, token: str, offset: int) -> SamplePage:
        """A page of the artifact's sample texts."""
        ...

    async def reference(self, pod: PodTarget, token: str, offset: int) -> VectorPage:
        """A page of the artifact's FP32 vectors; ``total`` 0 when it has none."""
        ...

    async def gate(self, pod: PodTarget, token: str, query: GateQuery) -> GateAnswer:
        """Vectors of the given texts."""
        ...

    async def drain(self, pod: PodTarget, token: str) -> None:
        """Tell the pod to end its connections."""
        ...


def probe_token(key: bytes, parent_uid: str, revision: str) -> str:
    """The token of one revision: HMAC-SHA256 of the operator's key. The pod holds only its digest."""
    return hmac.new(key, f"{parent_uid}/{revision}".encode(), hashlib.sha256).hexdigest()


def token_digest(token: str) -> str:
    """What the pod is given: SHA-256 hex of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


class HttpProbe:
    """ProbeClient over HTTP to the pod's address."""

    def __init__(self, port: int = names.PROBE_PORT, gate_seconds: float = 60.0) -> None:
        self._port = port
        self._gate_seconds = gate_seconds
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=0)
        self._client = httpx.AsyncClient(limits=limits, trust_env=False, follow_redirects=False)

    async def close(self) -> None:
        """Close the connection pool."""
        await self._client.aclose()

    async def placement(self, pod: PodTarget, token: str, seconds: float = 2.0) -> PlacementReport:
        return await self._get(pod, token, PATH_PLACEMENT, PlacementReport, seconds=seconds)

    async def samples(self, pod: PodTarget, token: str, offset: int) -> SamplePage:
        return await self._get(pod, token, f"{PATH_SAMPLES}?offset={offset}&limit={MAX_PAGE}", SamplePage)

    async def reference(self, pod: PodTarget, token: str, offset: int) -> VectorPage:
        return await self._get(pod, token, f"{PATH_REFERENCE}?offset={offset}&limit={MAX_PAGE}", VectorPage)

    async def gate(self, pod: PodTarget, token: str, query: GateQuery) -> GateAnswer:
        body = query.model_dump(by_alias=True)
        return await self._ask(pod, token, "POST", PATH_GATE, GateAnswer, body, self._gate_seconds)

    async def drain(self, pod: PodTarget, token: str) -> None:
        await self._send(pod, token, "POST", PATH_DRAIN, None, 3.0)

    async def _get(self, pod: PodTarget, token: str, path: str, kind: type[Answer], seconds: float = 15.0) -> Answer:
        return await self._ask(pod, token, "GET", path, kind, None, seconds)

    async def _ask(
        self, pod: PodTarget, token: str, method: str, path: str, kind: type[Answer], body: object, seconds: float
    ) -> Answer:
        content = await self._send(pod, token, method, path, body, seconds)
        try:
            return kind.model_validate_json(content)
        except ValueError as error:
            raise Transient(
                f"pod {pod.name} answered {path} with something that is no {kind.__name__}: {error}"
            ) from error

    async def _send(self, pod: PodTarget, token: str, method: str, path: str, body: object, seconds: float) -> bytes:
        host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
        url = f"http://{host}:{self._port}{path}"
        headers = {"Authorization": f"Bearer {token}"}
        headers["Accept-Encoding"] = "identity"
        try:
            # httpx counts each read by itself: a pod that drips bytes must not hold a reconcile.
            async with asyncio.timeout(seconds):
                answer = await self._client.request(method, url, headers=headers, json=body, timeout=seconds)
        except (httpx.HTTPError, TimeoutError) as error:
            raise Transient(
                f"pod {pod.name} does not answer on its probe port: {type(error).__name__} {error}"
            ) from error
        if answer.status_code >= 300:
            raise Transient(f"pod {pod.name} answered {path} with HTTP {answer.status_code}: {answer.text[:200]}")
        if len(answer.content) > MAX_ANSWER_BYTES:
            raise Transient(f"pod {pod.name} answered {path} with {len(answer.content)} bytes, too many to be true")
        return answer.content
