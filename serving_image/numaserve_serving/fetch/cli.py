"""`numaserve fetch` and the init container's `python3 -m numaserve_serving.fetch`."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

DIGEST = re.compile(r"sha256:[a-f0-9]{64}")


def fetch(
    source: Annotated[str, typer.Option(help="hf://, s3://, https://, oci:// or file:///.")],
    digest: Annotated[str, typer.Option("--hash", help="sha256:… that `numaserve models export` printed.")],
    out: Annotated[Path | None, typer.Option(help="Directory the artifact becomes, where no cache is used.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory shared by the pods of a node.")] = None,
    cache_limit: Annotated[str | None, typer.Option(help="Bytes the cache may hold, e.g. 50Gi.")] = None,
    credentials: Annotated[Path | None, typer.Option(help="Directory of a mounted Secret.")] = None,
    secret_name: Annotated[str | None, typer.Option(help="The Secret's name, for messages.")] = None,
) -> None:
    """Fetch an artifact, verified and whole; the directory it lies in is printed last."""
    if not DIGEST.fullmatch(digest):
        raise typer.BadParameter("write sha256: and 64 hexadecimal digits", param_hint="--hash")
    if (out is None) == (cache is None):
        raise typer.BadParameter("name one of --out and --cache")
    # As the first process of a container a signal without a handler would be ignored until the kubelet kills.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    from numaserve_serving.fetch.credentials import forget_environment

    forget_environment()  # before the libraries that would read it are imported
    limit = _limit(cache_limit)
    from numaserve_api.conditions import Reason
    from numaserve_serving.fetch.cache import Cache
    from numaserve_serving.fetch.errors import FetchError
    from numaserve_serving.fetch.fetch import Origin, fetch_cached, fetch_to
    from numaserve_serving.refusal import refuse

    _log()
    origin = Origin(source, credentials, secret_name)
    try:
        place = fetch_cached(Cache(cache, limit), digest, origin) if cache else fetch_to(out or Path(), digest, origin)
    except FetchError as error:
        sys.exit(refuse(error.reason, str(error)))
    except Exception as error:
        # Whatever breaks here must reach the operator as a reason, not as a traceback.
        sys.exit(refuse(Reason.SOURCE_UNREACHABLE, f"{type(error).__name__} while fetching the artifact: {error}"))
    typer.echo(place)


def _log() -> None:
    """JSON lines for a pod; sentences beside the bar for a person."""
    if sys.stderr.isatty():
        logging.basicConfig(level="WARNING", format="%(message)s", force=True)
        return
    from numaserve_serving.logs import configure

    configure()


def _limit(text: str | None) -> int | None:
    from numaserve_api.quantity import parse_bytes

    try:
        limit = parse_bytes(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--cache-limit") from error
    if limit is not None and limit <= 0:
        raise typer.BadParameter("must be above 0", param_hint="--cache-limit")
    return limit


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(fetch)
