"""The ladder of runtimes and schemes on this CPU: what each step buys a model owner, and what it costs in accuracy."""
