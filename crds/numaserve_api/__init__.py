"""The contract of numaserve: what users write, what pods answer and what artifacts contain.

Every other package imports this one and it imports none of them, so a name, a field or a
reason is spelled in exactly one place.
"""

from __future__ import annotations

__version__ = "0.1.0"
