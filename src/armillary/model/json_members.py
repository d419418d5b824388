"""The shape of JSON that a client gave: members by name, and how much of the input a message repeats. What the members
mean is for those who ask.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from armillary.errors import bad_request

# The service's words for anything of the wrong shape.
INVALID_INPUT = "One of the specified inputs is invalid"

_SHOWN_CHARACTERS_MAX = 100


def members(given: Any, what: str, known: Set[str]) -> dict[str, Any]:
    """The given object, refused if it is none or has a member that is not known."""
    if type(given) is not dict:
        raise bad_request(f"{INVALID_INPUT}: {what} must be made of JSON objects with {', '.join(sorted(known))}.")
    for name in given:
        if name not in known:
            raise bad_request(
                f"{INVALID_INPUT}: {what} has no member '{shown(name)}'. Known are {', '.join(sorted(known))}."
            )
    return given


def shown(value: Any) -> str:
    """A given value in a message: never more of it than helps."""
    text = value if type(value) is str else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
