"""Digests of artifacts: every file in the manifest, the manifest itself, and what no longer agrees with it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from io import FileIO
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from numaserve_api.manifest import CONFIG_FILE, MANIFEST_FILE, FileEntry, Manifest, RelativePath, manifest_digest
from numaserve_api.revision import short_hash
from numaserve_api.validate import InvalidDocument, parse_config, sentences
from numaserve_models.errors import ExportError

CHUNK = 1024 * 1024
"""Large enough that a thread gives up the interpreter for a whole piece, small enough for a CPU's cache."""
MAX_THREADS = 8
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
_TYPES = {
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a directory",
}
_RELATIVE: TypeAdapter[str] = TypeAdapter(RelativePath)
Counted = Callable[[int], object]


class Kind(StrEnum):
    """What is wrong with a file."""

    CHANGED = "changed"
    MISSING = "missing"
    ADDED = "added"
    LINKED = "linked"
    ESCAPING = "escaping"
    SPECIAL = "special"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One file that does not agree with the manifest; ``detail`` continues the sentence after its name."""

    path: str
    kind: Kind
    detail: str = ""

    def __str__(self) -> str:
        # A name may hold a line break or bytes that are no text: what is printed must stay one line.
        name = self.path if self.path.isprintable() else ascii(self.path)
        return f"{self.kind}: {name} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found: the manifest's digest, its files and bytes, faults of files, and of config_deploy.yaml."""

    digest: str
    files: int
    bytes: int
    faults: tuple[Fault, ...]
    config: str | None

    @property
    def whole(self) -> bool:
        """Whether a server would take the artifact with its config."""
        return not self.faults and self.config is None


def digest_file(path: Path, counted: Counted = lambda _: None) -> str:
    """SHA-256 of a file, read in pieces; ``counted`` is told the bytes of each."""
    with path.open("rb", buffering=0) as stream:
        return _digest(stream, counted)


def entries(root: Path, names: Iterable[str]) -> list[FileEntry]:
    """File entries, by name; several files are read at once."""

    def entry(name: str) -> FileEntry:
        return FileEntry(path=name, size=(root / name).stat().st_size, digest=digest_file(root / name))

    with _threads() as pool:
        return list(pool.map(entry, sorted(names)))


def artifact_hash(root: Path) -> str:
    """``model.hash`` of an artifact directory. Raises ExportError where there is none."""
    return manifest_digest(_manifest_bytes(root))


def find_faults(root: Path) -> list[str]:
    """Sentences about files that were changed, are missing or added, lead elsewhere or cannot be read; [] when whole."""
    return [str(fault) for fault in verify(root).faults]


def listed_bytes(root: Path) -> int:
    """Bytes that verifying reads, as the manifest tells. Raises ExportError."""
    return sum(entry.size for entry in _read_manifest(_manifest_bytes(root))[0])


def verify(root: Path, counted: Counted = lambda _: None) -> Verification:
    """Compare a directory with its manifest, several files at once. Raises ExportError where there is no manifest.

    No link is followed and nothing but a regular file is opened. ``counted`` is called from several threads.
    """
    root = root.resolve()
    content = _manifest_bytes(root)
    known, faults = _read_manifest(content)
    present, found = _walk(root)
    faults += found
    named = {fault.path for fault in faults}
    listed = {entry.path for entry in known} | {MANIFEST_FILE, CONFIG_FILE}
    faults += [Fault(name, Kind.ADDED) for name in present if name not in listed]
    # The largest first: a thread that starts it last would work alone at the end.
    order = sorted((e for e in known if e.path not in named), key=lambda e: -e.size)
    with _threads() as pool:
        faults += [fault for fault in pool.map(lambda entry: _fault(root, entry, counted), order) if fault]
    digest = manifest_digest(content)
    return Verification(
        digest, len(known), sum(e.size for e in known), tuple(sorted(faults)), _config_fault(root, digest)
    )


def _threads() -> ThreadPoolExecutor:
    # hashlib lets other threads run while it works; a disk rarely feeds more than a few.
    return ThreadPoolExecutor(min(MAX_THREADS, len(os.sched_getaffinity(0))), thread_name_prefix="digest")


def _digest(stream: FileIO, counted: Counted) -> str:
    digest, buffer = hashlib.sha256(), bytearray(CHUNK)
    view = memoryview(buffer)
    while size := stream.readinto(buffer):
        digest.update(view[:size])
        counted(size)
    return "sha256:" + digest.hexdigest()


def _manifest_bytes(root: Path) -> bytes:
    path = root / MANIFEST_FILE
    if path.is_symlink():
        raise ExportError(f"{path} is a link to {os.readlink(path)}: copy the real file there")  # noqa: PTH115
    if not path.is_file():
        raise ExportError(f"{root} has no {MANIFEST_FILE}: it is no artifact directory; make one with `models export`")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise ExportError(f"{path} has {path.stat().st_size} bytes, at most {MAX_MANIFEST_BYTES}: it is no manifest")
    return path.read_bytes()


def _read_manifest(content: bytes) -> tuple[list[FileEntry], list[Fault]]:
    """Entries that lie inside the artifact, and faults of those that would not. Raises ExportError."""
    try:
        document = json.loads(content)
        listed = document["files"]
        names = [entry["path"] for entry in listed]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ExportError(
            f"{MANIFEST_FILE} is no manifest ({type(error).__name__}: {error}): export it again"
        ) from error
    outside = [name for name in names if not _inside(name)]
    document["files"] = [entry for entry in listed if _inside(entry["path"])]
    try:
        known = Manifest.model_validate_json(json.dumps(document)).files
    except ValidationError as error:
        raise ExportError("; ".join(sentences(error, MANIFEST_FILE)[:3])) from error
    twice = sorted(name for name, count in Counter(entry.path for entry in known).items() if count > 1)
    if twice:
        raise ExportError(f"{MANIFEST_FILE} lists {', '.join(twice[:3])} twice: export it again")
    return known, [Fault(str(n), Kind.ESCAPING, "is listed but is no path inside the artifact") for n in outside]


def _inside(name: object) -> bool:
    try:
        _RELATIVE.validate_python(name, strict=True)
    except ValidationError:
        return False
    return True


def _walk(root: Path) -> tuple[list[str], list[Fault]]:
    """Regular files below a directory by relative name, and everything that is none; no link is entered."""
    present: list[str] = []
    faults: list[Fault] = []
    for path, mode, error in _tree(root):
        name = path.relative_to(root).as_posix()
        if error is not None:
            faults.append(Fault(name, Kind.UNREADABLE, f"({error.strerror})"))
        elif stat.S_ISREG(mode):
            present.append(name)
        else:
            faults.append(_not_regular(path, name, mode))
    return present, faults


def _tree(root: Path) -> Iterator[tuple[Path, int, OSError | None]]:
    """(path, mode, why it cannot be read) of everything below a folder but plain directories."""
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as inside:
                for entry in inside:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    else:
                        yield Path(entry.path), entry.stat(follow_symlinks=False).st_mode, None
        except OSError as error:
            yield folder, 0, error


def _not_regular(path: Path, name: str, mode: int) -> Fault:
    if stat.S_ISLNK(mode):
        return Fault(name, Kind.LINKED, f"leads to {os.readlink(path)}")  # noqa: PTH115 -- kept as written
    return Fault(name, Kind.SPECIAL, f"is {_TYPES.get(stat.S_IFMT(mode), 'no regular file')}")


def _fault(root: Path, entry: FileEntry, counted: Counted) -> Fault | None:
    """What is wrong with a listed file, by reading it."""
    link = _linked_parent(root, entry.path)
    if link:
        return Fault(entry.path, Kind.ESCAPING, f"lies below {link}, a link")
    path = root / entry.path
    try:
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            return _not_regular(path, entry.path, mode)
        # Never waits for a fifo and never follows a link, even when the file is exchanged meanwhile.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", buffering=0) as stream:  # noqa: PTH123
            if os.fstat(stream.fileno()).st_size != entry.size:
                return Fault(entry.path, Kind.CHANGED)
            return Fault(entry.path, Kind.CHANGED) if _digest(stream, counted) != entry.digest else None
    except (FileNotFoundError, NotADirectoryError):
        return Fault(entry.path, Kind.MISSING)
    except OSError as error:
        return Fault(entry.path, Kind.UNREADABLE, f"({error.strerror})")


def _linked_parent(root: Path, name: str) -> str | None:
    """The first directory on the way to a file that is a link."""
    parts = name.split("/")[:-1]
    ways = ("/".join(parts[: n + 1]) for n in range(len(parts)))
    return next((way for way in ways if (root / way).is_symlink()), None)


def _config_fault(root: Path, digest: str) -> str | None:
    """Why config_deploy.yaml does not belong to this manifest; None when it does. It is no file of the manifest."""
    path = root / CONFIG_FILE
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        return None  # named among the files, and never opened
    try:
        config = parse_config(path.read_text())
    except FileNotFoundError:
        return f"{CONFIG_FILE} is missing: spec.config must come from elsewhere, with model.hash {digest}"
    except (InvalidDocument, OSError, UnicodeDecodeError) as error:
        return f"{CONFIG_FILE} cannot be used: {error}"
    if config.model.hash == digest:
        return None
    return f"{CONFIG_FILE} names {config.model.hash}, {MANIFEST_FILE} has {digest}: a server would refuse it; correct model.hash"


def default_space(weights: str, tokenizer: str, pooling: str, dimension: int, says: Sequence[object] = ()) -> str:
    """Name of an embedding space nobody named: a digest of what decides where a text lands."""
    return "space-" + short_hash([weights, tokenizer, pooling, dimension, *says])
