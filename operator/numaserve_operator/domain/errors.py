"""The error tree of the operator. Library errors are wrapped once, at the edge that meets them.

::

    OperatorError
    ├── Transient     the API server or a pod did not answer: back off and try again
    ├── Conflict      somebody else wrote first: read again, decide again
    ├── Terminating   the namespace is going away: stop quietly
    └── Terminal      trying again cannot help: say so in a condition and wait for a change
"""

from __future__ import annotations


class OperatorError(Exception):
    """Base of every error the operator raises on purpose."""


class Transient(OperatorError):
    """A failure that time may cure."""


class Conflict(OperatorError):
    """A write that lost against a newer one."""


class Terminating(OperatorError):
    """The namespace is being deleted."""


class Terminal(OperatorError):
    """A failure that only a person can cure."""
