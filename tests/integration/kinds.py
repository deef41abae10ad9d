"""EncoderDeployments over plain HTTP: what the API server says, word for word."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import httpx

GROUP_PATH = "/apis/numaserve.dev/v1alpha1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True)
class EncoderDeployments:
    """The collection of one namespace."""

    api: httpx.Client
    namespace: str

    @property
    def url(self) -> str:
        return f"{GROUP_PATH}/namespaces/{self.namespace}/encoderdeployments"

    def create(self, resource: dict[str, Any], dry_run: bool = False) -> httpx.Response:
        """Create as `kubectl create` does: unknown fields are refused."""
        params = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self.api.post(self.url, params=params, content=json.dumps(resource), headers=_type("json"))

    def apply(
        self, resource: dict[str, Any], manager: str, force: bool = False, subresource: str = ""
    ) -> httpx.Response:
        """Server-side apply."""
        return self.api.patch(
            f"{self.url}/{resource['metadata']['name']}{subresource}",
            params={"fieldManager": manager, "force": str(force).lower()},
            content=json.dumps(resource),
            headers=_type("apply-patch+yaml"),
        )

    def patch(self, name: str, change: dict[str, Any], subresource: str = "") -> httpx.Response:
        """Merge patch."""
        return self.api.patch(
            f"{self.url}/{name}{subresource}", content=json.dumps(change), headers=_type("merge-patch+json")
        )

    def get(self, name: str) -> dict[str, Any]:
        """One resource, or one of its subresources."""
        answer = self.api.get(f"{self.url}/{name}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def table(self) -> dict[str, Any]:
        """The only resource's row as `kubectl get` prints it."""
        found = self.api.get(self.url, headers={"Accept": TABLE}).json()
        names = [column["name"] for column in found["columnDefinitions"]]
        (row,) = found["rows"]
        return dict(zip(names, row["cells"], strict=True))


def causes_of(answer: httpx.Response) -> set[tuple[str, str]]:
    """(path, sentence) of every fault the API server names; keys and indexes are written `[]`."""
    causes = answer.json().get("details", {}).get("causes", [])
    return {(re.sub(r"\[[^]]*]", "[]", c["field"]), _sentence(c["message"])) for c in causes}


def _sentence(message: str) -> str:
    # `Invalid value: <value>: <sentence>`, or without the value when it is an object.
    return re.sub(r'^Invalid value: (("(?:[^"\\]|\\.)*"|-?[0-9]+): )?', "", message)


def _type(kind: str) -> dict[str, str]:
    return {"Content-Type": f"application/{kind}"}
