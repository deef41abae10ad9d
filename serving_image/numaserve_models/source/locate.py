"""Where a model comes from: a directory, an ONNX file, an OpenVINO IR, or owner/name@revision on a hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from numaserve_models.errors import ExportError, said
from numaserve_models.source.pointer import refuse_pointer

Kind = Literal["directory", "onnx", "ir"]
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_HUB = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]*/[\w.-]+)@(?P<revision>[\w./-]+)$")
_PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*/config.json", "*/*.safetensors"]


@dataclass(frozen=True, slots=True)
class Location:
    """A source on this machine. ``name`` is how it was asked for; ``revision`` is the hub's commit."""

    path: Path
    kind: Kind
    name: str
    revision: str | None = None


def locate(source: str, trust_remote_code: bool = False) -> Location:
    """Find a source, downloading it from the hub where it is named as owner/name@revision. Raises ExportError."""
    path = Path(source)
    if path.is_dir():
        if not (path / "config.json").is_file() and not (path / "modules.json").is_file():
            _refuse_directory(path)
        return Location(path, "directory", path.resolve().name)
    if path.suffix in (".onnx", ".xml"):
        if not path.is_file():
            raise ExportError(f"{source} does not exist")
        refuse_pointer(path)
        return Location(path, "onnx" if path.suffix == ".onnx" else "ir", path.name)
    if path.suffix in PICKLES and path.is_file():
        raise ExportError(
            f"{source} is a pickle, which executes code when it is read, and is refused: give the model's directory with "
            "safetensors (save_pretrained), or an ONNX file"
        )
    match = _HUB.match(source)
    if match:
        return _download(match["name"], match["revision"], trust_remote_code)
    raise ExportError(
        f"{source} is no model directory, no .onnx or .xml file and no owner/name@revision: the revision is needed, "
        "since a name alone can mean other weights tomorrow"
    )


def _refuse_directory(path: Path) -> None:
    graphs = sorted(p.name for p in path.iterdir() if p.suffix in (".onnx", ".xml"))
    pickles = sorted(p.name for p in path.iterdir() if p.suffix in PICKLES)
    hint = "copy the whole directory that save_pretrained wrote"
    if graphs:
        hint = f"name the graph in it: {', '.join(graphs[:3])}"
    elif pickles:
        hint = f"{', '.join(pickles[:3])} are pickles, which execute code when they are read: save the model as safetensors"
    raise ExportError(f"{path} has no config.json, so it is no model directory: {hint}")


def _download(name: str, revision: str, trust: bool) -> Location:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        patterns = [*_PATTERNS, "*.py"] if trust else _PATTERNS
        path = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (RepositoryNotFoundError, LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        first = said(error)
        raise ExportError(
            f"{name}@{revision} cannot be fetched ({first}): give a directory with the model instead"
        ) from error
    return Location(path, "directory", name, path.name)
