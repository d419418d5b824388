"""Ordered queries as clients that merge partitions send them to one: each row carries its order keys and its payload
(`partials` writes them so). Such a client goes on from a continuation of its own with another filter in the same query,
so that is left out of what the partition's continuations are bound to; `cursor` binds them.
"""

from __future__ import annotations

from armillary.languages.sql.syntax import tree

_NAMES = (None, "orderByItems", "payload")


def frame_of(text: str, query: tree.Query) -> str | None:
    """The text of such a query without its filter; None if it is another one. A place in the order is the same place
    whatever the filter leaves out."""
    if query.where is None or not query.order_by or tuple(item.alias for item in query.select.items) != _NAMES:
        return None
    return text[: query.where.start].rstrip("( ") + " " + text[query.order_by[0].start :]
