"""Pure decisions: a frozen snapshot of the cluster in, a plan out. No I/O, no clock, no randomness."""
