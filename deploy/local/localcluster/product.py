"""numaserve on a cluster: images into the nodes, artifacts into volumes, the chart installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from localcluster import binaries, images
from localcluster.paths import REPOSITORY
from localcluster.shell import run
from localcluster.targets import DEMO_LABEL, Target

NAMESPACE = "numaserve-system"
RELEASE = "numaserve"
CHART = REPOSITORY / "charts" / "numaserve"


@dataclass(frozen=True, slots=True)
class Product:
    """Installs numaserve into one cluster."""

    cluster: Target

    def load_images(self) -> dict[str, str]:
        """Build the images and bring them to the nodes; {name: reference}."""
        return dict(self.cluster.load_images(images.build_all()))

    def install(self, refs: dict[str, str], drain_seconds: float = 10) -> None:
        """Install or upgrade the chart and wait until the operator runs."""
        # helm never upgrades CRDs by itself, kubectl does.
        self.cluster.kubectl("apply", "--server-side", "-f", str(CHART / "crds"))
        values = {
            "operatorImage": refs["operator"],
            "servingImage": refs["serving"],
            "drainSeconds": drain_seconds,
            "nodeSelector": dict(self.cluster.operator_selector),
        }
        words: list[str | Path] = [
            binaries.helm(), "upgrade", "--install", RELEASE, CHART, "--namespace", NAMESPACE, "--create-namespace",
            "--values", "-", "--skip-crds", "--wait", "--timeout", "180s",
        ]  # fmt: skip
        run(self.cluster.enter(words), stdin=yaml.safe_dump(values), env=self.cluster.environment(), timeout=240)

    def namespace(self, name: str) -> None:
        """A namespace, if it is not there yet."""
        if self.cluster.kubectl("get", "namespace", name, "--ignore-not-found", "-o", "name").strip():
            return
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {DEMO_LABEL: "true"}}}
        self.cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(document))

    def models(self, namespace: str, artifacts: Path, claim: str = "models") -> None:
        """A claim that holds the artifact directories."""
        self.cluster.volume(claim, namespace, artifacts)
