"""The rows that JOIN makes of one item, of which there may be any number. They are kept between the slices of an
execution, so that a page that ends inside an item does not make them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Final, Protocol

from armillary.model.documents import Form
from armillary.query.row_json import dump_large
from armillary.query.selection import PAUSE
from armillary.work import Outside, Run, end_item, makings

IsDue = Callable[[], bool]

# That are small, or were made as large as they are.
_PLAIN: Final[frozenset[Any]] = frozenset([str, int, float, bool, type(None)])


class _Progress(Protocol):
    skip: int


class _Execution(Protocol):
    """What a joined item knows of the execution that it is part of."""

    form: Form
    can_end: bool

    @property
    def progress(self) -> _Progress: ...


class JoinedItem:
    __slots__ = (
        "_held",
        "_is_small",
        "_rows",
        "given",
        "is_counted",
        "number",
        "number_before",
        "rid",
    )

    def __init__(self, rid: int, rows: Iterator[Any], given: int, is_small: bool) -> None:
        """`is_small`: the item is, and so are the rows that take their values from it alone."""
        self.rid = rid
        self._rows = rows
        self._is_small = is_small
        self.given = given  # rows that earlier pages gave
        self.number = 0  # rows made so far
        self.number_before = given
        self.is_counted = given > 0  # in the charge
        # What is held to make the next rows: its bytes, and what was computed of large values.
        self._held: tuple[int, dict[Any, Any] | None] | None = None

    def give(
        self,
        run: Run | Outside,
        rows: list[bytes],
        size_bytes: int,
        maxima: tuple[int, int],
        is_due: IsDue,
        execution: _Execution,
    ) -> tuple[int, bool]:
        """Add rows, as far as they go into the page. Returns the size of the page and whether it is over."""
        is_small = self._is_small
        if self._held is not None:
            run.made_bytes, run.derived = self._held
            is_small = False
        seen_makings = makings[0]
        progress = execution.progress
        is_json, _, _, dump, _ = execution.form
        number, given = self.number, self.given
        has_given = False
        try:
            for row in self._rows:
                if row is PAUSE:
                    # A position is a number of rows, so there must be a new one.
                    if number > self.number_before and is_due():
                        self.number_before = number
                        return size_bytes, True
                    continue
                number += 1
                if number <= given:
                    continue
                if progress.skip:
                    progress.skip -= 1
                    continue
                if (is_small and makings[0] == seen_makings) or row.__class__ in _PLAIN or not is_json:
                    dumped = dump(row)
                else:
                    made_bytes = run.made_bytes
                    dumped = dump_large(row)
                    run.made_bytes = made_bytes
                if len(rows) >= maxima[0] or (rows and size_bytes + len(dumped) > maxima[1]):
                    number -= 1
                    self._rows = chain([row], self._rows)
                    return size_bytes, True
                rows.append(dumped)
                size_bytes += len(dumped)
                if not has_given:
                    has_given = execution.can_end = True
            return size_bytes, False
        finally:
            self.number = number
            if makings[0] != seen_makings or self._held is not None:
                self._held = run.made_bytes, run.derived
                end_item(run, 0)
