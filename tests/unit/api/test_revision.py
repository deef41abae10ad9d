"""A revision's name changes with everything that can change an output or its speed, and with nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from numaserve_api.config import ConfigDeploy
from numaserve_api.resource import EncoderDeploymentSpec
from numaserve_api.revision import LENGTH, canonical_form, gates_hash, revision_hash
from tests.unit.api.resources import FULL, HASH, MINIMAL, REMOVED, Resource, changed

IMAGE = "registry.example/numaserve-serving@" + HASH
GOLDEN_MINIMAL = "9jbflxtk5m"
GOLDEN_FULL = "pqhvb7t5kb"


def spec_of(resource: Resource) -> EncoderDeploymentSpec:
    return EncoderDeploymentSpec.model_validate(resource["spec"])


def name_of(resource: Resource, image: str = IMAGE, cpus_per_thread: int = 2) -> str:
    return revision_hash(spec_of(resource), image, cpus_per_thread)


def test_the_golden_names_never_move() -> None:
    """Breaking this test would roll out every deployment when the operator is upgraded."""
    assert (name_of(MINIMAL), name_of(FULL)) == (GOLDEN_MINIMAL, GOLDEN_FULL)


def test_the_canonical_form_is_documented_by_example() -> None:
    config = copy.deepcopy(MINIMAL["spec"]["config"])
    del config["model"]["source"]
    assert canonical_form(spec_of(MINIMAL), IMAGE, 2) == {
        "version": 1,
        "config": config,
        "image": IMAGE,
        "cpusPerThread": 2,
        "memory": "4Gi",
    }


def test_a_release_with_one_more_optional_field_moves_no_name() -> None:
    config = create_model("LaterConfig", __base__=ConfigDeploy, later=(int | None, 7))
    later = create_model("LaterSpec", __base__=EncoderDeploymentSpec, config=(config, ...), later=(str | None, None))
    spec: Any = later.model_validate(FULL["spec"])
    assert revision_hash(spec, IMAGE, 2) == GOLDEN_FULL


CHANGES: dict[str, Any] = {
    "spec.config.model.hash": "sha256:" + "2" * 64,
    "spec.config.model.task": "rerank",
    "spec.config.model.output": "tokens",
    "spec.config.model.pooling": "cls",
    "spec.config.model.normalize": False,
    "spec.config.model.dimensions": [128, 384],
    "spec.config.model.prompts": {"query": "q: "},
    "spec.config.model.defaultPrompt": "none",
    "spec.config.model.space": "minilm-l6@2",
    "spec.config.model.trustRemoteCode": True,
    "spec.config.window.maxTokens": 513,
    "spec.config.window.buckets": [64, 512],
    "spec.config.window.overflow": "reject",
    "spec.config.window.stride": 32,
    "spec.config.window.truncateSide": "left",
    "spec.config.quantization.scheme": "none",
    "spec.config.quantization.activations": "bf16",
    "spec.config.quantization.dynamicGroup": 64,
    "spec.config.quantization.calibration": {"hash": HASH, "samples": 300},
    "spec.config.threads": 4,
    "spec.memory": "8Gi",
    "spec.placement.requireIsa": ["amx_int8"],
    "spec.placement.runtimeClassName": "kata",
    "spec.placement.rdtClass": "gold",
}


@pytest.mark.parametrize("path", CHANGES)
def test_a_changed_field_makes_another_revision(path: str) -> None:
    assert name_of(changed(FULL, {path: CHANGES[path]})) != GOLDEN_FULL


def leaves(model: Any, path: str) -> list[str]:
    found = []
    for field in model.model_fields.values():
        kind = field.annotation
        here = f"{path}.{field.alias}"
        found += leaves(kind, here) if hasattr(kind, "model_fields") else [here]
    return found


def test_no_field_of_the_config_was_forgotten() -> None:
    untouched = set(leaves(ConfigDeploy, "spec.config")) - set(CHANGES)
    assert untouched == {"spec.config.version", "spec.config.model.source"}


def test_image_and_cores_make_another_revision() -> None:
    assert name_of(FULL, image="other") != GOLDEN_FULL
    assert name_of(FULL, cpus_per_thread=1) != GOLDEN_FULL


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.config.model.source": "pvc://elsewhere/3"},
        {"spec.config.model.source": "s3://models/3", "spec.sourceSecretRef": {"name": "reader"}},
        {"spec.replicas": 7},
        {"spec.podLabels": {"team": "sales"}},
        {"spec.image": REMOVED},
        {"spec.rollout": REMOVED},
        {"spec.rollout.gates": {"cosine": {"min": 0.5}}},
        {"spec.service": {"port": 9090}},
        {"spec.placement.nodeSelector": {"zone": "b"}},
        {"spec.placement.tolerations": REMOVED},
        {"spec.placement.numa": "any"},
        {"spec.terminationGracePeriodSeconds": 5},
        {"spec.memory": "4096Mi"},
        {"spec.memory": REMOVED},
    ],
    ids=lambda changes: "".join(changes),
)
def test_what_changes_no_output_makes_no_revision(changes: dict[str, Any]) -> None:
    assert name_of(changed(FULL, changes)) == GOLDEN_FULL


@given(st.randoms())
def test_the_order_of_keys_makes_no_revision(random: Any) -> None:
    def shuffled(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        keys = list(node)
        random.shuffle(keys)
        return {key: shuffled(node[key]) for key in keys}

    assert name_of(shuffled(FULL)) == GOLDEN_FULL


@given(st.integers(1, 4096), st.sampled_from([(1, "Gi", 1024, "Mi"), (1, "Mi", 1024, "Ki"), (1, "M", 1000, "k")]))
def test_equal_memory_makes_one_revision(count: int, units: tuple[int, str, int, str]) -> None:
    coarse, unit, fine, smaller = units
    spellings = (f"{count * coarse}{unit}", f"{count * fine}{smaller}")
    assert len({name_of(changed(MINIMAL, {"spec.memory": text})) for text in spellings}) == 1


def test_the_order_of_isa_flags_makes_no_revision() -> None:
    flags = ["amx_int8", "avx512f"]
    names = {name_of(changed(FULL, {"spec.placement.requireIsa": f})) for f in (flags, flags[::-1])}
    assert len(names) == 1


@given(st.integers(1, 1024))
def test_a_name_fits_a_label_and_spells_no_word(threads: int) -> None:
    name = name_of(changed(MINIMAL, {"spec.config.threads": threads}))
    assert len(name) == LENGTH
    assert not set(name) & set("aeiou013")
    assert name.isalnum()


def test_other_gates_have_another_name() -> None:
    gates = [spec_of(changed(FULL, {"spec.rollout.gates.cosine.min": m})).rollout for m in (0.9, 0.95, 0.95)]
    hashes = [gates_hash(rollout.gates) for rollout in gates if rollout and rollout.gates]
    assert len(hashes) == 3
    assert len(set(hashes)) == 2
