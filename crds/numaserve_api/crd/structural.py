"""Lowering pydantic's JSON schema to a structural one.

The API server accepts no ``$ref``, no ``anyOf`` of types, no ``additionalProperties: false`` and prunes
what the schema does not name. Source: Kubernetes docs, "Specifying a structural schema".
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]
_DROPPED = {"title", "default", "$defs", "propertyNames", "const"}
_LISTS_BY_KEY = {"conditions": ["type"], "placement": ["pod"], "history": ["revision"]}
_SETS = {"buckets", "dimensions", "requireIsa"}


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model, references resolved, keys in camelCase."""
    schema = model.model_json_schema(by_alias=True)
    return _lower(schema, schema.get("$defs", {}))


def _lower(node: Schema, definitions: dict[str, Schema], name: str = "") -> Schema:
    node = _resolve(node, definitions)
    kept = [option for option in node.get("anyOf", []) if option.get("type") != "null"]
    if kept:
        rest = {k: v for k, v in node.items() if k != "anyOf"}
        if len(kept) > 1:
            return _int_or_string(kept, rest)
        return _lower({**_resolve(kept[0], definitions), **rest}, definitions, name)
    out = {k: v for k, v in node.items() if k not in _DROPPED}
    if "const" in node:
        out["enum"] = [node["const"]]
    if "properties" in node:
        out["properties"] = {key: _lower(value, definitions, key) for key, value in node["properties"].items()}
        out.pop("additionalProperties", None)
    elif values := _map_values(node):
        out.pop("patternProperties", None)
        out["additionalProperties"] = _lower(values, definitions)
    if "items" in node:
        out["items"] = _lower(node["items"], definitions)
        out |= _list_kind(name, out)
    return out


def _map_values(node: Schema) -> Schema | None:
    # A key pattern has no structural form; keys are checked by CEL or not at all.
    patterns = list(node.get("patternProperties", {}).values())
    values = node.get("additionalProperties")
    return patterns[0] if patterns else values if isinstance(values, dict) else None


def _resolve(node: Schema, definitions: dict[str, Schema]) -> Schema:
    while "$ref" in node or "allOf" in node:
        reference = node.get("$ref") or node["allOf"][0]["$ref"]
        rest = {k: v for k, v in node.items() if k not in ("$ref", "allOf")}
        node = {**definitions[reference.rpartition("/")[2]], **rest}
    return node


def _int_or_string(options: list[Schema], rest: Schema) -> Schema:
    kinds = {option["type"] for option in options}
    if kinds != {"integer", "string"}:
        raise ValueError(f"a union of {sorted(kinds)} has no structural form")
    patterns = {k: v for o in options if o["type"] == "string" for k, v in o.items() if k in ("pattern", "maxLength")}
    return {**{k: v for k, v in rest.items() if k not in _DROPPED}, **patterns, "x-kubernetes-int-or-string": True}


def _list_kind(name: str, node: Schema) -> Schema:
    if name in _LISTS_BY_KEY and node["items"].get("type") == "object":
        return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": _LISTS_BY_KEY[name]}
    if name in _SETS:
        return {"x-kubernetes-list-type": "set"}
    return {"x-kubernetes-list-type": "atomic"}
