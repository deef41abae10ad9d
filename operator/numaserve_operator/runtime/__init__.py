"""The only kopf import: process, settings, liveness and the thin watch that enqueues keys."""
