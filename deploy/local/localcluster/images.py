"""Images built with buildah, without a Docker engine, and kept by a hash of what they are made from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster import machine
from localcluster.errors import ClusterError
from localcluster.locks import exclusive
from localcluster.paths import REPOSITORY, cache_root
from localcluster.render import PAUSE_IMAGE
from localcluster.shell import run

BASE_IMAGE = "numaserve.local/base:bookworm-1"
KEPT_ARCHIVES = 3
BASE_PACKAGES = "python3,python3-venv,ca-certificates"


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """An image: its Dockerfile and every path of the repository that goes into it."""

    name: str
    dockerfile: str
    inputs: tuple[str, ...]


IMAGES = (
    ImageSpec(
        "serving",
        "serving_image/Dockerfile",
        ("requirements/serving.txt", "crds/numaserve_api", "serving_image/numaserve_serving"),
    ),
    ImageSpec(
        "operator",
        "operator/Dockerfile",
        ("requirements/operator.txt", "crds/numaserve_api", "operator/numaserve_operator"),
    ),
)


def content_hash(paths: list[Path], root: Path = REPOSITORY) -> str:
    """12 hex digits over names and bytes of files, caches left out."""
    digest = hashlib.sha256()
    for path in paths:
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        for file in files:
            if file.suffix != ".pyc":
                digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def reference(spec: ImageSpec) -> str:
    """The image's name, its tag a hash of its content: an unchanged tree gives an unchanged name."""
    paths = [REPOSITORY / spec.dockerfile, *(REPOSITORY / p for p in spec.inputs)]
    return f"numaserve.local/{spec.name}:{content_hash(paths)}"


def archive_of(ref: str) -> Path:
    """Where an image's docker-archive is cached."""
    return cache_root() / "images" / (ref.replace("/", "_").replace(":", "_") + ".tar")


def build_all(names: Sequence[str] = ()) -> dict[str, str]:
    """Build what is not cached and return {name: reference}; also written to images.json in the cache.

    ``names`` chooses among IMAGES, all of them when empty. Raises ClusterError for a name that is none of them.
    """
    refs = {spec: reference(spec) for spec in chosen(names)}
    with exclusive(cache_root() / "images.lock"):
        for spec, ref in refs.items():
            if not archive_of(ref).exists():
                base()
                _build(spec, ref)
                _prune(spec.name)
        _pause_archive()
        return _remember({spec.name: ref for spec, ref in refs.items()})


def _remember(built: dict[str, str]) -> dict[str, str]:
    """Note the newest reference of every image in images.json; those not built now keep theirs."""
    file = cache_root() / "images.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**before, **built}, indent=2) + "\n")
    return built


def chosen(names: Sequence[str]) -> list[ImageSpec]:
    """The images of these names, all when none is given."""
    known = {spec.name: spec for spec in IMAGES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ClusterError(f"no image is called {', '.join(unknown)}: there are {', '.join(known)}")
    return [known[name] for name in names] or list(IMAGES)


def _buildah(*words: str | Path, timeout: float = 1500) -> str:
    env = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
    store = cache_root() / "buildah"
    state = Path("/run/numaserve-buildah")
    command = ["buildah", "--root", store, "--runroot", state, *words]
    return run([str(w) for w in command], env=env, timeout=timeout)


def _build(spec: ImageSpec, ref: str) -> None:
    # The build sees the machine's certificates and package index, neither of which stays in the image.
    index = {k: v for k, v in os.environ.items() if k in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")}
    arguments = [f"--build-arg={k}={v}" for k, v in {"BASE_IMAGE": BASE_IMAGE, **index}.items()]
    _buildah(
        "bud", "--layers", "--pull-never", *arguments,
        "--volume", "/etc/ssl/certs:/etc/ssl/certs:ro",
        "--file", REPOSITORY / spec.dockerfile, "--tag", ref, REPOSITORY,
    )  # fmt: skip
    _save(ref)


def _save(ref: str) -> None:
    target = archive_of(ref)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    _buildah("push", ref, f"docker-archive:{partial}:{ref}")
    partial.rename(target)


def push(ref: str, registry: str) -> str:
    """Push a built image to a registry; the reference there."""
    target = f"{registry.rstrip('/')}/{ref.rpartition('/')[2]}"
    _buildah("push", ref, f"docker://{target}")
    return target


def _prune(name: str) -> None:
    """Forget all but the newest archives of an image, and their layers in buildah's store."""
    archives = sorted(archive_of("x").parent.glob(f"numaserve.local_{name}_*.tar"), key=lambda p: -p.stat().st_mtime)
    for old in archives[KEPT_ARCHIVES:]:
        old.unlink()
    kept = {reference_of(archive) for archive in archives[:KEPT_ARCHIVES]}
    for ref in _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        if ref.startswith(f"numaserve.local/{name}:") and ref not in kept:
            _buildah("rmi", ref)


def reference_of(archive: Path) -> str:
    """The image a cached archive holds; undoes `archive_of`."""
    host, name, tag = archive.name.removesuffix(".tar").split("_")
    return f"{host}/{name}:{tag}"


def base() -> None:
    """The Python base image: debootstrap of Debian 12 with python3, from the machine's own apt mirror."""
    if _exists(BASE_IMAGE):
        return
    with tempfile.TemporaryDirectory(prefix="numaserve-base-") as folder:
        root = Path(folder) / "root"
        run(
            ["debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", "bookworm", root, machine.apt_mirror()],
            timeout=900,
        )
        for waste in (
            "var/cache/apt/archives",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
        ):
            shutil.rmtree(root / waste, ignore_errors=True)
        _from_folder(root, BASE_IMAGE)


def pause() -> Path:
    """The archive of the sandbox image, made when it is not cached."""
    if archive_of(PAUSE_IMAGE).exists():
        return archive_of(PAUSE_IMAGE)
    with exclusive(cache_root() / "images.lock"):
        return _pause_archive()


def _pause_archive() -> Path:
    """catatonit, Debian's tiny init, waiting for signals. The caller holds the lock."""
    target = archive_of(PAUSE_IMAGE)
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(prefix="numaserve-pause-") as folder:
        shutil.copy2("/usr/bin/catatonit", Path(folder) / "pause")
        _from_folder(Path(folder), PAUSE_IMAGE, entrypoint='["/pause","-P"]')
    _save(PAUSE_IMAGE)
    return target


def _exists(ref: str) -> bool:
    try:
        _buildah("inspect", "--type", "image", ref)
    except ClusterError:
        return False
    return True


def _from_folder(folder: Path, ref: str, entrypoint: str | None = None) -> None:
    container = _buildah("from", "scratch").strip()
    try:
        _buildah("copy", container, f"{folder}/.", "/")
        if entrypoint:
            _buildah("config", f"--entrypoint={entrypoint}", container)
        _buildah("commit", container, ref)
    finally:
        _buildah("rm", container)
