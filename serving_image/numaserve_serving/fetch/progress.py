"""How far a fetch is: a bar in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("numaserve")
SECONDS = 5.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
Show = Callable[[int], object]


class Meter:
    """Counts bytes of several threads. ``show`` is told how many of ``total`` are there."""

    def __init__(self, total: int, title: str, show: Show | None = None, clock: Callable[[], float] = time.monotonic):
        self.total = total
        self.here = 0
        self.received = 0
        self._title, self._show, self._clock = title, show, clock
        self._lock = threading.Lock()
        self._started = self._told = clock()

    def found(self, count: int) -> None:
        """Bytes that were there already; negative when they are forgotten."""
        with self._lock:
            self.here += count
            self._tell()

    def arrived(self, count: int) -> None:
        """Bytes that came from the source."""
        with self._lock:
            self.here += count
            self.received += count
            self._tell()

    def _tell(self) -> None:
        if self._show:
            self._show(self.here)
            return
        now = self._clock()
        if now - self._told < SECONDS:
            return
        self._told = now
        logger.info(
            "fetched %s of %s (%d %%) from %s, %s/s",
            size(self.here), size(self.total), 100 * self.here // max(self.total, 1), self._title,
            size(self.received / max(now - self._started, 1e-9)),
        )  # fmt: skip


@contextmanager
def meter(total: int, title: str) -> Iterator[Meter]:
    """A meter for the block."""
    if not sys.stderr.isatty():
        yield Meter(total, title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("fetching", total=total)
        yield Meter(total, title, lambda here: bar.update(task, completed=here))


def size(count: float) -> str:
    """Bytes for people: `1.5 GiB`."""
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes everything")
