"""Thread counts of the libraries, set before they are imported: no more runnable threads than cores."""

from __future__ import annotations

import os

_SINGLE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "RAYON_RS_NUM_THREADS")


def limit_library_threads() -> None:
    """Keep numpy and the tokenizer to one thread; inference threads are set on the model itself."""
    for name in _SINGLE:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
