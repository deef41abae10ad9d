"""What container runtimes keep outside the folders they are given, found by what it says about our folders."""

from __future__ import annotations

from pathlib import Path

CNI_RESULTS = Path("/var/lib/cni/results")
"""libcni's cache; containerd has no setting for its place."""


def remove_cni_results(run: Path, results: Path = CNI_RESULTS) -> None:
    """Forget the addresses given to pods whose network namespaces lie below ``run``."""
    for file in _files(results):
        if f'"{run}/' in _text(file):
            file.unlink(missing_ok=True)


def remove_shim_sockets(run: Path) -> None:
    """Remove the sockets of ended shims: containerd puts them in one folder for the whole machine.

    Each task's folder holds a file `address` that says where its shim listens.
    """
    for file in run.glob("*/state/io.containerd.runtime.v2.task/*/*/address"):
        address = _text(file).strip().removeprefix("unix://")
        if address:
            Path(address).unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""  # another cluster's pod went away while we looked
