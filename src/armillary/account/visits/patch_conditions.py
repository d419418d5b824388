"""Conditions of patches. An operation carries its condition as text; it is compiled where the visit runs, and evaluated
in the transaction that writes, which blocks other requests. A condition that takes long there is left undecided: it is
evaluated outside, on the document as it was, and the write is tried again. The result holds as long as the document has
the same etag.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from armillary import limits, work
from armillary.account.container import Container
from armillary.account.queries.partition_slices import deadline
from armillary.clock import Clock
from armillary.languages.sql.compiling.compile import BoundQuery, compile_filter
from armillary.model.patch import Patch
from armillary.partition.operations import Document, MemberFailed, Operation

T = TypeVar("T")


def check_condition(container: Container, patch: Patch) -> None:
    """Refuse a condition that does not compile, before a partition is asked."""
    if patch.condition is not None:
        _bound(container, patch.condition)


def compiled(container: Container, operation: Operation) -> Operation:
    """The operation with the condition of its patch ready to be evaluated."""
    patch = operation.patch
    if patch is None or patch.condition is None or operation.condition is not None:
        return operation
    predicate = _bound(container, patch.condition).predicate
    return replace(operation, condition=PatchCondition(predicate)) if predicate is not None else operation


def _bound(container: Container, text: str) -> BoundQuery:
    return compile_filter(text).bind({}, container.query_context())


class PatchCondition:
    """A compiled condition, with its result for the document that it was evaluated on outside of a transaction."""

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
        """Evaluate it on the document that was left undecided. False: there is none."""
        document, self._undecided = self._undecided, None
        if document is None:
            return False
        decided = await work.run(lambda: bool(self._predicate(document)), check)
        self._decided = {document["_etag"]: decided}
        return True


class RehearsedCondition:
    """Evaluated once, when the patch is rehearsed, since user-defined functions cannot be called where it is applied.
    Nothing that it depends on has changed by then."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate
        self._decided: bool | None = None

    def __call__(self, document: Document) -> bool:
        if self._decided is None:
            self._decided = bool(self._predicate(document))
        return self._decided


async def with_conditions(operations: Sequence[Operation], write: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Write, and try again each time that a condition had to be evaluated outside of the transaction."""
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
