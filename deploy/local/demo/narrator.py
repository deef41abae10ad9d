"""Telling the story: headings, claims that are checked, and how long each step took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table


class StoryError(RuntimeError):
    """A step did not show what it says."""


@dataclass
class Narrator:
    """Rich text in a terminal, plain lines elsewhere."""

    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    times: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def chapter(self, title: str, text: str) -> Iterator[None]:
        """A step of the story, timed."""
        begin = time.monotonic()
        number = len(self.times) + 1
        if self.console.is_terminal:
            self.console.print(Panel(text, title=f"{number}. {title}", title_align="left", border_style="cyan"))
        else:
            self.console.print(f"\n== {number}. {title}\n{text}")
        yield
        self.times.append((title, time.monotonic() - begin))

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A smaller step: a spinner in a terminal, a line with its time afterwards."""
        begin = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(f"{title} …"):
                yield
        else:
            yield
        self.console.print(f"  [green]✓[/] {title} [dim]{time.monotonic() - begin:.1f} s[/]")

    def claim(self, holds: bool, text: str) -> None:
        """Something the story says, checked. Raises StoryError when it is not so."""
        if not holds:
            self.console.print(f"  [red]✗ {text}[/]")
            raise StoryError(text)
        self.console.print(f"  [green]✓[/] {text}")

    def say(self, text: str) -> None:
        """A remark."""
        self.console.print(f"  {text}")

    def show(self, command: str, output: str) -> None:
        """A command and what it printed."""
        self.console.print(f"  [bold]$ {command}[/]")
        if self.console.is_terminal:
            self.console.print(Syntax(output.rstrip(), "text", theme="ansi_dark", word_wrap=True))
        else:
            self.console.print("\n".join(f"    {line}" for line in output.rstrip().splitlines()), markup=False)

    def summary(self) -> None:
        """How long each chapter took."""
        table = Table("step", "seconds", title="demo")
        for title, seconds in self.times:
            table.add_row(title, f"{seconds:.1f}")
        table.add_row("[bold]all[/]", f"[bold]{sum(s for _, s in self.times):.1f}[/]")
        self.console.print(table)
