"""One process: load in the background while both ports already answer, serve, drain, end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from numaserve_api import names
from numaserve_serving.engine.engine import Engine
from numaserve_serving.engine.errors import StartupError
from numaserve_serving.engine.startup import load
from numaserve_serving.fetch.lease import hold
from numaserve_serving.http.middleware import App
from numaserve_serving.http.probe import probe_app
from numaserve_serving.http.serving import serving_app
from numaserve_serving.http.state import ServerState
from numaserve_serving.refusal import refuse

logger = logging.getLogger("numaserve")
LAME_DUCK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Ports:
    """Where to listen. ``probe`` 0 leaves the probe port closed."""

    host: str = "0.0.0.0"  # noqa: S104 -- inside a pod every interface is the pod's own
    serving: int = names.SERVING_PORT
    probe: int = names.PROBE_PORT
    grace_seconds: int = 25


def run(state: ServerState, artifact: Path, cache: Path | None, ports: Ports) -> int:
    """Serve until told to stop; the exit code. Refusals are written to the termination log."""
    hold(artifact)  # given back by the kernel, however this process ends
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(state, artifact, cache, ports))


async def _serve(state: ServerState, artifact: Path, cache: Path | None, ports: Ports) -> int:
    serving = _server(serving_app(state), ports, ports.serving)
    servers = [serving] + ([_server(probe_app(state), ports, ports.probe)] if ports.probe else [])
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listening = [asyncio.create_task(server.serve()) for server in servers]
    code = 0
    loading = asyncio.create_task(_load(state, artifact, cache, serving))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            loading.result()
            await asyncio.wait([stopping, *listening], return_when=asyncio.FIRST_COMPLETED)
    except StartupError as error:
        code = refuse(error.reason, str(error))
    await _drain(state, servers, listening)
    if not loading.done():
        # A thread that still compiles cannot be cancelled, and waiting for it would hold exclusive cores.
        os._exit(code)
    return code


def _server(app: App | Any, ports: Ports, port: int) -> uvicorn.Server:
    config = uvicorn.Config(
        app, host=ports.host, port=port, log_config=None, access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=ports.grace_seconds, timeout_keep_alive=75, http="httptools", backlog=2048,
    )  # fmt: skip
    return _Server(config)


class _Server(uvicorn.Server):
    """A server whose signals are handled by us: there are two of them in one process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _load(state: ServerState, artifact: Path, cache: Path | None, serving: uvicorn.Server) -> None:
    def progress(step: str) -> None:
        state.step = step
        logger.info(step)

    loaded = await asyncio.to_thread(load, state.config, artifact, cache, progress, state.identity.cpus)
    engine = Engine(loaded.backend, loaded.tokenizer, state.config.window.max_tokens, state.metrics)
    engine.start()
    state.loaded, state.engine, state.step = loaded, engine, "ready"
    state.metrics.info.info(
        {
            "revision": state.identity.revision,
            "space": state.space,
            "precision": loaded.facts.precision,
            "threads": str(loaded.facts.threads),
            "fingerprint": loaded.facts.fingerprint,
        }
    )
    logger.info("ready: %s threads, %s, %s", loaded.facts.threads, loaded.facts.precision, loaded.facts.fingerprint)
    asyncio.get_running_loop().create_task(_count_connections(state, serving))


async def _count_connections(state: ServerState, serving: uvicorn.Server) -> None:
    while True:
        state.connections = len(serving.server_state.connections)
        await asyncio.sleep(0.2)


async def _drain(state: ServerState, servers: list[uvicorn.Server], listening: list[asyncio.Task[None]]) -> None:
    """Not ready, finish what was accepted, close."""
    state.draining = True
    if state.engine:
        # Connections the kernel has already taken for us still get their answer, and are told to close.
        await asyncio.sleep(LAME_DUCK_SECONDS)
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*listening, return_exceptions=True)
    if state.engine:
        await state.engine.close()
