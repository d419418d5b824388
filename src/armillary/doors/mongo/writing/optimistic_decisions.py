"""Changes and deletes of one document, decided inside the transaction if that is quick. A transaction cannot yield to
other requests, so a decision that takes longer is made ahead, on the document as it is then; the transaction only
checks that the document has not changed (optimistic concurrency).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, Final, Generic, TypeVar

from armillary import limits, work
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.commands import inline_commands
from armillary.errors import Failure
from armillary.model.bson.bson_values import Document, decode, encode
from armillary.model.keys import Key

T = TypeVar("T")
Answer = TypeVar("Answer")

_TRIES: Final = 20  # while other writers change the document


class Decision(Generic[T]):
    """What becomes of one document. `decide` may write its findings to the dataclass `noted`, which is restored to
    those of the decision that was used. `shares`: number of decisions that share the transaction's time."""

    def __init__(self, decide: Callable[[Document], T], noted: Any = None, shares: int = 1) -> None:
        self._decide, self._noted = decide, noted
        self._units = limits.WORK_ATOMIC_UNITS // shares
        self._before: bytes | None = None  # the document that the decision ahead was made for
        self._decided: T | Failure | None = None
        self._note: list[Any] = []

    def decide_inside(self, document: Document) -> T:
        """For the transaction. Raises `work.Outlasted` if it takes too long and must be made ahead."""
        if self._before is None or encode(document) != self._before:
            return work.bounded(lambda: self._decide(document), self._units)
        if self._noted is not None:
            for each, value in zip(fields(self._noted), self._note, strict=True):
                setattr(self._noted, each.name, value)
        if isinstance(self._decided, Failure):
            raise self._decided
        return self._decided  # type: ignore[return-value]

    async def decide_ahead(self, call: Call, container: Container, key: Key, id_value: Any) -> int:
        """Decide for the document as it is now; the bytes of memory that are kept for it."""
        encoded = await document_operations.peek(await call.scoped(container, key), key, id_value)
        if encoded is None:
            return 0
        await inline_commands.in_slices(lambda: self._decide_now(decode(encoded), call), len(encoded), call)
        return 10 * len(encoded)

    def _decide_now(self, document: Document, call: Call) -> None:
        self._before = encode(document)
        try:
            self._decided = self._decide(document)
        except Failure as failure:
            call.check_time()
            self._decided = failure
        if self._noted is not None:
            self._note = [getattr(self._noted, each.name) for each in fields(self._noted)]

    async def write(
        self, call: Call, container: Container, key: Key, id_value: Any, write: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Write, with the decision made ahead if necessary."""
        for _ in range(_TRIES):
            try:
                return await write()
            except work.Outlasted:
                call.check_time()
                await self.decide_ahead(call, container, key, id_value)
        return await write()
