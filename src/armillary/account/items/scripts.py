"""Stored procedures, triggers and user-defined functions as resources. Running them is `scripts/`."""

from __future__ import annotations

from typing import Any

from armillary.account.catalog.container_state import Body
from armillary.errors import bad_request
from armillary.model.items import strip_system_properties, validate_name
from armillary.model.resources import ResourceType

_TRIGGER_TYPES = ("Pre", "Post")
_TRIGGER_OPERATIONS = ("All", "Create", "Update", "Delete", "Replace")


def script_body(resource_type: ResourceType, given: Any) -> tuple[str, Body]:
    """The name and the body to store, or a refusal that says what is wrong."""
    if not isinstance(given, dict):
        raise bad_request("A script must be a JSON object with 'id' and 'body'.")
    name = validate_name(given.get("id"))
    body = {each: value for each, value in strip_system_properties(given).items() if value is not None}
    wanted = {"body"}
    if resource_type is ResourceType.TRIGGER:
        wanted |= {"triggerType", "triggerOperation"}
    missing = sorted(wanted - body.keys())
    if missing:
        names = "; ".join([*missing, ""])
        raise bad_request(f"The input content is invalid because the required properties - '{names}' - are missing")
    if not isinstance(body["body"], str) or not body["body"]:
        raise bad_request(f"The 'body' of {resource_type.value} '{name}' must be its JavaScript source as a string.")
    if resource_type is ResourceType.TRIGGER:
        # Kept as written: Python says "pre" and wants to read that back.
        _check_choice(body, "triggerType", _TRIGGER_TYPES)
        _check_choice(body, "triggerOperation", _TRIGGER_OPERATIONS)
    unknown = sorted(body.keys() - wanted - {"id"})
    if unknown:
        raise bad_request(f"Unknown property '{unknown[0]}' in {resource_type.value} '{name}'.")
    return name, body


def _check_choice(body: Body, name: str, choices: tuple[str, ...]) -> None:
    value = body.get(name)
    if isinstance(value, str) and value.lower() in [choice.lower() for choice in choices]:
        return
    raise bad_request(f"'{name}' must be one of {', '.join(choices)}, not {value!r}.")
