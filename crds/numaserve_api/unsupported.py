"""Fields of v1alpha1 that this release does not bring to life yet: refused, never silently ignored.

One table serves the CRD (as CEL rules) and every Python reader. It shrinks to zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One field: the object holding it, and which values are allowed (none: it must be absent).

    ``prefix`` refuses only strings that begin with it, ``forbidden`` only those values.
    """

    parent: str
    field: str
    allowed: tuple[Any, ...] = ()
    prefix: str | None = None
    forbidden: tuple[Any, ...] = ()
    instead: str = "remove the field"

    @property
    def path(self) -> str:
        """Dotted path from the resource's root."""
        return f"{self.parent}.{self.field}"

    @property
    def message(self) -> str:
        """The sentence shown to whoever applies the resource."""
        return f"{self.path}{self._what} is not supported yet: {self.instead}"

    @property
    def _what(self) -> str:
        if self.prefix:
            return f" beginning with {self.prefix}"
        if self.forbidden:
            return f" {' or '.join(_literal(v) for v in self.forbidden)}"
        return f" other than {' or '.join(_literal(v) for v in self.allowed)}" if self.allowed else ""

    @property
    def cel(self) -> str:
        """CEL rule on the parent object: true where the field is absent or allowed."""
        this = f"self.{self.field}"
        if self.prefix:
            test = f"!{this}.startsWith('{self.prefix}')"
        elif self.forbidden:
            test = " && ".join(f"{this} != {_cel(v)}" for v in self.forbidden)
        elif self.allowed:
            test = f"{this} in [{', '.join(_cel(v) for v in self.allowed)}]"
        else:
            return f"!has({this})"
        return f"!has({this}) || ({test})"

    def permits(self, value: Any) -> bool:
        """The same test in Python."""
        if value is None:
            return True
        if self.prefix:
            return not str(value).startswith(self.prefix)
        return value not in self.forbidden if self.forbidden else value in self.allowed


def _cel(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


def _literal(value: Any) -> str:
    return _cel(value) if isinstance(value, bool) else str(value)


_MODEL, _WINDOW = "spec.config.model", "spec.config.window"
_PLACE, _ROLL, _GATES, _SERVICE = "spec.placement", "spec.rollout", "spec.rollout.gates", "spec.service"

TABLE: tuple[Unsupported, ...] = (
    Unsupported(
        _MODEL,
        "source",
        prefix="file://",
        instead="a pod has no folder of your machine; put the artifact on a claim (pvc://CLAIM/PATH), or where hf://, "
        "s3://, https:// or oci:// can fetch it",
    ),
    Unsupported(_MODEL, "task", allowed=("embedding",), instead="deploy an embedding model"),
    Unsupported(_MODEL, "output", allowed=("pooled",), instead="deploy an artifact with one vector a text"),
    Unsupported(_MODEL, "prompts", instead="let callers send the prompt as part of the text"),
    Unsupported(_MODEL, "defaultPrompt"),
    Unsupported(
        _MODEL,
        "trustRemoteCode",
        forbidden=(True,),
        instead="it is refused unless the operator's policy names a sandbox runtime class; export without remote code",
    ),
    Unsupported(_WINDOW, "overflow", forbidden=("slide",), instead="use truncate or reject"),
    Unsupported(_WINDOW, "stride"),
    Unsupported(_PLACE, "requireIsa", instead="select nodes with placement.nodeSelector"),
    Unsupported(_PLACE, "topologySpread"),
    Unsupported(_PLACE, "priorityClassName"),
    Unsupported(_PLACE, "runtimeClassName"),
    Unsupported(_PLACE, "rdtClass"),
    Unsupported(_ROLL, "strategy", allowed=("canary",), instead="use canary"),
    Unsupported(_ROLL, "maxSurge", forbidden=(0, "0%"), instead="keep room for one more pod and use 1"),
    Unsupported(_ROLL, "steps", instead="let the gates decide"),
    Unsupported(_ROLL, "mirrorPercent", allowed=(0,)),
    Unsupported(_ROLL, "autoRollback", forbidden=(False,), instead="use paused to hold a rollout"),
    Unsupported(_ROLL, "adoptImage"),
    Unsupported(_GATES, "drift", instead="use gates.cosine"),
    Unsupported(_GATES, "neighbours", instead="use gates.cosine"),
    Unsupported(_GATES, "labelAgreement"),
    Unsupported(_GATES, "ranks"),
    Unsupported(_GATES, "quality"),
    Unsupported(_GATES, "latency"),
    Unsupported(_GATES, "errorRate"),
    Unsupported(_GATES, "allowDifferentHardware", forbidden=(True,)),
    Unsupported(f"{_GATES}.samples", "source", instead="use samples.configMapRef or samples.artifact"),
    Unsupported(_SERVICE, "gatewayRef"),
    Unsupported(_SERVICE, "apiKeySecretRef"),
    Unsupported(_SERVICE, "tlsSecretRef"),
    Unsupported(_SERVICE, "tokenIds", forbidden=("model",), instead="send texts"),
)


def find_unsupported(resource: Mapping[str, Any]) -> list[str]:
    """Sentences, one for each unsupported field that a resource (as JSON) uses; empty when it uses none."""
    return [entry.message for entry in TABLE if not entry.permits(_lookup(resource, entry.path))]


def _lookup(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, Mapping) else None
    return document
