"""One working replica at a time: a Lease, and the process ends when it cannot be renewed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from kubernetes.aio.client import ApiClient
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from numaserve_operator.kube.api import Api

logger = logging.getLogger(__name__)
LEASE_NAME = "numaserve-operator"


async def lead(api: Api, namespace: str, identity: str, work: Callable[[], Awaitable[None]]) -> None:
    """Wait for the Lease, work while holding it, return once it is lost; the caller then exits."""
    client: ApiClient = api._client  # the same connection pool; Api deliberately shows no typed client

    async def started() -> None:
        logger.info("holding lease %s/%s as %s", namespace, LEASE_NAME, identity)
        await work()

    async def stopped() -> None:
        logger.error("lease %s/%s was lost", namespace, LEASE_NAME)

    lock = LeaseLock(LEASE_NAME, namespace, identity, client)
    config = Config(
        lock, lease_duration=15, renew_deadline=10, retry_period=2, onstarted_leading=started, onstopped_leading=stopped
    )
    await LeaderElection(config).run()
