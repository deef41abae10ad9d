"""Fetching an artifact from where it lies into a directory: resumed, verified while it streams, whole or not at all."""
