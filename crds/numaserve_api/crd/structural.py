"""Lowering pydantic's JSON schema to a structural one.

The API server accepts no ``$ref``, no ``anyOf`` of types, no ``additionalProperties: false`` and prunes
what the schema does not name. Source: Kubernetes docs, "Specifying a structural schema".
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from numaserve_api.base import SENTENCE_KEY, CountOrPercent

Schema = dict[str, Any]
_DROPPED = {"title", "default", "$defs", "propertyNames", "const", "pattern", SENTENCE_KEY}
_LISTS_BY_KEY = {"conditions": ["type"], "placement": ["pod"], "history": ["revision"]}
_SETS = {"requireIsa"}
"""Lists without an order. Buckets and dimensions have one: merging two owners' sets would break it."""
INT_OR_STRING = "x-kubernetes-int-or-string"


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model, references resolved, keys in camelCase."""
    schema = model.model_json_schema(by_alias=True)
    return _lower(schema, schema.get("$defs", {}))


def add_rule(node: Schema, rule: str, message: str) -> None:
    """Append one CEL rule to a schema node."""
    node.setdefault("x-kubernetes-validations", []).append({"rule": rule, "message": message})


def _lower(node: Schema, definitions: dict[str, Schema], name: str = "") -> Schema:
    node = _flat(node, definitions)
    out = {k: v for k, v in node.items() if k not in _DROPPED}
    if "const" in node:
        out["enum"] = [node["const"]]
    if "properties" in node:
        out["properties"] = {key: _lower(value, definitions, key) for key, value in node["properties"].items()}
        out.pop("additionalProperties", None)
    elif values := _map_values(node):
        _lower_map(out, node, _lower(values, definitions))
    if "items" in node:
        out["items"] = _lower(node["items"], definitions)
        out |= _list_kind(name, out)
    _add_pattern(out, node)
    return out


def _flat(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """The node with its reference resolved and its null alternative dropped."""
    if reference := node.get("$ref"):
        rest = {k: v for k, v in node.items() if k != "$ref"}
        return _flat({**definitions[reference.rpartition("/")[2]], **rest}, definitions)
    if options := node.get("anyOf"):
        kept = [option for option in options if option.get("type") != "null"]
        if len(kept) != 1:
            raise ValueError(f"a union has no structural form: {kept}")
        rest = {k: v for k, v in node.items() if k != "anyOf"}
        return _flat({**kept[0], **rest}, definitions)
    return node


def _map_values(node: Schema) -> Schema | None:
    patterns = list(node.get("patternProperties", {}).values())
    values = node.get("additionalProperties")
    return patterns[0] if patterns else values if isinstance(values, dict) else None


def _lower_map(out: Schema, node: Schema, values: Schema) -> None:
    # A pattern of keys has no structural form: CEL looks at them.
    out["additionalProperties"] = values
    for pattern in out.pop("patternProperties", {}):
        keys = node["propertyNames"]
        add_rule(out, f"self.all(key, key.matches(r'{pattern}'))", f"every key {keys[SENTENCE_KEY]}")


def _add_pattern(out: Schema, node: Schema) -> None:
    if pattern := node.get("pattern"):
        add_rule(out, f"self.matches(r'{pattern}')", node[SENTENCE_KEY])
    if node.get(INT_OR_STRING):
        add_rule(out, CountOrPercent.CEL, CountOrPercent.SENTENCE)


def _list_kind(name: str, node: Schema) -> Schema:
    if name in _LISTS_BY_KEY and node["items"].get("type") == "object":
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": _LISTS_BY_KEY[name]}
    if name in _SETS:
        return {"x-kubernetes-list-type": "set"}
    return {"x-kubernetes-list-type": "atomic"}
