"""The request-unit model: what each piece of work costs. Pure functions from sizes and counts to request units, each
beside an itemised form that names the parts of the sum. Which work was done is for `partition` and `query` to say;
budgets and 429 are in `partition/budget.py`.

    read(s)          = interp(READ, s) * k            k = 2 for strong and bounded staleness, else 1
    create(s, t)     = interp(WRITE, s) + 0.2 * t     delete the same
    replace(s0,s1,d) = interp(WRITE, s0) + interp(WRITE, s1) + 0.2 * d
    patch            = replace + 0.4 * operations
    feed page        = sum of reads, at least k
    query page       = see query_page_ru

The size anchors and the write constants are the service's published figures, at its 1 KB granularity; the query
constants were fitted to published examples (docs/request-units.md has the table and the differences).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from armillary import limits

# Request units by stored size in KB; linear in between, flat below 1 KB, in proportion above 2 MB.
READ_ANCHORS: tuple[tuple[int, float], ...] = (
    (1, 1.00),
    (2, 1.04),
    (4, 1.14),
    (8, 1.33),
    (16, 1.67),
    (32, 2.19),
    (64, 4.76),
    (100, 10.0),
    (128, 10.0),
    (256, 20.28),
    (512, 40.95),
    (1024, 145.9),
    (2048, 291.8),
)
WRITE_ANCHORS: tuple[tuple[int, float], ...] = (
    (1, 5.00),
    (2, 6.29),
    (4, 6.67),
    (8, 7.04),
    (16, 9.52),
    (32, 11.23),
    (64, 22.67),
    (100, 49.0),
    (128, 49.0),
    (256, 98.29),
    (512, 184.57),
    (1024, 625.0),
    (2048, 1250.0),
)

TERM_RU = 0.2
PATCH_OPERATION_RU = 0.4
THROTTLED_RU = 0.38  # reported for 429 answers
# The service gives "1-2" for metadata reads and nothing for metadata writes; our choices:
METADATA_READ_RU = 1.0  # one database, container, script, user, permission, key, offer; pkranges
METADATA_FEED_RU = 2.0  # a list or query of those
METADATA_WRITE_RU = 4.95  # the published price of the smallest write
QUERY_PLAN_RU = 1.0

PARTITION_VISIT_RU = 2.25
SEEK_RU = 0.25
PRECISE_SCAN_RU = 0.25
EXPANDED_SCAN_RU = 0.5
INDEX_SCAN_RU = 0.25
INDEX_SCAN_VALUE_RU = 0.0005
RETURNED_SHARE = 0.6
LOADED_KB_RU = 0.010393
JOINED_TUPLE_RU = 0.01
SORTED_ROW_RU = 0.075
UDF_CALL_RU = 0.1


@dataclass(frozen=True, slots=True)
class Part:
    """One line of an itemised charge."""

    what: str
    ru: float
    count: int = 0  # how many units of work it covers, where they can be counted
    size_bytes: int = 0  # their size, where it matters


def _steps(anchors: tuple[tuple[int, float], ...]) -> tuple[list[int], list[tuple[float, float]]]:
    """Sizes in bytes where a segment begins, and for each segment (value at size 0 of its line, units per byte)."""
    begins, lines = [], []
    for (size, ru), (next_size, next_ru) in pairwise(anchors):
        per_byte = (next_ru - ru) / ((next_size - size) * limits.KB)
        begins.append(size * limits.KB)
        lines.append((ru - per_byte * size * limits.KB, per_byte))
    last_size, last_ru = anchors[-1]
    begins.append(last_size * limits.KB)
    lines.append((0.0, last_ru / (last_size * limits.KB)))
    return begins, lines


_READ_BEGINS, _READ_LINES = _steps(READ_ANCHORS)
_WRITE_BEGINS, _WRITE_LINES = _steps(WRITE_ANCHORS)
_FLAT_BYTES = limits.KB


def consistency_factor(level: str) -> int:
    """k: reads at strong and bounded staleness ask two replicas and cost double."""
    return 2 if level in ("Strong", "BoundedStaleness") else 1


def read_ru(size_bytes: int, factor: int = 1) -> float:
    if size_bytes <= _FLAT_BYTES:
        return float(factor)
    at_zero, per_byte = _READ_LINES[bisect_right(_READ_BEGINS, size_bytes) - 1]
    return (at_zero + per_byte * size_bytes) * factor


def rows_ru(rows: Iterable[bytes]) -> float:
    """The same for each of many, one after the other."""
    total = 0.0
    for row in rows:
        size_bytes = len(row)
        if size_bytes <= _FLAT_BYTES:
            total += 1.0
        else:
            at_zero, per_byte = _READ_LINES[bisect_right(_READ_BEGINS, size_bytes) - 1]
            total += at_zero + per_byte * size_bytes
    return total


def write_ru(size_bytes: int) -> float:
    """The storage part of a write, index not included."""
    if size_bytes <= _FLAT_BYTES:
        return 5.0
    at_zero, per_byte = _WRITE_LINES[bisect_right(_WRITE_BEGINS, size_bytes) - 1]
    return at_zero + per_byte * size_bytes


def create_ru(size_bytes: int, terms: int) -> float:
    return write_ru(size_bytes) + TERM_RU * terms


def delete_ru(size_bytes: int, terms: int) -> float:
    return write_ru(size_bytes) + TERM_RU * terms


def replace_ru(old_bytes: int, new_bytes: int, terms_changed: int) -> float:
    """`terms_changed` = terms removed + terms added. An upsert costs this, or a create when nothing was there; a patch
    this and `PATCH_OPERATION_RU` for each of its operations."""
    return write_ru(old_bytes) + write_ru(new_bytes) + TERM_RU * terms_changed


def failed_read_ru(factor: int = 1) -> float:
    """Not found, not modified, or a failed precondition."""
    return float(factor)


def failed_write_ru(size_bytes: int = 0) -> float:
    """A refused write costs what reading the item it looked at costs."""
    return read_ru(size_bytes)


def feed_page_ru(sizes_bytes: Iterable[int], factor: int = 1) -> float:
    return max(float(factor), sum(read_ru(size) for size in sizes_bytes) * factor)


@dataclass(slots=True)
class QueryWork:
    """What one page of a query did. The index part counts only on a partition's first page, so that the charges of
    the pages add up to the charge of the whole in one page."""

    partitions_begun: int = 0
    seeks: int = 0
    precise_scans: int = 0
    expanded_scans: int = 0
    index_scans: int = 0
    index_scan_values: int = 0  # distinct values read by full index scans
    returned_ru: float = 0.0  # sum of read_ru over the returned items or projections
    loaded_bytes: int = 0  # of items loaded and not returned
    joined_tuples: int = 0
    sorted_rows: int = 0  # without a composite index
    udf_calls: int = 0


def query_page_ru(work: QueryWork, factor: int = 1) -> float:
    return factor * (
        PARTITION_VISIT_RU * work.partitions_begun
        + SEEK_RU * work.seeks
        + PRECISE_SCAN_RU * work.precise_scans
        + EXPANDED_SCAN_RU * work.expanded_scans
        + INDEX_SCAN_RU * work.index_scans
        + INDEX_SCAN_VALUE_RU * work.index_scan_values
        + RETURNED_SHARE * work.returned_ru
        + LOADED_KB_RU * work.loaded_bytes / limits.KB
        + JOINED_TUPLE_RU * work.joined_tuples
        + SORTED_ROW_RU * work.sorted_rows
        + UDF_CALL_RU * work.udf_calls
    )


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Divide a whole number into whole parts that add up to it, as near to the weights as possible."""
    weight = sum(weights)
    if weight <= 0:
        return [total, *[0] * (len(weights) - 1)]
    exact = [total * each / weight for each in weights]
    parts = [int(each) for each in exact]
    by_remainder = sorted(range(len(parts)), key=lambda index: parts[index] - exact[index])
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return parts


# The same sums, itemised for explanations. Each adds up to its plain form.


def read_parts(size_bytes: int, factor: int = 1) -> tuple[Part, ...]:
    second_ru = read_ru(size_bytes, factor - 1) if factor > 1 else 0.0
    return _kept(
        Part("read the item", read_ru(size_bytes), size_bytes=size_bytes),
        Part("read a second replica", second_ru, size_bytes=size_bytes),
    )


def create_parts(size_bytes: int, terms: int) -> tuple[Part, ...]:
    return _kept(
        Part("write the item", write_ru(size_bytes), size_bytes=size_bytes),
        Part("add index terms", TERM_RU * terms, terms),
    )


def delete_parts(size_bytes: int, terms: int) -> tuple[Part, ...]:
    return _kept(
        Part("remove the item", write_ru(size_bytes), size_bytes=size_bytes),
        Part("remove index terms", TERM_RU * terms, terms),
    )


def patch_parts(old_bytes: int, new_bytes: int, terms_changed: int, operations: int) -> tuple[Part, ...]:
    return _kept(
        Part("remove the old item", write_ru(old_bytes), size_bytes=old_bytes),
        Part("write the new item", write_ru(new_bytes), size_bytes=new_bytes),
        Part("change index terms", TERM_RU * terms_changed, terms_changed),
        Part("apply patch operations", PATCH_OPERATION_RU * operations, operations),
    )


def feed_page_parts(sizes_bytes: Sequence[int], factor: int = 1) -> tuple[Part, ...]:
    ru = feed_page_ru(sizes_bytes, factor)
    if not sizes_bytes:
        return (Part("look for items", ru),)
    return (Part("read items", ru, len(sizes_bytes), sum(sizes_bytes)),)


def query_page_parts(work: QueryWork, factor: int = 1) -> tuple[Part, ...]:
    loaded_ru = LOADED_KB_RU * work.loaded_bytes / limits.KB
    index_scan_ru = INDEX_SCAN_RU * work.index_scans + INDEX_SCAN_VALUE_RU * work.index_scan_values
    return _kept(
        Part("visit partitions", factor * PARTITION_VISIT_RU * work.partitions_begun, work.partitions_begun),
        Part("index seeks", factor * SEEK_RU * work.seeks, work.seeks),
        Part("precise index scans", factor * PRECISE_SCAN_RU * work.precise_scans, work.precise_scans),
        Part("expanded index scans", factor * EXPANDED_SCAN_RU * work.expanded_scans, work.expanded_scans),
        Part("full index scans", factor * index_scan_ru, work.index_scans),
        Part("return results", factor * RETURNED_SHARE * work.returned_ru),
        Part("load items that were not returned", factor * loaded_ru, size_bytes=work.loaded_bytes),
        Part("join", factor * JOINED_TUPLE_RU * work.joined_tuples, work.joined_tuples),
        Part("sort without a composite index", factor * SORTED_ROW_RU * work.sorted_rows, work.sorted_rows),
        Part("call user-defined functions", factor * UDF_CALL_RU * work.udf_calls, work.udf_calls),
    )


def added_up(parts: Iterable[Part]) -> list[Part]:
    """Lines of the same kind added up: for batches."""
    by_what: dict[str, Part] = {}
    for part in parts:
        present = by_what.get(part.what)
        if present is None:
            by_what[part.what] = replace(part, count=part.count or 1)
        else:
            by_what[part.what] = Part(
                part.what,
                present.ru + part.ru,
                present.count + (part.count or 1),
                present.size_bytes + part.size_bytes,
            )
    return list(by_what.values())


def fitted(parts: Sequence[Part], charge_ru: float) -> list[Part]:
    """The parts of a charge in hundredths, as charges are answered, so that they add up to it exactly."""
    shares = apportion(round(charge_ru * 100), [part.ru for part in parts]) if parts else []
    return [replace(part, ru=share / 100) for part, share in zip(parts, shares, strict=True)]


def _kept(*parts: Part) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.ru)
