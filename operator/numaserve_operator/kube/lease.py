"""One working replica at a time: a Lease, and the process ends when it cannot be renewed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from numaserve_operator.kube.api import Api

logger = logging.getLogger(__name__)
LEASE_NAME = "numaserve-operator"
LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS = 15, 10, 2
CALL_SECONDS = 3
"""Longest wait for one call: the client's own five minutes would outlast the Lease."""
_UNREACHABLE = (TimeoutError, aiohttp.ClientError, OSError)


class _Lock(LeaseLock):  # type: ignore[misc]
    """The client's Lease lock, mended: its `create` passes a query the client itself refuses (seen in
    kubernetes 37.0.2), and an API server that does not answer for a moment must not end the election."""

    async def get(self, name: str, namespace: str) -> Any:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await super().get(name, namespace)
        except _UNREACHABLE as error:
            return False, ApiException(status=0, reason=f"{type(error).__name__} {error}")

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self.api_instance.create_namespaced_lease(namespace, body)
        except (ApiException, *_UNREACHABLE):
            logger.exception("lease %s/%s was not created", namespace, name)
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return bool(await super().update(name, namespace, updated_record))
        except _UNREACHABLE as error:
            logger.warning("lease %s/%s was not renewed: %s", namespace, name, error)
            return False


async def lead(api: Api, namespace: str, identity: str, work: Callable[[], Awaitable[None]]) -> None:
    """Wait for the Lease, work while holding it, return once it is lost or work has ended; the caller then exits.

    Raises what `work` raises: a leader that does not work must not keep the Lease.
    """
    client: ApiClient = api.client
    working: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def started() -> None:
        logger.info("holding lease %s/%s as %s", namespace, LEASE_NAME, identity)
        try:
            await work()
        except Exception as error:
            if not working.done():
                working.set_exception(error)
            return
        if not working.done():
            working.set_result(None)

    async def stopped() -> None:
        logger.error("lease %s/%s was lost", namespace, LEASE_NAME)

    lock = _Lock(LEASE_NAME, namespace, identity, client)
    config = Config(
        lock,
        lease_duration=LEASE_SECONDS,
        renew_deadline=RENEW_SECONDS,
        retry_period=RETRY_SECONDS,
        onstarted_leading=started,
        onstopped_leading=stopped,
    )
    election = asyncio.create_task(LeaderElection(config).run(), name="lease")
    try:
        await asyncio.wait([election, working], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        election.cancel()
        await asyncio.gather(election, return_exceptions=True)
