"""Reading a resource or a config_deploy.yaml: a typed value, or sentences a person can act on.

Read as strictly as the API server reads: camelCase names only, and no text taken for a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from numaserve_api.config import ConfigDeploy
from numaserve_api.resource import EncoderDeploymentSpec
from numaserve_api.rules import find_broken
from numaserve_api.unsupported import find_unsupported

Model = TypeVar("Model", bound=BaseModel)
MAX_GIVEN = 80
"""Longest value repeated in a sentence, in characters."""


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
    message = str(fault["msg"]).removeprefix("Value error, ")
    if message.startswith("spec."):
        return message
    given = repr(fault["input"])
    return f"{where}: {message}" + (f" (given {given})" if len(given) <= MAX_GIVEN else "")


def parse_spec(resource: Mapping[str, Any]) -> EncoderDeploymentSpec:
    """``spec`` of an EncoderDeployment. Raises InvalidDocument, also for fields not supported yet."""
    spec = _parse(EncoderDeploymentSpec, resource.get("spec") or {}, "spec")
    _check({"metadata": resource.get("metadata"), "spec": _written(spec)})
    return spec


def parse_config(text: str, deploy: bool = True) -> ConfigDeploy:
    """A config_deploy.yaml document. Raises InvalidDocument, with ``deploy`` also for what cannot be served yet."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidDocument([f"config_deploy.yaml is not YAML: {error}"]) from error
    try:
        config = _parse(ConfigDeploy, document, "spec.config")
        document = {"spec": {"config": _written(config)}}
        _check(document) if deploy else _refuse(find_broken(document))
    except InvalidDocument as error:
        # In this file the document is the whole file, not a part of a resource.
        raise InvalidDocument([p.replace("spec.config", "config") for p in error.problems]) from error
    return config


def _parse(model: type[Model], document: Any, root: str) -> Model:
    text = json.dumps(document, default=str)
    try:
        return model.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidDocument(sentences(error, root)) from error


def _written(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def _check(resource: Mapping[str, Any]) -> None:
    _refuse([*find_broken(resource), *find_unsupported(resource)])


def _refuse(problems: list[str]) -> None:
    if problems:
        raise InvalidDocument(problems)
