"""What the demo and the end-to-end tests do with a cluster: apply, wait for conditions, ask, look inside pods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml

from localcluster.paths import REPOSITORY

Json = dict[str, Any]
T = TypeVar("T")
CLIENT_SECONDS = 240.0


class Reach(Protocol):
    """A cluster one can talk to (localcluster.cluster.Cluster and its relatives)."""

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str: ...
    def enter(self, command: Sequence[str | Path]) -> list[str]: ...


class NeverHappened(AssertionError):
    """Something waited for did not come; the message says what was there instead."""


@dataclass
class World:
    """One namespace of one cluster."""

    cluster: Reach
    namespace: str

    def apply(self, document: Mapping[str, Any]) -> None:
        """kubectl apply of one object into this namespace."""
        moved = {**document, "metadata": {**document["metadata"], "namespace": self.namespace}}
        self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(moved))

    def get(self, kind: str, name: str) -> Json:
        """One object."""
        found: Json = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def items(self, kind: str, selector: str = "") -> list[Json]:
        """Objects of a kind."""
        words = ["get", kind, "-o", "json", *(("-l", selector) if selector else ())]
        found: list[Json] = json.loads(self.kubectl(*words))["items"]
        return found

    def kubectl(self, *words: str, timeout: float = 120) -> str:
        """kubectl in this namespace."""
        return self.cluster.kubectl("-n", self.namespace, *words, timeout=timeout)

    def condition(self, name: str, kind: str) -> Json:
        """A condition of a resource; empty while it has none."""
        conditions = self.get("encdep", name).get("status", {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def wait_condition(
        self,
        name: str,
        kind: str,
        status: str,
        reason: str | None = None,
        seconds: float = 90,
        generation: int | None = None,
    ) -> Json:
        """Wait until a condition of this generation has a status, and a reason if one is named."""
        wanted = generation or self.get("encdep", name)["metadata"]["generation"]

        def there() -> Json | None:
            found = self.condition(name, kind)
            fits = found.get("status") == status and (reason is None or found.get("reason") == reason)
            return found if fits and found.get("observedGeneration", 0) >= wanted else None

        def instead() -> str:
            return json.dumps(self.get("encdep", name).get("status", {}).get("conditions"), indent=1)

        return wait_for(there, seconds, f"{kind}={status}{f'/{reason}' if reason else ''} of {name}", instead)

    def pods(self, name: str) -> list[Json]:
        """Pods of a resource that are not on their way out."""
        found = self.items("pods", f"numaserve.dev/name={name}")
        return [p for p in found if "deletionTimestamp" not in p["metadata"]]

    def cpus_allowed(self, pod: str) -> str:
        """The cpuset of a pod's first process, as /proc says."""
        status = self.kubectl("exec", pod, "-c", "server", "--", "cat", "/proc/1/status")
        return next(line.split(":")[1].strip() for line in status.splitlines() if line.startswith("Cpus_allowed_list"))

    def address(self, service: str) -> str:
        """URL of a Service by its cluster address."""
        spec = self.get("service", service)["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"

    def embed(self, service: str, text: str) -> Json:
        """A real embedding through the Service."""
        url = f"{self.address(service)}/v1/embeddings"
        code = f"import httpx; print(httpx.post({url!r}, json={{'input': {text!r}}}, timeout=20, trust_env=False).text)"
        done = subprocess.run(
            self.cluster.enter([sys.executable, "-c", code]), check=True, capture_output=True, text=True
        )
        answer: Json = json.loads(done.stdout)
        return answer

    @contextmanager
    def client(self, service: str) -> Iterator[Callable[[], Json]]:
        """A client that keeps asking while the block runs; the function ends it and returns its counts."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "answers.json"
            words = [sys.executable, "-m", "demo.client", self.address(service), str(CLIENT_SECONDS), str(file)]
            path = {**os.environ, "PYTHONPATH": str(REPOSITORY / "deploy" / "local")}
            process = subprocess.Popen(self.cluster.enter(words), env=path)

            def finish() -> Json:
                Path(f"{file}.stop").touch()
                process.wait(30)
                counted: Json = json.loads(file.read_text())
                return counted

            try:
                yield finish
            finally:
                process.kill()
                process.wait()


def wait_for(ready: Callable[[], T | None], seconds: float, what: str, instead: Callable[[], str] = lambda: "") -> T:
    """Poll until something is there. Raises NeverHappened with what was there instead."""
    end = time.monotonic() + seconds
    while True:
        found = ready()
        if found:
            return found
        if time.monotonic() > end:
            raise NeverHappened(f"{what} did not happen within {seconds:.0f} s. {instead()}")
        time.sleep(0.3)
