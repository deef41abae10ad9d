"""Entry point of `python -m localcluster`."""

from localcluster.cli import main

main()
