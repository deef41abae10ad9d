"""The numaserve server: one process, one model, the cores it was given."""
