"""Kubernetes and helm, built from Go modules once and cached by a hash of what they are built from."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from localcluster.locks import exclusive
from localcluster.paths import REPOSITORY, cache_root
from localcluster.shell import run

SOURCES = REPOSITORY / "deploy" / "local" / "kubernetes"
KUBERNETES_VERSION = "v1.35.4"
HELM_VERSION = "v3.22.0"
APPLETS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")


def kubernetes_dir() -> Path:
    """Where this version of the binary lies: changed sources or another Go give another folder."""
    digest = hashlib.sha256(run(["go", "env", "GOVERSION"]).encode())
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((SOURCES / name).read_bytes())
    return cache_root() / "bin" / f"kubernetes-{digest.hexdigest()[:12]}"


def kubernetes() -> Path:
    """The folder with one link per component, building the binary when it is not cached (about 5 minutes on 2 cores)."""
    folder = kubernetes_dir()
    if not _complete(folder):
        with exclusive(folder.with_suffix(".lock")):
            if not _complete(folder):
                _build(folder)
    return folder


def _complete(folder: Path) -> bool:
    return all((folder / applet).exists() for applet in APPLETS)


def _build(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stamp = "k8s.io/component-base/version"
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    flags = (
        f"-s -w -X {stamp}.gitVersion={KUBERNETES_VERSION} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor} "
        f"-X {stamp}.gitTreeState=clean"
    )
    run(
        [
            "go",
            "build",
            "-tags",
            "providerless,selinux",
            "-trimpath",
            "-ldflags",
            flags,
            "-o",
            folder / "kubernetes.new",
            ".",
        ],
        cwd=SOURCES,
        env={**os.environ, "CGO_ENABLED": "0"},
        timeout=3000,
    )
    (folder / "kubernetes.new").rename(folder / "kubernetes")
    for applet in APPLETS:
        link = folder / applet
        link.unlink(missing_ok=True)
        link.symlink_to("kubernetes")


def helm() -> Path:
    """The helm binary, installed with `go install` when it is not cached."""
    folder = cache_root() / "bin" / f"helm-{HELM_VERSION}"
    if not (folder / "helm").exists():
        with exclusive(cache_root() / "bin" / "helm.lock"):
            folder.mkdir(parents=True, exist_ok=True)
            env = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
            run(["go", "install", f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION}"], env=env, timeout=3000)
    return folder / "helm"
