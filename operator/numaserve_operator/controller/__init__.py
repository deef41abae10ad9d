"""reconcile(key) and the keyed work queue: gather, decide, apply."""
