"""CPU sets in the kernel's list format: "0-3,8", with strides "0-31:2" and groups "0-31:1/2".

Source: Linux Documentation/admin-guide/kernel-parameters.rst, "cpu lists".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+)(?:/([0-9]+))?)?)?")
MAX_CPU = 65_535
"""Above any kernel's NR_CPUS: a corrupt file must not make us allocate without bound."""


def parse_cpus(text: str) -> frozenset[int]:
    """The CPUs of a kernel list; the empty list gives the empty set.

    Raises ValueError naming the part that is not understood.
    """
    cpus: set[int] = set()
    for part in (p.strip() for p in text.replace("\x00", "").strip().split(",")):
        if part:
            cpus.update(_expand(part, text))
    return frozenset(cpus)


def _expand(part: str, whole: str) -> Iterable[int]:
    match = _PART.fullmatch(part)
    if not match:
        raise ValueError(
            f"{part!r} in the CPU list {whole!r} is neither a CPU nor a range such as 0-3, 0-30:2 or 0-31:1/2"
        )
    first, last, used, group = (int(g) if g else None for g in match.groups())
    assert first is not None  # noqa: S101 -- the pattern requires it
    last = first if last is None else last
    if last < first or last > MAX_CPU:
        raise ValueError(f"{part!r} in the CPU list {whole!r} must ascend and stay below {MAX_CPU + 1}")
    if used is None:
        return range(first, last + 1)
    if group is None:
        used, group = 1, used
    if group == 0 or used > group:
        raise ValueError(f"{part!r} in the CPU list {whole!r} has an impossible group")
    return (cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)


def format_cpus(cpus: Iterable[int]) -> str:
    """Kernel list format of a set of CPUs: {0, 1, 2, 8} gives "0-2,8"."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
