"""The numaserve operator: watch, gather, decide (pure), apply."""
