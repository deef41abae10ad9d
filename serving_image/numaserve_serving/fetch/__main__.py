"""Entry point of the init container: `python3 -m numaserve_serving.fetch --source … --hash … --out …`."""

from __future__ import annotations

from numaserve_serving.fetch.cli import app

if __name__ == "__main__":
    app()
