"""Rules between fields: every rule a resource alone can break, each answered with a sentence.

One table serves the CRD (CEL, evaluated by the API server) and every Python reader (``holds``), so that
`numaserve lint` says what `kubectl apply` says, and an outdated CRD in a cluster weakens nothing. What needs
the cluster becomes a condition instead. Source: Kubernetes docs, "Validation rules".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numaserve_api.config import (
    BUCKETS_ASCEND,
    BUCKETS_WITHIN,
    DIMENSIONS_UNIQUE,
    SCHEME_FP16,
    SCHEME_KNOWN,
    Scheme,
)
from numaserve_api.names import GROUP, MAX_NAME_LENGTH
from numaserve_api.quantity import parse_quantity

Node = Mapping[str, Any]
MAX_CPUS = 1024
LEAST_MEMORY, MOST_MEMORY = "64Mi", "64Ti"

_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_PVC = "^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9._-]+)*/?$"
_DOTS = "/[.]{1,2}(/|$)"
_HUB = "^hf://[A-Za-z0-9._-]+/[A-Za-z0-9._-]+@[^/@]+(/.+)?$"
_BUCKET = "^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$"
_WEB = "^https://[^/@?#]+(/[^?#]*)?$"
_REGISTRY = "^oci://[^/@]+/[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$"
_REFERENCE = "^oci://[^/]+/[^@]+[:@]"
_ZERO = (0, "0%")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: dotted path of the object (`[]`: each item), CEL, sentence, and the same test in Python.

    ``holds`` is absent where the pydantic model itself refuses, with the same sentence.
    """

    path: str
    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None


def _name_holds(root: Node) -> bool:
    name = str(root["metadata"].get("name", ""))
    return len(name) <= MAX_NAME_LENGTH and re.fullmatch(_NAME, name) is not None


def _cpus(spec: Node) -> int:
    per_thread = (spec.get("placement") or {}).get("cpusPerThread", 1)
    return int(spec["config"]["threads"] * per_thread)


def _samples_named(samples: Node) -> int:
    return sum(key in samples for key in ("configMapRef", "artifact", "source"))


def _in_order(low: str, high: str) -> Callable[[Node], bool]:
    return lambda gate: low not in gate or high not in gate or gate[low] <= gate[high]


def _like(scheme: str, *patterns: str) -> tuple[str, Callable[[Node], bool]]:
    """CEL and Python of one test: a source of this scheme matches every pattern (RE2 and Python read them alike)."""
    cel = " && ".join(f"self.source.matches('{pattern}')" for pattern in patterns)

    def holds(model: Node) -> bool:
        source = model["source"]
        return not source.startswith(scheme) or all(re.search(pattern, source) for pattern in patterns)

    return f"!self.source.startsWith('{scheme}') || ({cel})", holds


def _source_rule(scheme: str, sentence: str, *patterns: str) -> Rule:
    cel, holds = _like(scheme, *patterns)
    return Rule("spec.config.model", cel, f"spec.config.model.source {sentence}", holds)


def _default_prompt_known(model: Node) -> bool:
    return model.get("defaultPrompt", "none") in {"none", *model.get("prompts", {})}


_SCHEMES = ", ".join(f"'{scheme.value}'" for scheme in Scheme)
_ORDERED = "!has(self.{0}) || !has(self.{1}) || self.{0} <= self.{1}"
_COSINE = "spec.rollout.gates.cosine"

_IDENTITY: tuple[Rule, ...] = (
    Rule(
        "",
        f"self.metadata.name.size() <= {MAX_NAME_LENGTH} && self.metadata.name.matches('{_NAME}')",
        f"metadata.name must be a DNS-1035 label of at most {MAX_NAME_LENGTH} characters (a lowercase letter, then "
        "letters, digits and dashes, no dots): the names of pods and Services are made from it",
        _name_holds,
    ),
    Rule(
        "spec",
        "self.config.threads * (has(self.placement) && has(self.placement.cpusPerThread) ? "
        f"self.placement.cpusPerThread : 1) <= {MAX_CPUS}",
        f"spec.config.threads × spec.placement.cpusPerThread is the CPU count of one pod and must be at most {MAX_CPUS}",
        lambda spec: _cpus(spec) <= MAX_CPUS,
    ),
    Rule(
        "spec",
        f"!has(self.podLabels) || self.podLabels.all(key, !key.startsWith('{GROUP}/'))",
        f"spec.podLabels must not use keys under {GROUP}/: they decide which pods serve",
        lambda spec: not any(key.startswith(f"{GROUP}/") for key in spec.get("podLabels", {})),
    ),
    Rule(
        "spec",
        f"!has(self.memory) || (isQuantity(self.memory) && !quantity(self.memory).isLessThan(quantity('{LEAST_MEMORY}'))"
        f" && !quantity(self.memory).isGreaterThan(quantity('{MOST_MEMORY}')))",
        f"spec.memory must be a quantity from {LEAST_MEMORY} to {MOST_MEMORY}, e.g. 4Gi (a bare number counts bytes)",
        lambda spec: (
            "memory" not in spec
            or parse_quantity(LEAST_MEMORY) <= parse_quantity(spec["memory"]) <= parse_quantity(MOST_MEMORY)
        ),
    ),
)

_CONFIG: tuple[Rule, ...] = (
    Rule(
        "spec.config.model",
        f"!self.source.startsWith('pvc://') || self.source.matches('{_PVC}')",
        "spec.config.model.source must be pvc://CLAIM or pvc://CLAIM/PATH, with a claim of this namespace and a path "
        "of letters, digits and . _ -",
        lambda model: not model["source"].startswith("pvc://") or re.fullmatch(_PVC, model["source"]) is not None,
    ),
    _source_rule(
        "hf://",
        "must be hf://OWNER/NAME@REVISION or hf://OWNER/NAME@REVISION/FOLDER: without a revision it could change",
        _HUB,
    ),
    _source_rule("s3://", "must be s3://BUCKET or s3://BUCKET/PREFIX, with the bucket in lowercase", _BUCKET),
    _source_rule(
        "https://",
        "must be https://HOST/PATH, the directory of manifest.json, without a query; credentials belong into "
        "spec.sourceSecretRef, not into the URL",
        _WEB,
    ),
    _source_rule(
        "oci://",
        "must be oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:…, with the repository in lowercase",
        _REGISTRY,
        _REFERENCE,
    ),
    Rule(
        "spec",
        "!has(self.sourceSecretRef) || !self.config.model.source.startsWith('pvc://')",
        "spec.sourceSecretRef only applies to a source that is fetched (hf://, s3://, https://, oci://): remove it, a "
        "claim needs no credentials",
        lambda spec: "sourceSecretRef" not in spec or not spec["config"]["model"]["source"].startswith("pvc://"),
    ),
    Rule(
        "spec.config.model",
        f"!self.source.matches('{_DOTS}')",
        "spec.config.model.source must not contain `.` or `..` as a folder: the path must stay below its start",
        lambda model: re.search(_DOTS, model["source"]) is None,
    ),
    Rule(
        "spec.config.model",
        "!has(self.dimensions) || self.dimensions.all(a, self.dimensions.exists_one(b, a == b))",
        DIMENSIONS_UNIQUE,
    ),
    Rule(
        "spec.config.model",
        "!has(self.prompts) || has(self.defaultPrompt)",
        "spec.config.model.defaultPrompt is required with prompts: name one of them, or none",
        lambda model: "prompts" not in model or "defaultPrompt" in model,
    ),
    Rule(
        "spec.config.model",
        "!has(self.defaultPrompt) || self.defaultPrompt == 'none' || (has(self.prompts) && self.defaultPrompt in self.prompts)",
        "spec.config.model.defaultPrompt must be the name of one of the prompts, or none",
        _default_prompt_known,
    ),
    Rule(
        "spec.config.window",
        "!has(self.buckets) || self.buckets.all(bucket, bucket <= self.maxTokens)",
        BUCKETS_WITHIN,
    ),
    Rule(
        "spec.config.window",
        "!has(self.buckets) || (self.buckets.isSorted() && self.buckets.all(a, self.buckets.exists_one(b, a == b)))",
        BUCKETS_ASCEND,
    ),
    Rule(
        "spec.config.window",
        "!has(self.stride) || (has(self.overflow) && self.overflow == 'slide')",
        "spec.config.window.stride only applies to overflow slide: remove it",
        lambda window: "stride" not in window or window.get("overflow") == "slide",
    ),
    Rule(
        "spec.config.quantization",
        "self.scheme != 'fp16'",
        SCHEME_FP16,
    ),
    Rule(
        "spec.config.quantization",
        f"self.scheme in [{_SCHEMES}, 'fp16']",
        SCHEME_KNOWN,
    ),
    Rule(
        "spec.config.quantization",
        "!has(self.dynamicGroup) || self.scheme == 'int8-weights'",
        "spec.config.quantization.dynamicGroup only applies to scheme int8-weights: remove it",
        lambda quantization: "dynamicGroup" not in quantization or quantization["scheme"] == Scheme.INT8_WEIGHTS,
    ),
    Rule(
        "spec.config.quantization",
        "self.scheme != 'int8' || has(self.calibration)",
        "spec.config.quantization.calibration is required with scheme int8: paste the config that `models quantize` "
        "wrote, it names the set the graph was calibrated on",
        lambda quantization: quantization["scheme"] != Scheme.INT8 or "calibration" in quantization,
    ),
    Rule(
        "spec.config.quantization",
        "!has(self.calibration) || self.scheme == 'int8'",
        "spec.config.quantization.calibration only applies to scheme int8: remove it",
        lambda quantization: "calibration" not in quantization or quantization["scheme"] == Scheme.INT8,
    ),
)

_TOLERATIONS: tuple[Rule, ...] = (
    Rule(
        "spec.placement.tolerations[]",
        "!has(self.value) || self.value == '' || !has(self.operator) || self.operator == 'Equal'",
        "a toleration with operator Exists must have no value: remove the value or use Equal",
        lambda toleration: not toleration.get("value") or toleration.get("operator", "Equal") == "Equal",
    ),
    Rule(
        "spec.placement.tolerations[]",
        "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
        "a toleration without a key tolerates everything and must say operator Exists",
        lambda toleration: bool(toleration.get("key")) or toleration.get("operator") == "Exists",
    ),
    Rule(
        "spec.placement.tolerations[]",
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "tolerationSeconds only applies to effect NoExecute: remove it or set the effect",
        lambda toleration: "tolerationSeconds" not in toleration or toleration.get("effect") == "NoExecute",
    ),
)

_ROLLOUT: tuple[Rule, ...] = (
    Rule(
        "spec.rollout",
        "!(has(self.maxSurge) && (self.maxSurge == 0 || self.maxSurge == '0%') && "
        "(!has(self.maxUnavailable) || self.maxUnavailable == 0 || self.maxUnavailable == '0%'))",
        "spec.rollout.maxSurge and maxUnavailable must not both be 0: no pod could ever be replaced",
        lambda rollout: rollout.get("maxSurge", 1) not in _ZERO or rollout.get("maxUnavailable", 0) not in _ZERO,
    ),
    Rule(
        "spec.rollout.gates",
        "!has(self.against) || self.against != 'reference' || !has(self.samples) || !has(self.samples.configMapRef)",
        "spec.rollout.gates.samples.configMapRef has no reference vectors: with against reference use samples.artifact, "
        "or compare against stable",
        lambda gates: gates.get("against") != "reference" or "configMapRef" not in gates.get("samples", {}),
    ),
    Rule(
        "spec.rollout.gates.samples",
        "[has(self.configMapRef), has(self.artifact), has(self.source)].filter(named, named).size() == 1",
        "spec.rollout.gates.samples must name exactly one of configMapRef, artifact and source",
        lambda samples: _samples_named(samples) == 1,
    ),
    Rule(
        _COSINE,
        _ORDERED.format("min", "p1"),
        f"{_COSINE}.min must be at most p1: the smallest value cannot be above the first percentile",
        _in_order("min", "p1"),
    ),
    Rule(
        _COSINE,
        _ORDERED.format("min", "mean"),
        f"{_COSINE}.min must be at most mean: the smallest value cannot be above the mean",
        _in_order("min", "mean"),
    ),
)

RULES: tuple[Rule, ...] = (*_IDENTITY, *_CONFIG, *_TOLERATIONS, *_ROLLOUT)


def find_broken(resource: Node) -> list[str]:
    """Sentences, one for each rule that a resource (as JSON, already of the right types) breaks."""
    return [
        rule.message
        for rule in RULES
        if rule.holds and not all(rule.holds(node) for node in _nodes(resource, rule.path))
    ]


def _nodes(document: Node, path: str) -> Iterator[Any]:
    # Nothing below an absent object is looked at, as in CEL; the root stands in only where it has a name.
    if not path:
        yield from [document] if document.get("metadata") else []
        return
    found: list[Any] = [document]
    for key in path.split("."):
        name = key.removesuffix("[]")
        found = [node[name] for node in found if isinstance(node, Mapping) and node.get(name) is not None]
        if key.endswith("[]"):
            found = [item for items in found for item in items]
    yield from found
