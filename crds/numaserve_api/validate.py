"""Reading a resource or a config_deploy.yaml: a typed value, or sentences a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from numaserve_api.config import ConfigDeploy
from numaserve_api.resource import EncoderDeploymentSpec
from numaserve_api.unsupported import find_unsupported


class InvalidDocument(ValueError):
    """A document that does not parse; ``problems`` has one sentence a fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def sentences(error: ValidationError, root: str) -> list[str]:
    """One sentence a fault: where it is, what is wrong, and the value that was given."""
    return [_sentence(dict(fault), root) for fault in error.errors(include_url=False)]


def _sentence(fault: dict[str, Any], root: str) -> str:
    where = ".".join([root, *(str(part) for part in fault["loc"])])
    if fault["type"] == "extra_forbidden":
        return f"{where} is not a known field: correct the spelling or remove it"
    if fault["type"] == "missing":
        return f"{where} is required"
    given = repr(fault["input"])
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" + (f" (given {given})" if len(given) <= 80 else "")


def parse_spec(resource: Mapping[str, Any]) -> EncoderDeploymentSpec:
    """``spec`` of an EncoderDeployment. Raises InvalidDocument, also for fields not supported yet."""
    try:
        spec = EncoderDeploymentSpec.model_validate(resource.get("spec") or {})
    except ValidationError as error:
        raise InvalidDocument(sentences(error, "spec")) from error
    unsupported = find_unsupported(resource)
    if unsupported:
        raise InvalidDocument(unsupported)
    return spec


def parse_config(text: str) -> ConfigDeploy:
    """A config_deploy.yaml document. Raises InvalidDocument."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidDocument([f"config_deploy.yaml is not YAML: {error}"]) from error
    try:
        config = ConfigDeploy.model_validate(document)
    except ValidationError as error:
        raise InvalidDocument(sentences(error, "config")) from error
    unsupported = find_unsupported({"spec": {"config": document}})
    if unsupported:
        raise InvalidDocument(unsupported)
    return config
