"""kubeconfig files, with the certificates inside so that one file is all a client needs."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from localcluster.certs import Authority, Pair


def write(path: Path, server: str, authority: Authority, client: Pair, name: str = "numaserve") -> Path:
    """Write a kubeconfig for one client certificate; only its owner may read it."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": _inline(authority.ca.cert)}}
        ],
        "users": [
            {
                "name": name,
                "user": {"client-certificate-data": _inline(client.cert), "client-key-data": _inline(client.key)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
