"""The items that a filter chooses: those that a migration moves to a container of their own, and those that were moved
and are therefore no longer written where they were.

A filter is a condition of the SQL language on one item, and on nothing else: whether it holds must not change while the
item stays the same, or an item would be neither here nor there. Items of MongoDB's collections are seen as the SQL door
shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from armillary import limits, work
from armillary.account.catalog.container_state import MovedItems
from armillary.errors import bad_request
from armillary.languages.sql.compiling.compile import compile_condition
from armillary.languages.sql.library.context import Context
from armillary.model.documents import plain_json

_CHANGING: Final = re.compile(r"\b(?:rand|getcurrent\w*)\s*\(", re.IGNORECASE)

Chooses = Callable[[bytes], bool]  # of an item as it is stored


def chooser(text: str, context: Context) -> Chooses:
    """`text`: such as `c.tenantId = 'acme'`."""
    predicate = _predicate(text, context)

    def chooses(stored: bytes) -> bool:
        # It also runs inside transactions, which other requests wait for.
        return work.bounded(lambda: predicate(plain_json(stored)) is True, limits.PATCH_CONDITION_UNITS_MAX)

    return chooses


def _predicate(text: str, context: Context) -> Callable[[Any], Any]:
    if len(text) > limits.MOVED_FILTER_CHARACTERS_MAX:
        raise bad_request(f"A filter has at most {limits.MOVED_FILTER_CHARACTERS_MAX} characters.")
    compiled = compile_condition(text)
    if compiled.calls_functions or _CHANGING.search(text):
        raise bad_request("A filter depends on the item alone: no user-defined functions, RAND or GetCurrent… in it.")
    predicate = compiled.bind({}, context).predicate
    assert predicate is not None, "conditions have WHERE"
    return predicate


def fence_of(moved: Sequence[MovedItems], context: Context) -> Callable[[bytes], str | None] | None:
    """What tells to which container an item was moved; None: no item was."""
    return _Fence(moved, context).target_of if moved else None


class _Fence:
    """Compares an item with all filters, in the order in which items were moved."""

    def __init__(self, moved: Sequence[MovedItems], context: Context) -> None:
        self._choosers = [(chooser(each.filter, context), each.target) for each in moved]

    def target_of(self, stored: bytes) -> str | None:
        for chooses, target in self._choosers:
            if chooses(stored):
                return target
        return None
