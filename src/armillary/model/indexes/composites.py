"""Composite indexes: several paths of an item as one index term, for ordering by all of them and filtering by several.
An item has one term in each, or one for each element when the paths go through an array; what is missing counts as
UNDEFINED, so that every indexed item is there. Choosing one for a query is for `query/access/composite_access.py`.

A tuple path of a policy is the same for filters alone: elements without any of its members, and items without
elements, are not there.

The term is the concatenation of `encode_term` of the values; the bytes of descending parts are inverted. Terms are
prefix-free, so the concatenation sorts by the first part, then the second, and so on. The name of the index in place of
a path is `(/a asc,/b desc)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from armillary import limits, work
from armillary.errors import bad_request
from armillary.model.encoding import encode_term
from armillary.model.indexes.index_paths import (
    BARE,
    IndexPath,
    Steps,
    bad_index_path,
    parse_index_path,
    path_text,
    values_at,
)
from armillary.model.items import SYSTEM_PROPERTIES
from armillary.model.json_members import INVALID_INPUT, members, shown
from armillary.model.values import UNDEFINED

_INVERTED = bytes(255 - byte for byte in range(256))
TUPLE_NAME = "tuple:"  # begins the index name, which stands in place of a path
_ORDERS = ("ascending", "descending")


@dataclass(frozen=True, slots=True)
class CompositeIndex:
    name: str
    paths: tuple[Steps, ...]
    is_descending: tuple[bool, ...]
    keys: tuple[tuple[str, bool], ...]  # the same as text, path by path
    array: Steps  # up to and including the last array step that the paths share; () when none goes through an array
    # For each path: whether it continues `array`, and the property names from there (or from the item).
    _ways: tuple[tuple[bool, tuple[str, ...]], ...]
    _absent: bytes = b""  # of a tuple: the term of an element that has none of its members

    @classmethod
    def parse(cls, entries: list[Any]) -> CompositeIndex:
        if not limits.COMPOSITE_PATHS_MIN <= len(entries) <= limits.COMPOSITE_PATHS_MAX:
            raise bad_request(
                f"A composite index has {limits.COMPOSITE_PATHS_MIN} to {limits.COMPOSITE_PATHS_MAX} paths, "
                f"not {len(entries)}."
            )
        paths: list[Steps] = []
        orders: list[bool] = []
        for entry in entries:
            entry = members(entry, "compositeIndexes", {"path", "order"})
            text, order = entry.get("path"), entry.get("order", "ascending")
            if type(text) is not str:
                raise bad_request(f"{INVALID_INPUT}: every entry of a composite index needs a 'path', a string.")
            parsed = parse_index_path(text, allows_bare=True)
            if parsed.ending != BARE:
                # A composite path always names a scalar: `/?` is implied and `/*` is refused.
                raise bad_index_path(text, len(text) - 1)
            if parsed.steps in paths:
                raise bad_request(f"The path '{shown(text)}' stands twice in one composite index. Remove one.")
            if order not in _ORDERS:
                raise bad_request(f"{INVALID_INPUT}: order must be 'ascending' or 'descending', not '{shown(order)}'.")
            paths.append(parsed.steps)
            orders.append(order == "descending")
        return cls._of(_name(paths, orders), paths, orders)

    @classmethod
    def of_tuple(cls, path: IndexPath) -> CompositeIndex:
        """The index of `/events/[]/{name, category}/?`."""
        paths: list[Steps] = [(*path.steps, *member) for member in path.members]
        absent = encode_term(UNDEFINED) * len(paths)
        return cls._of(f"{TUPLE_NAME}{path.text}", paths, [False] * len(paths), absent)

    @classmethod
    def _of(cls, name: str, paths: list[Steps], orders: list[bool], absent: bytes = b"") -> CompositeIndex:
        array = _shared_array(paths)
        ways = tuple(_way(steps, array) for steps in paths)
        keys = tuple([(path_text(steps), is_descending) for steps, is_descending in zip(paths, orders, strict=True)])
        return cls(name, tuple(paths), tuple(orders), keys, array, ways, absent)

    def terms(self, document: Mapping[str, Any], ts: int) -> set[bytes]:
        terms = {self._term(document, element, ts) for element in self._elements(document)}
        if self._absent:
            terms.discard(self._absent)
        return terms

    def _elements(self, document: Any) -> Iterator[Any]:
        """The elements of the array that the paths go through; UNDEFINED once if there is none."""
        if not self.array:
            yield UNDEFINED
            return
        for portion in work.portions(values_at(document, self.array) or [UNDEFINED], 30):
            yield from portion

    def _term(self, document: Any, element: Any, ts: int) -> bytes:
        parts = []
        for (is_inside, names), is_descending in zip(self._ways, self.is_descending, strict=True):
            term = encode_term(_value(element if is_inside else document, names, ts, is_top=not is_inside))
            parts.append(term.translate(_INVERTED) if is_descending else term)
        return b"".join(parts)


def _name(paths: list[Steps], orders: list[bool]) -> str:
    words = (
        f"{path_text(steps)} {'desc' if is_descending else 'asc'}"
        for steps, is_descending in zip(paths, orders, strict=True)
    )
    return f"({','.join(words)})"


def _shared_array(paths: list[Steps]) -> Steps:
    arrays = {_array_part(steps) for steps in paths if None in steps}
    if len(arrays) > 1:
        raise bad_request(
            "The paths of a composite index may go through one array only; "
            f"found {', '.join(sorted(shown(path_text(steps)) for steps in arrays))}."
        )
    return arrays.pop() if arrays else ()


def _array_part(steps: Steps) -> Steps:
    last = max(position for position, step in enumerate(steps) if step is None)
    return steps[: last + 1]


def _way(steps: Steps, array: Steps) -> tuple[bool, tuple[str, ...]]:
    is_inside = bool(array) and None in steps
    rest = steps[len(array) :] if is_inside else steps
    return is_inside, tuple(step for step in rest if step is not None)


def _value(node: Any, names: tuple[str, ...], ts: int, *, is_top: bool) -> Any:
    if is_top and names[0] in SYSTEM_PROPERTIES:
        # The document may or may not have its system properties yet: `_ts` is known, the others cannot be sorted by.
        return ts if names == ("_ts",) else UNDEFINED
    for name in names:
        if type(node) is not dict or name not in node:
            return UNDEFINED
        node = node[name]
    return node
