"""The table of refusals: one change that makes a valid resource wrong, and the words a user must read.

The same rows are put to the API server (CEL and schema) and to the Python readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.unit.api.resources import HASH, REMOVED

MODEL, WINDOW, QUANT = "spec.config.model", "spec.config.window", "spec.config.quantization"
PLACE, ROLLOUT, GATES, SERVICE = "spec.placement", "spec.rollout", "spec.rollout.gates", "spec.service"
LABEL = "must be a label key"
VALUE = "must be a label value"
DNS = "must be 1 to 63 lowercase letters"
OBJECT = "must be lowercase letters, digits, dashes and dots"
PERCENT = "must be a count from 0 to 1000 or a percentage from 0% to 100%"
SHA = "must be sha256: and 64 lowercase hexadecimal digits"
LATER = "is not supported yet"


@dataclass(frozen=True)
class Refusal:
    """``words`` are said by every reader; ``python`` only where the API server's own schema words differ."""

    name: str
    changes: dict[str, Any]
    words: str
    python: str | None = None


def _one(name: str, path: str, value: Any, words: str, python: str | None = None) -> Refusal:
    return Refusal(name, {path: value}, words, python)


def _later(path: str, value: Any, **more: Any) -> Refusal:
    # The sentence must name the very field.
    return Refusal(f"{path} is for later", {path: value, **more}, path, LATER)


NAMES = (
    _one("name of 53", "metadata.name", "a" * 53, "metadata.name must be a DNS-1035 label of at most 52"),
    _one("name of 63", "metadata.name", "a" * 63, "metadata.name must be a DNS-1035 label of at most 52"),
    _one("name of 64", "metadata.name", "a" * 64, "metadata.name must be a DNS-1035 label of at most 52"),
    _one("name of 253", "metadata.name", "a" * 253, "metadata.name must be a DNS-1035 label of at most 52"),
    _one("name with a dot", "metadata.name", "ticket.router", "no dots"),
    _one("name beginning with a digit", "metadata.name", "3tickets", "a lowercase letter, then"),
)

IDENTITY = (
    Refusal("too many CPUs", {"spec.config.threads": 600, f"{PLACE}.cpusPerThread": 2}, "is the CPU count of one pod"),
    _one("pod label of ours", "spec.podLabels", {"numaserve.dev/serving": "true"}, "they decide which pods serve"),
    _one("pod label key", "spec.podLabels", {"Bad/../x": "a"}, LABEL),
    _one("pod label key of 64", "spec.podLabels", {"k" * 64: "a"}, LABEL),
    _one("pod label value", "spec.podLabels", {"team": "é"}, VALUE),
    _one("memory misspelt", "spec.memory", "4Gb", "quantity"),
    _one("memory in bytes by mistake", "spec.memory", "4", "spec.memory must be a quantity from 64Mi"),
    _one("memory negative", "spec.memory", "-4Gi", "spec.memory must be a quantity from 64Mi"),
    _one("memory beyond any machine", "spec.memory", "100Ti", "to 64Ti"),
    _one("image with a space", "spec.image", "a b", "must be an image reference without spaces"),
    _one("image empty", "spec.image", "", "must be an image reference without spaces"),
    _one("replicas negative", "spec.replicas", -1, "greater than or equal to 0"),
    _one("grace period of zero", "spec.terminationGracePeriodSeconds", 0, "greater than or equal to 1"),
    _one("no config", "spec.config", REMOVED, "spec.config", "spec.config is required"),
    _one("port", f"{SERVICE}.port", 70000, "less than or equal to 65535"),
)

CONFIG = (
    _one("version 2", "spec.config.version", 2, 'supported values: "1"', "Input should be 1"),
    _one("no threads", "spec.config.threads", 0, "greater than or equal to 1"),
    _one("source without scheme", f"{MODEL}.source", "models/x", "must be pvc://CLAIM/PATH, hf://"),
    _one("source with a space", f"{MODEL}.source", "pvc://models/a b", "must be pvc://CLAIM/PATH, hf://"),
    _one("claim in capitals", f"{MODEL}.source", "pvc://Models/x", "must be pvc://CLAIM or pvc://CLAIM/PATH"),
    _one("source with an empty folder", f"{MODEL}.source", "pvc://models//x", "must be pvc://CLAIM or pvc://CLAIM/"),
    _one("source leaving the volume", f"{MODEL}.source", "pvc://models/../x", "must stay below its start"),
    _one("source ending above", f"{MODEL}.source", "pvc://models/a/..", "must stay below its start"),
    _one("hub without a revision", f"{MODEL}.source", "hf://owner/name", "must be hf://OWNER/NAME@REVISION"),
    _one("hub without an owner", f"{MODEL}.source", "hf://name@main", "must be hf://OWNER/NAME@REVISION"),
    _one("bucket in capitals", f"{MODEL}.source", "s3://Models/x", "must be s3://BUCKET or s3://BUCKET/PREFIX"),
    _one("bucket path leaving it", f"{MODEL}.source", "s3://models/../x", "must stay below its start"),
    _one("password in a URL", f"{MODEL}.source", "https://me:secret@host/x", "credentials belong into spec.source"),
    _one("URL with a query", f"{MODEL}.source", "https://host/x?token=1", "must be https://HOST/PATH"),
    _one("plain http", f"{MODEL}.source", "http://host/x", "must be pvc://CLAIM/PATH, hf://"),
    _one("image without a tag", f"{MODEL}.source", "oci://host:5000/models/x", "must be oci://REGISTRY/REPOSITORY:TAG"),
    _one("image digest cut", f"{MODEL}.source", "oci://host/x@sha256:12", "must be oci://REGISTRY/REPOSITORY:TAG"),
    _one("image in capitals", f"{MODEL}.source", "oci://host/Models:1", "must be oci://REGISTRY/REPOSITORY:TAG"),
    _one("credentials of a claim", "spec.sourceSecretRef", {"name": "reader"}, "only applies to a source that is"),
    _one("digest too short", f"{MODEL}.hash", "sha256:123", SHA),
    _one("digest in capitals", f"{MODEL}.hash", "sha256:" + "A" * 64, SHA),
    _one("digest missing", f"{MODEL}.hash", REMOVED, "hash"),
    _one("pooling unknown", f"{MODEL}.pooling", "max", '"mean"', "'mean'"),
    _one("dimensions repeated", f"{MODEL}.dimensions", [384, 128, 384], "names a size twice"),
    _one("dimensions empty", f"{MODEL}.dimensions", [], "at least 1 item"),
    _one("space", f"{MODEL}.space", "@1", "must begin with a letter or digit and hold only"),
    _one("prompt name", f"{MODEL}.prompts", {"a b": "x"}, "must be 1 to 63 letters, digits, dashes"),
    _one("prompts without a default", f"{MODEL}.prompts", {"query": "q: "}, "defaultPrompt is required with prompts"),
    _one("default prompt unknown", f"{MODEL}.defaultPrompt", "query", "must be the name of one of the prompts"),
    _one("default prompt malformed", f"{MODEL}.defaultPrompt", "a b", "must be 1 to 63 letters, digits, dashes"),
    _one("bucket above the window", f"{WINDOW}.buckets", [64, 1024], "must all be at most window.maxTokens"),
    _one("buckets descending", f"{WINDOW}.buckets", [128, 64], "must be strictly ascending"),
    _one("buckets repeated", f"{WINDOW}.buckets", [64, 64], "must be strictly ascending"),
    _one("stride without slide", f"{WINDOW}.stride", 64, "stride only applies to overflow slide"),
    _one("fp16", f"{QUANT}.scheme", "fp16", "fp16 is refused: it brings no gain on CPUs; use bf16 or int8-weights"),
    _one("scheme unknown", f"{QUANT}.scheme", "int2", "scheme must be one of none, bf16, int8-weights"),
    Refusal(
        "dynamic group without int8 weights",
        {f"{QUANT}.scheme": "bf16", f"{QUANT}.dynamicGroup": 64},
        "dynamicGroup only applies to scheme int8-weights",
    ),
    _one("int8 without calibration", f"{QUANT}.scheme", "int8", "calibration is required with scheme int8"),
    _one(
        "calibration of another scheme",
        f"{QUANT}.calibration",
        {"hash": HASH, "samples": 3},
        "calibration only applies to scheme int8",
    ),
    _one("calibration digest", f"{QUANT}.calibration", {"hash": "x", "samples": 3}, SHA),
)

PLACEMENT = (
    _one("NUMA word", f"{PLACE}.numa", "both", '"single"', "'single'"),
    _one("node selector key", f"{PLACE}.nodeSelector", {"a b": "x"}, LABEL),
    _one("node selector value", f"{PLACE}.nodeSelector", {"zone": "a b"}, VALUE),
    _one(
        "toleration that exists with a value",
        f"{PLACE}.tolerations",
        [{"key": "a", "operator": "Exists", "value": "x"}],
        "operator Exists must have no value",
    ),
    _one("toleration of everything by mistake", f"{PLACE}.tolerations", [{}], "must say operator Exists"),
    _one(
        "toleration seconds without NoExecute",
        f"{PLACE}.tolerations",
        [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
        "tolerationSeconds only applies to effect NoExecute",
    ),
    _one("toleration value", f"{PLACE}.tolerations", [{"key": "a", "value": "x y"}], VALUE),
    _one("ISA name", f"{PLACE}.requireIsa", ["AMX"], "must be a CPU flag of /proc/cpuinfo"),
    _one("topology key", f"{PLACE}.topologySpread", [{"topologyKey": "a b"}], LABEL),
    _one("priority class", f"{PLACE}.priorityClassName", "A", DNS),
    _one("runtime class", f"{PLACE}.runtimeClassName", "A", DNS),
    _one("RDT class", f"{PLACE}.rdtClass", "A", DNS),
    _one("secret name", "spec.sourceSecretRef", {"name": "A"}, OBJECT),
)

ROLLOUTS = (
    _one("surge negative", f"{ROLLOUT}.maxSurge", -1, PERCENT),
    _one("surge misspelt", f"{ROLLOUT}.maxSurge", "one", PERCENT, PERCENT),
    _one("surge of 00%", f"{ROLLOUT}.maxSurge", "00%", PERCENT),
    _one("unavailable above all", f"{ROLLOUT}.maxUnavailable", "101%", PERCENT, PERCENT),
    Refusal(
        "neither surge nor unavailable",
        {f"{ROLLOUT}.maxSurge": "0%", f"{ROLLOUT}.maxUnavailable": 0},
        "must not both be 0",
    ),
    _one("deadline too short", f"{ROLLOUT}.progressDeadlineSeconds", 1, "greater than or equal to 30"),
    _one("samples nowhere", f"{GATES}.samples", {}, "exactly one of configMapRef, artifact and source"),
    _one(
        "samples twice",
        f"{GATES}.samples",
        {"configMapRef": {"name": "a"}, "artifact": True},
        "exactly one of configMapRef, artifact and source",
    ),
    _one("samples from no artifact", f"{GATES}.samples", {"artifact": False}, "true", "Input should be True"),
    _one("sample ConfigMap name", f"{GATES}.samples", {"configMapRef": {"name": "A b"}}, OBJECT),
    _one("sample URI", f"{GATES}.samples", {"source": {"uri": "x", "hash": HASH}}, "must be a pvc://, hf://"),
    _one("sample digest", f"{GATES}.samples", {"source": {"uri": "hf://a/b", "hash": "x"}}, SHA),
    Refusal(
        "reference vectors of a ConfigMap",
        {f"{GATES}.against": "reference", f"{GATES}.samples": {"configMapRef": {"name": "a"}}},
        "configMapRef has no reference vectors",
    ),
    _one("cosine above one", f"{GATES}.cosine", {"min": 1.5}, "less than or equal to 1"),
    _one("cosine min above p1", f"{GATES}.cosine", {"min": 0.9, "p1": 0.8}, "cosine.min must be at most p1"),
    _one("cosine min above mean", f"{GATES}.cosine", {"min": 0.9, "mean": 0.8}, "cosine.min must be at most mean"),
    _one("metric", f"{GATES}.quality", {"metric": "Recall", "maxDrop": 0.1}, "must be a metric with an optional"),
    _one("gateway name", f"{SERVICE}.gatewayRef", {"name": "A"}, DNS),
    _one("gateway namespace", f"{SERVICE}.gatewayRef", {"name": "a", "namespace": "B"}, DNS),
    _one("API key secret", f"{SERVICE}.apiKeySecretRef", {"name": "A", "key": "k"}, OBJECT),
    _one("TLS secret", f"{SERVICE}.tlsSecretRef", {"name": "A"}, OBJECT),
)

NOT_YET = (
    _later(f"{MODEL}.source", "file:///models/ticket-router"),
    _later(f"{MODEL}.task", "classification"),
    _later(f"{MODEL}.output", "tokens"),
    _later(f"{MODEL}.prompts", {"query": "q: "}, **{f"{MODEL}.defaultPrompt": "query"}),
    _later(f"{MODEL}.defaultPrompt", "none"),
    _later(f"{MODEL}.trustRemoteCode", True),
    _later(f"{WINDOW}.overflow", "slide"),
    _later(f"{WINDOW}.stride", 64, **{f"{WINDOW}.overflow": "slide"}),
    _later(f"{PLACE}.requireIsa", ["amx_int8"]),
    _later(f"{PLACE}.topologySpread", [{"topologyKey": "zone"}]),
    _later(f"{PLACE}.priorityClassName", "high"),
    _later(f"{PLACE}.runtimeClassName", "kata"),
    _later(f"{PLACE}.rdtClass", "gold"),
    _later(f"{ROLLOUT}.strategy", "recreate"),
    _later(f"{ROLLOUT}.maxSurge", 0, **{f"{ROLLOUT}.maxUnavailable": 1}),
    _later(f"{ROLLOUT}.steps", [{"weight": 25}]),
    _later(f"{ROLLOUT}.mirrorPercent", 5),
    _later(f"{ROLLOUT}.autoRollback", False),
    _later(f"{ROLLOUT}.adoptImage", True),
    _later(f"{GATES}.drift", {"maxMean": 0.05}),
    _later(f"{GATES}.neighbours", {"minOverlap": 0.9}),
    _later(f"{GATES}.labelAgreement", {"min": 0.99}),
    _later(f"{GATES}.ranks", {"minTau": 0.9}),
    _later(f"{GATES}.quality", {"metric": "recall@10", "maxDrop": 0.01}),
    _later(f"{GATES}.latency", {"maxP99RegressionPercent": 20}),
    _later(f"{GATES}.errorRate", {"maxPercent": 0.1}),
    _later(f"{GATES}.allowDifferentHardware", True),
    _later(f"{GATES}.samples.source", {"uri": "hf://a/b", "hash": HASH}),
    _later(f"{SERVICE}.gatewayRef", {"name": "edge"}),
    _later(f"{SERVICE}.apiKeySecretRef", {"name": "keys", "key": "k"}),
    _later(f"{SERVICE}.tlsSecretRef", {"name": "tls"}),
    _later(f"{SERVICE}.tokenIds", "model"),
)

REFUSALS: tuple[Refusal, ...] = (*NAMES, *IDENTITY, *CONFIG, *PLACEMENT, *ROLLOUTS, *NOT_YET)
