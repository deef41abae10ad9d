"""Images built with buildah, without a Docker engine, and kept by a hash of what they are made from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from localcluster import machine
from localcluster.paths import REPOSITORY, cache_root
from localcluster.render import PAUSE_IMAGE
from localcluster.shell import run

BASE_IMAGE = "numaserve.local/base:bookworm-1"
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
            if "__pycache__" not in file.parts and not file.name.endswith(".pyc"):
                digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def reference(spec: ImageSpec) -> str:
    """The image's name, its tag a hash of its content: an unchanged tree gives an unchanged name."""
    paths = [REPOSITORY / spec.dockerfile, *(REPOSITORY / p for p in spec.inputs)]
    return f"numaserve.local/{spec.name}:{content_hash(paths)}"


def archive_of(ref: str) -> Path:
    """Where an image's docker-archive is cached."""
    return cache_root() / "images" / (ref.replace("/", "_").replace(":", "_") + ".tar")


def build_all() -> dict[str, str]:
    """Build what is not cached and return {name: reference}; also written to images.json in the cache."""
    refs = {}
    for spec in IMAGES:
        refs[spec.name] = ref = reference(spec)
        if not archive_of(ref).exists():
            base()
            _build(spec, ref)
            _prune(spec.name, keep=3)
    pause()
    (cache_root() / "images.json").write_text(json.dumps(refs, indent=2) + "\n")
    return refs


def _buildah(*words: str | Path, timeout: float = 1500) -> str:
    env = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
    store = cache_root() / "buildah"
    state = Path("/run/numaserve-buildah")
    command = ["buildah", "--root", store, "--runroot", state, *words]
    return run([str(w) for w in command], env=env, timeout=timeout)


def _build(spec: ImageSpec, ref: str) -> None:
    # The build sees the machine's certificates and pip settings, none of which stay in the image.
    pip = {k: v for k, v in os.environ.items() if k in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")}
    arguments = [f"--build-arg={k}={v}" for k, v in {"BASE_IMAGE": BASE_IMAGE, **pip}.items()]
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


def _prune(name: str, keep: int) -> None:
    archives = sorted(archive_of("x").parent.glob(f"numaserve.local_{name}_*.tar"), key=lambda p: -p.stat().st_mtime)
    for old in archives[keep:]:
        old.unlink()


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
    """The sandbox image: catatonit, Debian's tiny init, waiting for signals."""
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
    except Exception:
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
