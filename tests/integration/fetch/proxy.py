"""A TLS proxy on loopback that breaks one connection in the middle of an answer."""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from localcluster.certs import Pair

_RANGE = re.compile(rb"^range: bytes=(\d+)-", re.IGNORECASE | re.MULTILINE)


@dataclass
class DroppingProxy:
    """Decrypts, passes on, and cuts once after ``cut`` bytes of one connection's answer.

    ``ranges`` are the first bytes of the ranges asked for, ``cuts`` how often it cut.
    """

    upstream: int
    cut: int
    certificate: Pair
    context: ssl.SSLContext | None
    """How the upstream on 127.0.0.1 is spoken to; None for plain text."""
    port: int = 0
    cuts: int = 0
    ranges: list[int] = field(default_factory=list)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both directions of one connection until either side ends."""
        writers = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.upstream, ssl=self.context)
            writers.append(server_writer)
            directions = [self._up(reader, server_writer), self._down(server_reader, writer)]
            tasks = [asyncio.create_task(direction) for direction in directions]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:
            pass  # the upstream is not there, or refuses: the client sees its connection end
        finally:
            for each in writers[1:]:
                each.transport.abort()  # it may have more to send than anybody will read
            writer.close()
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 2)
            writer.transport.abort()
            await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            self.ranges += [int(start) for start in _RANGE.findall(data)]
            writer.write(data)
            await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed = 0
        while data := await reader.read(65_536):
            passed += len(data)
            if passed > self.cut and not self.cuts:
                self.cuts += 1
                writer.transport.abort()
                return
            writer.write(data)
            await writer.drain()


@contextmanager
def dropping(
    upstream: int, cut: int, certificate: Pair, context: ssl.SSLContext | None = None
) -> Iterator[DroppingProxy]:
    """The proxy, in a thread with an event loop of its own."""
    proxy = DroppingProxy(upstream, cut, certificate, context)
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        offered = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        offered.load_cert_chain(certificate.cert, certificate.key)
        server = await asyncio.start_server(proxy.connection, "127.0.0.1", 0, ssl=offered)
        proxy.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
