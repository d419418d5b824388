"""The order of ORDER BY as bytes: by types and values, each key ascending or descending, all arrays and all objects
equal among themselves. Two items whose bytes are equal follow each other in the order of their rids, or the other way
round when the first key descends.

An order, like a term of the index, is cut where it gets long (QUERY_ORDER_BYTES_MAX for each key), so that a position
fits a continuation. For one key, the index's term is a prefix of the order or the order itself.
"""

from __future__ import annotations

from typing import Any

from armillary import limits
from armillary.errors import Failure, bad_request
from armillary.model.encoding import ARRAY_MARK, OBJECT_MARK, encode_value
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.values import Value
from armillary.query.selection import Ordering

_INVERTED = bytes(255 - byte for byte in range(256))
_CUT = b"\x01"

_NO_COMPOSITE = "The order by query does not have a corresponding composite index that it can be served from."
_EXCLUDED = "The index path corresponding to the specified order-by item is excluded."


def order_bytes(ordering: Ordering, document: Any) -> bytes:
    """Where an item stands: ascending bytes, to be read backwards when the first key descends."""
    if ordering.place is not None:
        return ordering.place(document)
    values = ordering.values(document)
    if len(values) == 1:
        return value_order(values[0])
    is_descending = ordering.keys[0].is_descending
    parts = []
    for key, value in zip(ordering.keys, values, strict=True):
        part = value_order(value)
        parts.append(part if key.is_descending == is_descending else part.translate(_INVERTED))
    return b"".join(parts)


def value_order(value: Value) -> bytes:
    kind = value.__class__
    if kind is list:
        return ARRAY_MARK
    if kind is dict:
        return OBJECT_MARK
    if kind is str:
        encoded = encode_value(value[: limits.QUERY_ORDER_BYTES_MAX])  # type: ignore[index]
        if len(encoded) > limits.QUERY_ORDER_BYTES_MAX:
            return encoded[: limits.QUERY_ORDER_BYTES_MAX - 1] + _CUT
        return encoded
    return encode_value(value)


def check_order(ordering: Ordering, policy: IndexingPolicy) -> None:
    """Refuse an order that the container's indexes cannot give, as the service does. Computed properties, which no
    index knows here, are sorted instead."""
    paths = [key.path for key in ordering.keys]
    if any(path is None for path in paths):
        return
    if len(paths) > 1:
        if composite_name(ordering, policy) is None:
            raise _no_composite(ordering)
    elif paths[0] is not None and not policy.is_indexed(paths[0]):
        raise bad_request(f"{_EXCLUDED} Include {paths[0]} in the indexing policy to order by it.")


def composite_name(ordering: Ordering, policy: IndexingPolicy) -> tuple[str, bool] | None:
    """The composite index with these paths in this sequence, all in these orders or all in the opposite ones, and
    whether it is the opposite."""
    if policy.mode == "none":
        return None
    names = {composite.name for composite in policy.composites}
    for is_opposite in (False, True):
        words = [f"{key.path} {'desc' if key.is_descending != is_opposite else 'asc'}" for key in ordering.keys]
        name = f"({','.join(words)})"
        if name in names:
            return name, is_opposite
    return None


def _no_composite(ordering: Ordering) -> Failure:
    words = ", ".join([f"{key.path} {'DESC' if key.is_descending else 'ASC'}" for key in ordering.keys])
    if any("/[]" in (key.path or "") for key in ordering.keys):
        return bad_request(f"{_NO_COMPOSITE} Composite indexes have no elements of arrays: order by one of them alone.")
    return bad_request(f"{_NO_COMPOSITE} It needs one on ({words}).")
