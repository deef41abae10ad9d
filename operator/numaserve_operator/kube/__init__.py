"""The only API I/O: reading, watching, server-side apply, events, the Lease."""
