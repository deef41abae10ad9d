"""The Protocol every runtime implements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]


class BackendError(RuntimeError):
    """The runtime cannot load or run a model; the message says what and what to do."""


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """What a model is compiled with. All of it is explicit: no runtime picks a precision or a thread count for us."""

    threads: int
    precision: Literal["f32", "bf16"]
    dynamic_group: int = 0
    pin: bool = False
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What the runtime says it really does. ``fingerprint`` sums up operations, precisions and kernels."""

    threads: int
    precision: str
    fingerprint: str
    version: str
    cached: bool


@dataclass(frozen=True, slots=True)
class Execution:
    """One kind of operation as the runtime executes it: ``count`` operations in this precision by this kernel.

    Kernel names carry the instruction set, e.g. ``brgemm_avx512_vnni``; precision and kernel are the runtime's words.
    """

    operation: str
    precision: str
    primitive: str
    count: int
    heavy: bool


class Backend(Protocol):
    """A compiled model."""

    @property
    def facts(self) -> BackendFacts:
        """Read back from the runtime; call it after a first inference, which chooses the kernels."""
        ...

    def infer(self, ids: Ids, mask: Ids) -> Vectors:
        """Vectors [batch, dimension] of token ids [batch, length]; mask is 1 for tokens and 0 for padding.

        Safe to call from several threads. Raises BackendError.
        """
        ...
