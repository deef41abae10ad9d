"""Failures a person can act on: what could not be done, where, and what to try."""

from __future__ import annotations


class ClusterError(RuntimeError):
    """A step of the local cluster failed; the message says which, why and what to look at."""
