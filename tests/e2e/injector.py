"""A real mutating webhook that injects a container without limits, as a careless service mesh does."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import yaml

from localcluster import Cluster
from localcluster.network import API_ADDRESS


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        image = review["request"]["object"]["spec"]["containers"][0]["image"]
        container = {"name": "mesh", "image": image, "command": ["sleep", "3600"]}
        patch = [{"op": "add", "path": "/spec/containers/-", "value": container}]
        response = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        }
        body = json.dumps(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Injector:
    """Injects into pods created in one namespace while the block runs."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.name = f"injector-{namespace}"

    def __enter__(self) -> Injector:
        authority = self.cluster.plane.authority
        pair = authority.issue("injector", "injector", hosts=(API_ADDRESS,))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        self.server = ThreadingHTTPServer((API_ADDRESS, 0), _Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        ca = base64.b64encode(authority.ca.cert.read_bytes()).decode()
        self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(self._configuration(ca)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.kubectl("delete", "mutatingwebhookconfiguration", self.name)
        self.server.shutdown()
        self.server.server_close()

    def _configuration(self, ca: str) -> dict[str, Any]:
        webhook = {
            "name": "inject.numaserve.test",
            "clientConfig": {"url": f"https://{API_ADDRESS}:{self.server.server_address[1]}/", "caBundle": ca},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": self.name},
            "webhooks": [webhook],
        }
