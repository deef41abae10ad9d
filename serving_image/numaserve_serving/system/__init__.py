"""Readings of cores, memory and limits from /proc, /sys and cgroups; roots are injected."""
