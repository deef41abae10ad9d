"""The numaserve server: one process, one model, the cores it was given."""

from __future__ import annotations

import sys

# OpenVINO and NNCF report their use to their makers, asked or not, unless this package cannot be imported.
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
