"""Conditions of patches. A condition is judged in the transaction that writes, which cannot give way to other requests.
One that takes long there is left undecided: it is judged outside, on the document as it was, and the write is tried
again. The answer holds as long as the document has the same etag.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from armillary import limits, work
from armillary.account.queries.partition_slices import deadline
from armillary.clock import Clock, SystemClock
from armillary.partition.operations import Document, MemberFailed, Operation

T = TypeVar("T")


class PatchCondition:
    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate
        self._decided: dict[str, bool] = {}  # by etag
        self._undecided: Document | None = None

    def __call__(self, document: Document) -> bool:
        decided = self._decided.get(document["_etag"])
        if decided is not None:
            return decided
        try:
            return work.bounded(lambda: bool(self._predicate(document)), limits.PATCH_CONDITION_UNITS_MAX)
        except work.Outlasted:
            self._undecided = document
            raise

    async def decide(self, check: work.Check) -> bool:
        """Judge the document that was left undecided. False: there is none."""
        document, self._undecided = self._undecided, None
        if document is None:
            return False
        decided = await work.run(lambda: bool(self._predicate(document)), check)
        self._decided = {document["_etag"]: decided}
        return True


class RehearsedCondition:
    """Judged once, when the patch is rehearsed. Where the same operation is applied in the end, nothing that was looked
    at has changed since, and functions of the container's cannot be called there."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate
        self._decided: bool | None = None

    def __call__(self, document: Document) -> bool:
        if self._decided is None:
            self._decided = bool(self._predicate(document))
        return self._decided


async def with_conditions(
    operations: Sequence[Operation], write: Callable[[], Awaitable[T]], clock: Clock | None = None
) -> T:
    """Write, as often as a condition has to be judged outside of the transaction first."""
    clock = clock or SystemClock()
    check = deadline(clock, clock.elapsed_s())
    while True:
        try:
            return await write()
        except work.Outlasted:
            if not await _decide(operations, check):
                raise
        except MemberFailed as failed:
            if not isinstance(failed.failure, work.Outlasted) or not await _decide(operations, check):
                raise


async def _decide(operations: Sequence[Operation], check: work.Check) -> bool:
    check()
    decided = [
        await operation.condition.decide(check)
        for operation in operations
        if isinstance(operation.condition, PatchCondition)
    ]
    return any(decided)
