"""Kubernetes, helm and the servers of the tests, built from Go modules once and cached by a hash of what they are built from."""

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
VERSITYGW_VERSION = "v1.8.0"
REGISTRY_VERSION = "v3.1.2"
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
    return _installed("helm", f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION}")


def versitygw() -> Path:
    """A real S3 server over a folder, for the tests of fetching (about 1 minute on 2 cores)."""
    return _installed("versitygw", f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW_VERSION}")


def registry() -> Path:
    """The OCI registry of the distribution project, for the tests of fetching (about 2 minutes on 2 cores)."""
    return _installed("registry", f"github.com/distribution/distribution/v3/cmd/registry@{REGISTRY_VERSION}")


def _installed(name: str, module: str) -> Path:
    """The binary ``name`` that `go install` makes of ``module``, built when it is not cached. Raises ClusterError."""
    folder = cache_root() / "bin" / f"{name}-{module.rpartition('@')[2]}"
    if not (folder / name).exists():
        with exclusive(cache_root() / "bin" / f"{name}.lock"):
            if not (folder / name).exists():
                folder.mkdir(parents=True, exist_ok=True)
                env = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
                run(["go", "install", module], env=env, timeout=3000)
    return folder / name
