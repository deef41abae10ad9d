"""What each rung loads: files of the sources given, or made from them once, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numaserve_api.config import DEFAULT_DYNAMIC_GROUP, Pooling, Scheme, Task
from numaserve_models.artifact import Artifact, open_artifact
from numaserve_models.bench.client import Client, Died, Refused, TooLong
from numaserve_models.bench.engines import IPEX, no_ipex
from numaserve_models.bench.material import Material, Sources
from numaserve_models.bench.rungs import Rung
from numaserve_models.errors import ExportError

PREPARE_SECONDS = 7200.0
EXAMPLE_TOKENS = 48
"""Length a model is traced at, where it is measured at that length or above."""


class Unavailable(RuntimeError):
    """A rung cannot be run; the message says why."""


class Supply:
    """Makes what is missing when a rung first needs it, and remembers what could not be made."""

    def __init__(self, sources: Sources, folder: Path, threads: int, tell: Callable[[str], None]) -> None:
        self._sources, self._folder, self._threads, self._tell = sources, folder, threads, tell
        self._made: dict[str, Path | Unavailable] = {}

    def describe(self, directory: Path) -> dict[str, Any]:
        """What a model directory says of itself. Raises ExportError."""
        try:
            return self._job("describe", source=str(directory))
        except Unavailable as error:
            raise ExportError(f"{error}. An artifact of the model given beside it would say all of that") from error

    def engine(self, rung: Rung, material: Material) -> dict[str, Any]:
        """The description a worker loads. Raises Unavailable."""
        threads = 0 if rung.default_threads else self._threads
        if rung.runtime == "torch":
            network = self._network(material)
            if rung.variant == "ipex" and find_spec(IPEX) is None:
                raise Unavailable(no_ipex("it is not installed"))
            self._once("libraries", "libraries", lambda _: self._job("libraries"))
            return {"runtime": "torch", "variant": rung.variant, "network": network, "threads": threads}
        if rung.runtime == "onnxruntime":
            return {"runtime": "onnxruntime", "threads": threads, **self._onnx(rung, material)}
        artifact = self._artifact(Scheme(rung.variant))
        group = 0
        if rung.variant == Scheme.INT8_WEIGHTS:
            given = artifact.config.quantization.dynamic_group
            group = DEFAULT_DYNAMIC_GROUP if given is None else given
        return {
            "runtime": "openvino",
            "graph": str(artifact.graph),
            "precision": rung.precision,
            "group": group,
            "threads": threads,
        }

    def _network(self, material: Material) -> dict[str, Any]:
        if self._sources.directory is None:
            raise Unavailable("no model directory was given")
        return {
            "source": str(self._sources.directory), "task": material.task.value, "output": material.output.value,
            "pooling": material.pooling.value, "normalize": material.normalize,
        }  # fmt: skip

    def _onnx(self, rung: Rung, material: Material) -> dict[str, Any]:
        given = self._sources.onnx
        file = given or self._once("onnx", "onnx/model.onnx", lambda file: self._export(material, file))
        if rung.variant == "int8":
            file = self._once(
                "onnx-int8", "onnx-int8/model.onnx", lambda out: self._job("onnx_int8", file=str(file), out=str(out))
            )
        if given is None:
            return {"file": str(file)}
        if material.task is not Task.EMBEDDING:
            return {"file": str(file)}
        pooling = Pooling.MEAN if material.pooling is Pooling.AUTO else material.pooling
        return {"file": str(file), "pooling": pooling.value, "normalize": material.normalize}

    def _export(self, material: Material, file: Path) -> None:
        if self._sources.directory is None:
            raise Unavailable("neither a model directory nor an .onnx file was given")
        length = min(EXAMPLE_TOKENS, max(material.lengths))
        self._job("onnx_export", network=self._network(material), file=str(file), length=length)

    def _artifact(self, scheme: Scheme) -> Artifact:
        wanted = Scheme.NONE if scheme is Scheme.BF16 and scheme not in self._sources.artifacts else scheme
        if wanted in self._sources.artifacts:
            return self._sources.artifacts[wanted]
        exact = self._sources.artifacts.get(Scheme.NONE)
        if exact is None:
            raise Unavailable("no artifact in scheme none was given: make one with `models export`")
        root = self._once(
            wanted,
            f"artifacts/{wanted}",
            lambda out: self._job("artifact", source=str(exact.root), out=str(out), scheme=wanted.value),
        )
        return open_artifact(root)

    def _once(self, what: str, name: str, make: Callable[[Path], object]) -> Path:
        if what not in self._made:
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._tell(f"making {what}")
            try:
                make(path)
                self._made[what] = path
            except Unavailable as error:
                self._made[what] = error
        made = self._made[what]
        if isinstance(made, Unavailable):
            raise Unavailable(str(made))
        return made

    def _job(self, kind: str, **options: str | int | dict[str, Any]) -> dict[str, Any]:
        """One task in a process of its own: what it needs in memory is gone with it, and so is what it breaks."""
        client = Client(self._folder, f"prepare-{kind}", self._threads)
        try:
            return client.ask(PREPARE_SECONDS, "prepare", kind=kind, **options)
        except (Refused, Died, TooLong) as error:
            raise Unavailable(str(error)) from error
        finally:
            client.close()
