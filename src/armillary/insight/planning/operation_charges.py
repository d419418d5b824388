"""Request units of operations that have not happened yet, by kind, size and index terms. All prices are those of
`model/charges.py`, which charges the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.model import charges
from armillary.model.charges import QueryWork

KINDS = ("read", "create", "upsert", "replace", "patch", "delete", "batch", "query")
WRITES = frozenset(("create", "upsert", "replace", "patch", "delete", "batch"))


@dataclass(frozen=True, slots=True)
class ItemShape:
    """Of the items that an operation is about."""

    size_bytes: int = 1024  # as stored
    terms: int = 10  # index terms of one item


@dataclass(frozen=True, slots=True)
class QueryShape:
    """Of a query: how many rows it returns and loads in all, and what it does in the index of each partition."""

    rows: float = 1.0  # returned
    loaded: float = 0.0  # items loaded, returned ones included
    seeks: int = 1


def read_ru(item: ItemShape, factor: int = 1) -> float:
    return charges.read_ru(item.size_bytes, factor)


def create_ru(item: ItemShape) -> float:
    return charges.create_ru(item.size_bytes, item.terms)


def delete_ru(item: ItemShape) -> float:
    return charges.delete_ru(item.size_bytes, item.terms)


def replace_ru(item: ItemShape, changed_values: int = 1) -> float:
    """A changed value removes one index term and adds another."""
    return charges.replace_ru(item.size_bytes, item.size_bytes, 2 * changed_values)


def patch_ru(item: ItemShape, changed_values: int = 1, operations: int = 1) -> float:
    return replace_ru(item, changed_values) + charges.PATCH_OPERATION_RU * operations


def upsert_ru(item: ItemShape, existing_share: float = 1.0, changed_values: int = 1) -> float:
    """The mean of creating and of replacing, by the share that exists already."""
    return existing_share * replace_ru(item, changed_values) + (1.0 - existing_share) * create_ru(item)


def batch_ru(item: ItemShape, creates: int) -> float:
    """A transactional batch of creates."""
    return creates * create_ru(item)


def query_visit_ru(query: QueryShape, factor: int = 1) -> float:
    """What each visited partition charges, before any row."""
    return charges.query_page_ru(QueryWork(partitions_begun=1, seeks=query.seeks), factor)


def query_rows_ru(query: QueryShape, item: ItemShape, factor: int = 1) -> float:
    """What the rows cost, wherever they lie."""
    unreturned = max(0.0, query.loaded - query.rows)
    work = QueryWork(
        returned_ru=query.rows * charges.read_ru(item.size_bytes), loaded_bytes=round(unreturned * item.size_bytes)
    )
    return charges.query_page_ru(work, factor)


def query_ru(query: QueryShape, item: ItemShape, partitions: float = 1.0, factor: int = 1) -> float:
    """A query that visits so many partitions."""
    return partitions * query_visit_ru(query, factor) + query_rows_ru(query, item, factor)
