"""List-watches that turn changes of children into keys of their parents.

Each event is reduced to a key as it is decoded; nothing is cached here, because a reconcile reads
live. What a lost watch missed, the list at its next start brings.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from numaserve_api import names
from numaserve_operator.domain.errors import OperatorError
from numaserve_operator.kube.api import Api, Gone, Json, path_of

logger = logging.getLogger(__name__)
WATCH_SECONDS = 240
MAX_BACKOFF_SECONDS = 30.0

KeyOf = Callable[[Json], str | None]


def parent_key(raw: Json) -> str | None:
    """namespace/name of the resource a labelled child belongs to."""
    meta = raw.get("metadata") or {}
    labels = meta.get("labels") or {}
    name = labels.get(names.LABEL_NAME) or labels.get("kubernetes.io/service-name")
    return f"{meta.get('namespace')}/{name}" if name else None


def own_key(raw: Json) -> str | None:
    """namespace/name of an object itself."""
    meta = raw.get("metadata") or {}
    return f"{meta['namespace']}/{meta['name']}" if "name" in meta else None


@dataclass
class Watch:
    """One kind, one selector: enqueues the key of every object that appears, changes or goes."""

    api: Api
    kind: str
    namespace: str | None
    selector: str | None
    key_of: KeyOf
    enqueue: Callable[[str], None]
    last_progress: float = field(default_factory=time.monotonic)
    failures: int = 0

    async def run(self) -> None:
        """List and watch for ever; backs off while the API server does not answer."""
        while True:
            try:
                await self._cycle()
            except Gone:
                logger.info("watch of %s is too old, listing again", self.kind)
            except OperatorError as error:
                self.failures += 1
                pause = min(2.0 ** min(self.failures, 8), MAX_BACKOFF_SECONDS) * random.uniform(0.5, 1.0)  # noqa: S311
                logger.warning("watch of %s failed, again in %.1f s: %s", self.kind, pause, error)
                await asyncio.sleep(pause)

    async def _cycle(self) -> None:
        version = await self._list()
        self.failures = 0
        while True:
            async for event in self.api.watch(path_of(self.kind, self.namespace), self._query(version), WATCH_SECONDS):
                self.last_progress = time.monotonic()
                version = event["object"]["metadata"].get("resourceVersion", version)
                if event["type"] != "BOOKMARK":
                    self._tell(event["object"])
            self.last_progress = time.monotonic()

    async def _list(self) -> str:
        query = {"limit": "500"} | ({"labelSelector": self.selector} if self.selector else {})
        while True:
            page = await self.api.get(path_of(self.kind, self.namespace), query)
            self.last_progress = time.monotonic()
            for item in page.get("items") or ():
                self._tell(item)
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return str(meta.get("resourceVersion", ""))
            query["continue"] = meta["continue"]

    def _query(self, version: str) -> dict[str, str]:
        return {"resourceVersion": version} | ({"labelSelector": self.selector} if self.selector else {})

    def _tell(self, raw: Json) -> None:
        key = self.key_of(raw)
        if key:
            self.enqueue(key)


def child_watches(api: Api, namespace: str | None, enqueue: Callable[[str], None]) -> list[Watch]:
    """Watches of everything a resource's state is read from, beside the resource itself."""
    ours = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
    watches = [
        Watch(api, kind, namespace, ours, parent_key, enqueue)
        for kind in ("ReplicaSet", "Pod", "Service", "ConfigMap", "NetworkPolicy")
    ]
    # The EndpointSlice controller copies the Service's labels.
    watches.append(Watch(api, "EndpointSlice", namespace, ours, parent_key, enqueue))
    return watches
