"""Making and checking model artifacts offline: export, quantise, hash, verify."""
