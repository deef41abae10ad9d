"""Which scheme, activation hint and thread count to deploy on this CPU: measured under stated bounds."""

from __future__ import annotations

from numaserve_models.recommend.request import RecommendRequest
from numaserve_models.recommend.work import recommend

__all__ = ["RecommendRequest", "recommend"]
