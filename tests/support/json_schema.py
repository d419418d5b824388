"""Validation of JSON against the part of JSON Schema that the schemas of the documentation use; other keywords are
refused, so that none is thought to be checked."""

from __future__ import annotations

from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {"type", "const", "enum", "required", "properties", "additionalProperties", "items", "maxItems", "$ref"}
_SPOKEN = {"$schema", "title", "$defs", "description"}


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, place: str = "$") -> list[str]:
    """Where a value is not as its schema says."""
    root = schema if root is None else root
    unknown = schema.keys() - _KNOWN - _SPOKEN
    assert not unknown, f"{place}: the keywords {sorted(unknown)} are not checked here"
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return faults(value, target, root, place)
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{place} is {value!r}, not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place} is {value!r}, none of {schema['enum']}")
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return [*found, f"{place} is {type(value).__name__}, not {' or '.join(kinds)}"]
    if isinstance(value, dict):
        found += [f"{place}.{name} is missing" for name in schema.get("required", ()) if name not in value]
        members = schema.get("properties", {})
        for name, member in value.items():
            if name in members:
                found += faults(member, members[name], root, f"{place}.{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{place}.{name} is not in the schema")
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            found.append(f"{place} has {len(value)} items")
        for index, item in enumerate(value):
            found += faults(item, schema.get("items", {}), root, f"{place}[{index}]")
    return found


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])
