"""The updates of the service's procedure `__.sys.bulkPatch`: changes of single fields, whose names have dots. Objects
that are missing on the way are made, as MongoDB's operators of the same names do; `model/patch.py` refuses that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from armillary import limits
from armillary.errors import Failure, Kind, bad_request
from armillary.model.items import SYSTEM_PROPERTIES, check_depth
from armillary.model.json_members import shown

UPDATES_MAX: Final = 100  # of one item
_MEMBERS: Final = frozenset(("type", "field", "value", "slice", "position"))


@dataclass(frozen=True, slots=True)
class FieldUpdate:
    """Made by `parse_updates`."""

    kind: str
    steps: tuple[str, ...]
    value: Any


def parse_updates(given: Any) -> list[FieldUpdate]:
    if not isinstance(given, list) or not 0 < len(given) <= UPDATES_MAX:
        raise bad_request(f"'updates' of an item must be a list of 1 to {UPDATES_MAX} updates.")
    return [_parse(each) for each in given]


def _parse(given: Any) -> FieldUpdate:
    if not isinstance(given, dict) or not given.keys() <= _MEMBERS:
        raise bad_request("An update must be an object with 'type', 'field' and 'value'.")
    kind, field, value = given.get("type"), given.get("field"), given.get("value")
    if not isinstance(kind, str) or kind not in _APPLIED:
        known = ", ".join(_APPLIED)
        raise Failure(Kind.UNSUPPORTED, f"Updates of the type '{shown(kind)}' are not offered; known are {known}.")
    if given.get("slice") is not None or given.get("position") is not None:
        raise Failure(Kind.UNSUPPORTED, "'slice' and 'position' of an update are not offered.")
    steps = tuple(field.split(".")) if isinstance(field, str) else ()
    if not steps or not all(steps) or len(steps) > limits.ITEM_DEPTH_MAX:
        raise bad_request(f"The field '{shown(field)}' of an update is not a name such as address.city.")
    if steps[0] == "id" or steps[0] in SYSTEM_PROPERTIES:
        raise bad_request(f"The field '{steps[0]}' cannot be updated.")
    if kind == "Inc" and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise bad_request("The value of an Inc must be a number.")
    if kind == "Push" and not isinstance(value, list):
        raise bad_request("The value of a Push must be a list of values.")
    return FieldUpdate(kind, steps, value)


def apply_updates(document: dict[str, Any], updates: list[FieldUpdate]) -> dict[str, Any]:
    """Changes the document. Refuses what does not fit it."""
    for each in updates:
        _APPLIED[each.kind](document, each)
    check_depth(document)
    return document


def _holder(document: dict[str, Any], update: FieldUpdate, *, makes: bool) -> dict[str, Any] | None:
    """The object that holds the field; None: there is none."""
    place = document
    for step in update.steps[:-1]:
        if step not in place:
            if not makes:
                return None
            place[step] = {}
        below = place[step]
        if not isinstance(below, dict):
            raise bad_request(f"The field '{'.'.join(update.steps)}' lies in '{step}', which is not an object.")
        place = below
    return place


def _set(document: dict[str, Any], update: FieldUpdate) -> None:
    holder = _holder(document, update, makes=True)
    assert holder is not None
    holder[update.steps[-1]] = update.value


def _unset(document: dict[str, Any], update: FieldUpdate) -> None:
    holder = _holder(document, update, makes=False)
    if holder is not None:
        holder.pop(update.steps[-1], None)


def _increment(document: dict[str, Any], update: FieldUpdate) -> None:
    holder = _holder(document, update, makes=True)
    assert holder is not None
    present = holder.get(update.steps[-1], 0)
    if not isinstance(present, int | float) or isinstance(present, bool):
        raise bad_request(f"The field '{'.'.join(update.steps)}' is not a number, so it cannot be incremented.")
    holder[update.steps[-1]] = present + update.value


def _push(document: dict[str, Any], update: FieldUpdate) -> None:
    holder = _holder(document, update, makes=True)
    assert holder is not None
    present = holder.setdefault(update.steps[-1], [])
    if not isinstance(present, list):
        raise bad_request(f"The field '{'.'.join(update.steps)}' is not an array, so nothing can be pushed to it.")
    present.extend(update.value)


def _remove(document: dict[str, Any], update: FieldUpdate) -> None:
    holder = _holder(document, update, makes=False)
    present = holder.get(update.steps[-1]) if holder is not None else None
    if present is None or holder is None:
        return
    if not isinstance(present, list):
        raise bad_request(f"The field '{'.'.join(update.steps)}' is not an array, so nothing can be removed from it.")
    holder[update.steps[-1]] = [each for each in present if not _is_same(each, update.value)]


def _is_same(one: Any, other: Any) -> bool:
    """As JSON: 1 is not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


_APPLIED: Final[dict[str, Callable[[dict[str, Any], FieldUpdate], None]]] = {
    "Set": _set,
    "Unset": _unset,
    "Inc": _increment,
    "Push": _push,
    "Remove": _remove,
}
