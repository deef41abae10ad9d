"""Replica arithmetic: how many pods may exist, and how many must serve, at any moment."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from numaserve_api.resource import EncoderDeploymentSpec, Rollout


@dataclass(frozen=True, slots=True)
class Scale:
    """``desired`` pods; at most ``desired + surge`` alive; at least ``floor`` of them serving."""

    desired: int
    surge: int
    floor: int

    @property
    def limit(self) -> int:
        """Pods that may be alive at once, over all revisions."""
        return self.desired + self.surge


def scale_of(spec: EncoderDeploymentSpec) -> Scale:
    """Resolve maxSurge (percentages round up) and maxUnavailable (round down), as Deployments do."""
    rollout = spec.rollout or Rollout()
    surge = _resolve(rollout.max_surge, spec.replicas, math.ceil)
    unavailable = _resolve(rollout.max_unavailable, spec.replicas, math.floor)
    return Scale(spec.replicas, max(surge, 1), max(spec.replicas - unavailable, 0))


def _resolve(value: int | str, replicas: int, rounding: Callable[[float], int]) -> int:
    if isinstance(value, int):
        return value
    return rounding(int(value.removesuffix("%")) * replicas / 100)
