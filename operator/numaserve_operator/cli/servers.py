"""Artifact directories served on loopback for the length of a comparison: started, proved ready, always ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from numaserve_api import names
from numaserve_api.manifest import CONFIG_FILE, MANIFEST_FILE

SERVER_MODULE = "numaserve_serving.cli"
"""`numaserve serve` as a process of its own: the operator never imports the server."""
LOOPBACK = "127.0.0.1"
START_SECONDS = 600.0
"""A large graph on few cores compiles and warms for minutes."""
STOP_SECONDS = 15.0
LOG_LINES = 20


class CompareError(RuntimeError):
    """A side that cannot be compared; the message says which, why and the remedy. ``log`` is its server's last words."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, slots=True)
class LocalServer:
    """One server process: where its probe port listens, and the token that opens it."""

    directory: Path
    probe_port: int
    token: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def failure(self) -> CompareError | None:
        """Why the process ended; None while it lives."""
        code = self.process.poll()
        if code is None:
            return None
        log = "\n".join(_read(self.folder / "log").splitlines()[-LOG_LINES:])
        try:
            told = json.loads(_read(self.folder / "termination"))
            return CompareError(f"{self.directory} cannot be served: {told['reason']}: {told['message']}", log)
        except (ValueError, KeyError, TypeError):
            return CompareError(f"{self.directory} cannot be served: its server ended with exit code {code}", log)


def check_directory(directory: Path) -> None:
    """Raises CompareError where a directory is no artifact; the server itself checks everything else."""
    if not directory.is_dir():
        raise CompareError(
            f"{directory} does not exist: name an artifact directory or http://HOST:PORT of a probe port"
        )
    for name in (MANIFEST_FILE, CONFIG_FILE):
        if not (directory / name).is_file():
            raise CompareError(
                f"{directory} has no {name}: it is no artifact directory; make one with `numaserve models export`"
            )


@contextlib.asynccontextmanager
async def serving(directories: dict[str, Path]) -> AsyncIterator[dict[str, LocalServer]]:
    """Servers of directories by revision name, ended however the block ends. Raises CompareError."""
    servers: dict[str, LocalServer] = {}
    with tempfile.TemporaryDirectory(prefix="numaserve-compare-") as temporary:
        ports = iter(_free_ports(2 * len(directories)))
        try:
            for revision, directory in directories.items():
                folder = Path(temporary) / revision
                folder.mkdir()
                servers[revision] = _start(directory, revision, folder, (next(ports), next(ports)))
            yield servers
        finally:
            _stop([server.process for server in servers.values()])


def _start(directory: Path, revision: str, folder: Path, ports: tuple[int, int]) -> LocalServer:
    from numaserve_operator.gates.client import token_digest  # with it comes httpx, which only this verb needs

    token = secrets.token_hex(16)
    environment = {
        **os.environ,
        names.ENV_REVISION: revision,
        names.ENV_PROBE_TOKEN_DIGEST: token_digest(token),
        names.ENV_TERMINATION_LOG: str(folder / "termination"),
    }
    command = [sys.executable, "-m", SERVER_MODULE, str(directory), "--host", LOOPBACK, "--port", str(ports[0])]
    command += ["--probe-port", str(ports[1]), "--cache", str(folder / "cache")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return LocalServer(directory, ports[1], token, folder, process)


async def wait_ready(server: LocalServer, ready: Callable[[], Awaitable[bool]], seconds: float = START_SECONDS) -> None:
    """Ask ``ready`` until it says yes. Raises CompareError when the process ends or takes too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not await ready():
                if failure := server.failure:
                    raise failure
                await asyncio.sleep(0.1)
            return
    log = "\n".join(_read(server.folder / "log").splitlines()[-LOG_LINES:])
    raise CompareError(f"{server.directory} was not ready within {seconds:.0f} s", log)


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports nobody listens on, all different: they are held until every one is known."""
    with contextlib.ExitStack() as held:
        found = [held.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in found]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
