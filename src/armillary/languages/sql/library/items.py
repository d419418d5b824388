"""Functions that belong to no type: choosing between two values, and the number of an item."""

from __future__ import annotations

from typing import Any

from armillary.model.resources import item_number, rid_bytes
from armillary.model.values import UNDEFINED, Value


def if_else(condition: Any, then: Any, otherwise: Any) -> Value:
    """Only true is true."""
    return then if condition is True else otherwise  # type: ignore[no-any-return]


def document_id(item: Any) -> Value:
    """The number inside an item's `_rid`; undefined for anything but a stored item."""
    text = item.get("_rid") if item.__class__ is dict else None
    if text.__class__ is not str:
        return UNDEFINED
    rid = rid_bytes(text)
    number = item_number(rid) if rid is not None else None
    return UNDEFINED if number is None else number
