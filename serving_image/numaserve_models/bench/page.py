"""The page."""

from numaserve_models.bench.results import Bench


def page(bench: Bench) -> str:
    return ""
