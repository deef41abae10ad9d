"""The `numaserve` command."""
