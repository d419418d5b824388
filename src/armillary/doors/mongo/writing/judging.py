"""What becomes of a document that is changed or deleted: decided inside the transaction, where no other write comes in
between, if that takes little time. A transaction cannot give way to other requests; what takes longer is decided before
it, of the document as it is then, and inside it is only seen to that the document is still the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any, Final, Generic, TypeVar

from armillary import limits, work
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.commands import short_commands
from armillary.errors import Failure
from armillary.model.bson.bson_values import Document, decode, encode
from armillary.model.keys import Key

T = TypeVar("T")
Answer = TypeVar("Answer")

_TRIES: Final = 20  # while others change the document again and again


class Judgement(Generic[T]):
    """Of one document. `decide` may note what it found in a dataclass, which then is as after the decision that holds.
    `shares`: with how many others the transaction's time is shared."""

    def __init__(self, decide: Callable[[Document], T], noted: Any = None, shares: int = 1) -> None:
        self._decide, self._noted = decide, noted
        self._units = limits.WORK_ATOMIC_UNITS // shares
        self._before: bytes | None = None  # the document that it was decided of ahead
        self._decided: T | Failure | None = None
        self._note: list[Any] = []

    def inside(self, document: Document) -> T:
        """For the transaction. Raises `work.Outlasted` if it must be decided ahead."""
        if self._before is None or encode(document) != self._before:
            return work.bounded(lambda: self._decide(document), self._units)
        if self._noted is not None:
            for each, value in zip(fields(self._noted), self._note, strict=True):
                setattr(self._noted, each.name, value)
        if isinstance(self._decided, Failure):
            raise self._decided
        return self._decided  # type: ignore[return-value]

    async def ahead(self, call: Call, container: Container, key: Key, id_value: Any) -> int:
        """Decide of the document as it is now. The bytes that are kept for it."""
        encoded = await document_operations.peek(await call.scoped(container, key), key, id_value)
        if encoded is None:
            return 0
        await short_commands.apart(lambda: self._judge(decode(encoded), call), len(encoded), call)
        return 10 * len(encoded)

    def _judge(self, document: Document, call: Call) -> None:
        self._before = encode(document)
        try:
            self._decided = self._decide(document)
        except Failure as failure:
            call.check_time()
            self._decided = failure
        if self._noted is not None:
            self._note = [getattr(self._noted, each.name) for each in fields(self._noted)]

    async def kept_to(
        self, call: Call, container: Container, key: Key, id_value: Any, write: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Write, and decide ahead if that is necessary."""
        for _ in range(_TRIES):
            try:
                return await write()
            except work.Outlasted:
                call.check_time()
                await self.ahead(call, container, key, id_value)
        return await write()
