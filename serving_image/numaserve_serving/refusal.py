"""Saying why something will not be served, where the operator reads it."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from numaserve_api import names
from numaserve_api.conditions import Reason
from numaserve_api.probe import StartupFailure

logger = logging.getLogger("numaserve")
EXIT_REFUSED = 78
"""sysexits.h EX_CONFIG: what this container was given cannot be served, a restart alone will not help."""


def refuse(reason: Reason, message: str) -> int:
    """Log the refusal and write it to the container's termination log; the exit code."""
    logger.error("%s: %s", reason, message)
    failure = StartupFailure(reason=reason.value, message=message[:3000])
    path = Path(os.environ.get(names.ENV_TERMINATION_LOG, names.TERMINATION_LOG))
    if names.ENV_TERMINATION_LOG not in os.environ and not path.exists():
        return EXIT_REFUSED  # not in a container: a kubelet makes the file before it starts one
    try:
        path.write_text(json.dumps(failure.model_dump(by_alias=True)))
    except OSError as error:
        logger.error("the termination log %s cannot be written: %s", path, error)
    return EXIT_REFUSED
