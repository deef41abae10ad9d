"""Probing pods and comparing revisions."""
