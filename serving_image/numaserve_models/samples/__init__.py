"""Sample sets: read, chosen, checked for personal data, named by a digest; and the set every export can fall back on."""

from __future__ import annotations

from numaserve_models.samples.builtin import sample_texts
from numaserve_models.samples.digest import samples_digest

__all__ = ["sample_texts", "samples_digest"]
