"""`python -m numaserve_models`: the verbs of `numaserve models`, where the command itself is not installed."""

from __future__ import annotations

from numaserve_models.cli import app

app(prog_name="numaserve models")
