"""`numaserve models`: export, quantize, recommend, bench, samples, hash, verify."""

from __future__ import annotations

import typer

from numaserve_models.cli import artifacts, bench, export, quantize, recommend, samples

app = typer.Typer(no_args_is_help=True, help="Make and check model artifacts.", pretty_exceptions_enable=False)
for group in (export, quantize, recommend, bench, artifacts, samples):
    group.register(app)
