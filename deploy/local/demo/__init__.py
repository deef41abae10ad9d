"""The demo: apply, pinned pods, gate, promote, roll back, told step by step."""
