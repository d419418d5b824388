"""Are pages, put one after the other, the result? For items that were not touched: exactly; for the others: no
item twice where its place cannot have changed, nothing that never was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from faults.ledger import Violation

Row = Mapping[str, Any]  # with an "id"


def check_pages(
    pages: Sequence[Sequence[Row]],
    untouched: Sequence[Row],
    *,
    name_of: Callable[[Row], Hashable] = lambda row: row["id"],
    order: Callable[[Row], Any] | None = None,
    may_show: Callable[[Row], bool] = lambda row: True,
    moves: Callable[[Row], bool] = lambda row: False,
) -> list[Violation]:
    """`untouched`: the one-shot result, as far as no client touched it, in its order. `order`: what rows are sorted by.
    `may_show`: whether a row that is not among the untouched can be there. `moves`: whether a client may have changed
    what decides its place, or deleted it and created it again, so that it may come twice."""
    found: list[Violation] = []
    rows = [row for page in pages for row in page]
    counts = Counter(name_of(row) for row in rows)
    wanted = {name_of(row): row for row in untouched}
    movable = {name_of(row) for row in rows if name_of(row) not in wanted and moves(row)}
    for name, count in counts.items():
        if count > 1 and name not in movable:
            found.append(Violation("duplicate", f"{name} comes {count} times"))
    for name in wanted:
        if name not in counts:
            found.append(Violation("skipped", f"{name} never comes"))
    for row in rows:
        name = name_of(row)
        if name in wanted and row != wanted[name]:
            found.append(Violation("changed", f"{name} comes as {row} and is {wanted[name]}"))
        elif name not in wanted and not may_show(row):
            found.append(Violation("phantom", f"{name} comes as {row}, which never was"))
    if order is not None:
        keys = [order(row) for row in rows]
        for number, (earlier, later) in enumerate(pairwise(keys)):
            if later < earlier:
                found.append(Violation("order", f"{later} of row {number + 1} comes after {earlier}"))
                break
    elif not any(each.kind in ("skipped", "duplicate") for each in found):
        told = [name_of(row) for row in rows if name_of(row) in wanted]
        if told != list(wanted):
            found.append(Violation("order", "the untouched items come in another order than in one piece"))
    return found
