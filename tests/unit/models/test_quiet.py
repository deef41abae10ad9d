"""Nothing is reported to anybody: neither importing nor converting reaches for the telemetry package."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import {package}, openvino, nncf
from openvino.tools.ovc import telemetry_utils
print(telemetry_utils.tm.__name__)
print(any(name.startswith("openvino_telemetry.") for name in __import__("sys").modules))
"""


@pytest.mark.parametrize("package", ["numaserve_models", "numaserve_serving"])
def test_the_telemetry_of_the_runtime_is_never_loaded(package: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SCRIPT.format(package=package)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["openvino.tools.ovc.telemetry_stub", "False"]
