"""Tests on a real API server."""
