"""Writing a sample set: JSON lines, and the ConfigMap that gates read."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from numaserve_api.resource import ObjectName
from numaserve_models.errors import ExportError
from numaserve_models.samples.read import Sample

KEY = "samples.jsonl"
"""A ConfigMap's key that ends so holds objects with `text` (numaserve_operator.gates.samples)."""
MAX_CONFIGMAP_BYTES = 1024 * 1024
"""Of all values together: the API server refuses more."""
_NAME: TypeAdapter[str] = TypeAdapter(ObjectName)


def json_lines(samples: Sequence[Sample]) -> str:
    """One object a line with `text` and, where known, `query`, `id`, `label` and `relevant`: ids, or places from 0 in this set."""
    named = any(sample.id is not None for sample in samples)
    return "".join(_escaped(json.dumps(_document(sample, named), ensure_ascii=False)) + "\n" for sample in samples)


def gate_digest(texts: Sequence[str]) -> str:
    """The digest status.rollout.sampleDigest shows for these texts, each preceded by its length in bytes.

    The same as numaserve_operator.gates.samples.digest_of; a test holds them equal.
    """
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(f"{len(content)}:".encode() + content)
    return "sha256:" + digest.hexdigest()


def too_large(lines: str) -> str | None:
    """Why no ConfigMap holds these lines, and what to do; None where one does."""
    size = len(lines.encode())
    if size <= MAX_CONFIGMAP_BYTES:
        return None
    count = lines.count("\n")
    fitting = max(1, int(count * MAX_CONFIGMAP_BYTES / size * 0.95))
    return (
        f"{count} samples are {size} bytes, a ConfigMap holds at most {MAX_CONFIGMAP_BYTES}: "
        f"take about {fitting} with --count, or export the artifact with these samples and let gates read them there"
    )


def configmap_yaml(name: str, namespace: str | None, lines: str) -> str:
    """A ConfigMap to apply. Raises ExportError for a name that is none and for more than a ConfigMap holds."""
    check_name("--configmap", name)
    if namespace is not None:
        check_name("--namespace", namespace)
    excess = too_large(lines)
    if excess:
        raise ExportError(excess)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: _Literal(lines)}}
    # Lines are never folded: one line of the file stays one line here.
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))


def check_free(paths: Iterable[Path], source: Path, overwrite: bool) -> None:
    """Raises ExportError for a path that exists, or that must not be replaced: the source or a directory."""
    for path in paths:
        if path.is_dir():
            raise ExportError(f"{path} is a directory: name a file")
        if path.exists() and path.samefile(source):
            raise ExportError(f"{path} is the source itself: name another file")
        if path.exists() and not overwrite:
            raise ExportError(f"{path} exists: remove it, name another file or pass --overwrite")


def check_name(option: str, name: str) -> None:
    """Raises ExportError for what the API server takes for no name."""
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        raise ExportError(f"{option} {name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def write_whole(files: Mapping[Path, str]) -> None:
    """Write every file or none: under another name first, then in its place."""
    written: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not tempfile: the user's umask shall decide who reads the texts.
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
            written[path] = temporary
            with temporary.open("x", encoding="utf-8", newline="") as stream:
                stream.write(content)
        for path, temporary_path in written.items():
            temporary_path.replace(path)
    finally:
        for temporary_path in written.values():
            temporary_path.unlink(missing_ok=True)


class _Literal(str):
    """Text to be written as a block, line by line."""


class _Dumper(yaml.SafeDumper):
    """Writes _Literal as a block."""


_Dumper.add_representer(_Literal, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), "|"))


def _document(sample: Sample, named: bool) -> dict[str, Any]:
    relevant = [name if named else int(name) for name in sample.relevant]
    optional = {"query": sample.query, "id": sample.id, "label": sample.label, "relevant": relevant or None}
    return {"text": sample.text, **{name: value for name, value in optional.items() if value is not None}}


def _escaped(line: str) -> str:
    """Whatever is not seen as JSON escapes: some readers end a line at U+2028, and YAML does so too."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
