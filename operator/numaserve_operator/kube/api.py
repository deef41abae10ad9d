"""Requests to the API server as plain JSON, with its errors turned into ours once, here.

Raw JSON instead of the client's typed models: a reconcile reads a few fields of a few objects, and
typed models of whole lists cost time and memory for fields nobody uses.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from numaserve_api import names
from numaserve_operator.domain.errors import Conflict, OperatorError, Terminal, Terminating, Transient

Json = dict[str, Any]
REQUEST_SECONDS = 20.0

_PREFIXES = {
    "ReplicaSet": ("apis/apps/v1", "replicasets"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "Event": ("api/v1", "events"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "EndpointSlice": ("apis/discovery.k8s.io/v1", "endpointslices"),
    names.KIND: (f"apis/{names.GROUP}/{names.VERSION}", names.PLURAL),
}


class NotFound(OperatorError):
    """The object does not exist."""


class Gone(OperatorError):
    """The resource version of a watch is too old: list again."""


def path_of(kind: str, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
    """URL path of an object, of a kind in a namespace, or of a kind everywhere."""
    prefix, plural = _PREFIXES[kind]
    parts = [prefix, *(("namespaces", namespace) if namespace else ()), plural, name, subresource]
    return "/" + "/".join(quote(p, safe="/") for p in parts if p)


class Api:
    """One connection pool to one API server."""

    def __init__(self, configuration: Configuration) -> None:
        self._client = ApiClient(configuration)
        self.requests = 0

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> Api:
        """In a pod with its service account, elsewhere with a kubeconfig (the usual places when none is named)."""
        configuration = Configuration()
        if kubeconfig is None:
            try:
                kubernetes_config.load_incluster_config(client_configuration=configuration)
                return cls(configuration)
            except kubernetes_config.ConfigException:
                pass  # not in a pod
        try:
            await kubernetes_config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
        except kubernetes_config.ConfigException as error:
            raise Terminal(f"no cluster to talk to: {error}. Set KUBECONFIG or run inside a pod") from error
        return cls(configuration)

    @property
    def client(self) -> ApiClient:
        """The client underneath, for the library's own helpers."""
        return self._client

    async def close(self) -> None:
        """Close the connection pool."""
        await self._client.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """GET an object or list. Raises NotFound, Transient, …"""
        return await self._call("GET", path, query)

    async def find(self, path: str) -> Json | None:
        """GET an object, None when there is none."""
        try:
            return await self.get(path)
        except NotFound:
            return None

    async def create(self, path: str, body: Json) -> Json:
        """POST an object."""
        return await self._call("POST", path, None, body)

    async def replace(self, path: str, body: Json) -> Json:
        """PUT an object; its resourceVersion guards against lost updates."""
        return await self._call("PUT", path, None, body)

    async def apply(self, path: str, body: Json) -> Json:
        """Server-side apply as the operator, taking over fields of ours that somebody else set."""
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        return await self._call("PATCH", path, query, body, "application/apply-patch+yaml")

    async def patch(self, path: str, body: Json) -> Json:
        """Merge patch; a uid or resourceVersion in the body's metadata is a precondition."""
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._call("PATCH", path, query, body, "application/merge-patch+json")

    async def delete(self, path: str, uid: str | None = None) -> None:
        """DELETE in the background; a missing object is fine, another uid too."""
        body: Json = {"propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", path, None, body)
        except (NotFound, Conflict):
            return

    async def watch(self, path: str, query: Mapping[str, str], seconds: int) -> AsyncIterator[Json]:
        """Events of one watch request, which the server ends after ``seconds``. Raises Gone when too old."""
        asked = {**query, "watch": "true", "timeoutSeconds": str(seconds), "allowWatchBookmarks": "true"}
        answer = await self._request(
            "GET", path, asked, None, None, aiohttp.ClientTimeout(total=None, sock_read=seconds + 15)
        )
        try:
            if answer.status >= 400:
                raise _error("GET", path, answer.status, await answer.read())
            async for line in answer.response.content:
                event: Json = json.loads(line)
                if event.get("type") == "ERROR":
                    status = event.get("object", {})
                    raise _error("WATCH", path, int(status.get("code", 500)), json.dumps(status).encode())
                yield event
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise Transient(f"watch of {path} ended: {type(error).__name__} {error}") from error
        finally:
            answer.response.release()

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Json | None = None,
        content: str | None = None,
    ) -> Json:
        answer = await self._request(method, path, query, body, content, REQUEST_SECONDS)
        try:
            data = await answer.read()
        except (TimeoutError, aiohttp.ClientError) as error:
            raise Transient(f"{method} {path}: {type(error).__name__} {error}") from error
        if answer.status >= 400:
            raise _error(method, path, answer.status, data)
        parsed: Json = json.loads(data) if data else {}
        return parsed

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Json | None,
        content: str | None,
        limit: Any,
    ) -> Any:
        self.requests += 1
        headers = {"Accept": "application/json"} | ({"Content-Type": content} if content else {})
        try:
            parameters = await self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            return await self._client.call_api(*parameters, _request_timeout=limit, _preload_content=False)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Transient(
                f"{method} {path}: the API server does not answer: {type(error).__name__} {error}"
            ) from error
        except ApiException as error:
            raise _error(method, path, int(error.status or 500), str(error.body or error.reason).encode()) from error


def _error(method: str, path: str, status: int, content: bytes) -> OperatorError:
    try:
        document = json.loads(content)
    except ValueError:
        document = {}
    message = f"{method} {path}: {status} {document.get('message') or content[:300].decode(errors='replace')}"
    causes = [c.get("reason") for c in (document.get("details") or {}).get("causes") or ()]
    if "NamespaceTerminating" in causes:
        return Terminating(message)
    if status == 404:
        return NotFound(message)
    if status == 410:
        return Gone(message)
    if status == 409:
        return Conflict(message)
    if status in (408, 429) or status >= 500:
        return Transient(message)
    return Terminal(message)
