"""CEL rules of the CRD: every rule a resource alone can break, each answered with a sentence.

A rule stands at the object it looks at; ``self`` is that object. What needs the cluster becomes a
condition instead. Source: Kubernetes docs, "Validation rules".
"""

from __future__ import annotations

from dataclasses import dataclass

from numaserve_api.config import Scheme
from numaserve_api.names import GROUP, MAX_NAME_LENGTH
from numaserve_api.unsupported import TABLE


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: dotted path of the object, CEL expression, and the sentence shown when it is false."""

    path: str
    cel: str
    message: str


_SCHEMES = ", ".join(f"'{scheme.value}'" for scheme in Scheme)
_COSINES = "!has(self.{a}) || !has(self.{b}) || self.{a} <= self.{b}"

OWN: tuple[Rule, ...] = (
    Rule(
        "",
        f"self.metadata.name.size() <= {MAX_NAME_LENGTH} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        f"metadata.name must be a DNS-1035 label of at most {MAX_NAME_LENGTH} characters (a letter, then letters, "
        "digits and dashes): names of children are made from it",
    ),
    Rule(
        "spec",
        "self.config.threads * (has(self.placement) && has(self.placement.cpusPerThread) ? self.placement.cpusPerThread : 1) <= 1024",
        "spec.config.threads × spec.placement.cpusPerThread is the CPU count of a pod and must be at most 1024",
    ),
    Rule(
        "spec",
        "!has(self.podLabels) || self.podLabels.all(key, !key.startsWith('" + GROUP + "/'))",
        f"spec.podLabels must not use keys under {GROUP}/: they decide which pods serve",
    ),
    Rule(
        "spec",
        "!has(self.podLabels) || self.podLabels.all(key, key.matches('^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))",
        "spec.podLabels has a key that is no label key: [prefix/]name of letters, digits, dashes, dots and underscores",
    ),
    Rule("spec", "!has(self.memory) || (isQuantity(self.memory) && quantity(self.memory).isGreaterThan(quantity('0')))",
         "spec.memory must be a quantity above zero, e.g. 4Gi"),
    Rule(
        "spec.config.model",
        "!self.source.startsWith('pvc://') || self.source.matches('^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[A-Za-z0-9._-]+)*/?$')",
        "spec.config.model.source must be pvc://CLAIM or pvc://CLAIM/PATH with a claim of this namespace and a plain relative path",
    ),
    Rule(
        "spec.config.model",
        "!self.source.matches('(^|/)[.][.](/|$)')",
        "spec.config.model.source must not contain `..`: it would leave the volume",
    ),
    Rule(
        "spec.config.window",
        "!has(self.buckets) || self.buckets.all(b, b <= self.maxTokens)",
        "spec.config.window.buckets must all be at most maxTokens",
    ),
    Rule(
        "spec.config.window",
        "!has(self.buckets) || self.buckets.isSorted()",
        "spec.config.window.buckets must be ascending, e.g. [64, 128, 256]",
    ),
    Rule(
        "spec.config.quantization",
        "self.scheme != 'fp16'",
        "spec.config.quantization.scheme fp16 is refused: it brings no gain on CPUs; use bf16 or int8-weights",
    ),
    Rule(
        "spec.config.quantization",
        f"self.scheme in [{_SCHEMES}, 'fp16']",
        f"spec.config.quantization.scheme must be one of {_SCHEMES.replace(chr(39), '')}",
    ),
    Rule(
        "spec.config.quantization",
        "!has(self.dynamicGroup) || self.scheme == 'int8-weights'",
        "spec.config.quantization.dynamicGroup only applies to scheme int8-weights: remove it",
    ),
    Rule(
        "spec.rollout",
        "!(has(self.maxSurge) && (self.maxSurge == 0 || self.maxSurge == '0%') && "
        "(!has(self.maxUnavailable) || self.maxUnavailable == 0 || self.maxUnavailable == '0%'))",
        "spec.rollout.maxSurge and maxUnavailable must not both be 0: no pod could ever be replaced",
    ),
    Rule(
        "spec.rollout.gates.samples",
        "[has(self.configMapRef), has(self.artifact), has(self.source)].filter(x, x).size() == 1",
        "spec.rollout.gates.samples must name exactly one of configMapRef, artifact and source",
    ),
    Rule("spec.rollout.gates.cosine", _COSINES.format(a="min", b="p1"),
         "spec.rollout.gates.cosine.min must be at most p1: the smallest value cannot be above the first percentile"),
    Rule("spec.rollout.gates.cosine", _COSINES.format(a="min", b="mean"),
         "spec.rollout.gates.cosine.min must be at most mean"),
)  # fmt: skip

RULES: tuple[Rule, ...] = (*OWN, *(Rule(entry.parent, entry.cel, entry.message) for entry in TABLE))
