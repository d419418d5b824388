"""Checks of JSON objects that clients send: known members only, and values shortened for messages. Interpreting the
members is left to the callers.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from armillary.errors import bad_request

# The service's words for input of the wrong form.
INVALID_INPUT = "One of the specified inputs is invalid"

_SHOWN_CHARACTERS_MAX = 100


def members(given: Any, what: str, known: Set[str]) -> dict[str, Any]:
    """The given value, refused if it is not an object or has an unknown member."""
    if type(given) is not dict:
        raise bad_request(f"{INVALID_INPUT}: {what} must be made of JSON objects with {', '.join(sorted(known))}.")
    for name in given:
        if name not in known:
            raise bad_request(
                f"{INVALID_INPUT}: {what} has no member '{shown(name)}'. Known are {', '.join(sorted(known))}."
            )
    return given


def shown(value: Any) -> str:
    """A client's value as quoted in a message, shortened."""
    text = value if type(value) is str else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
