"""Changes whose computation may take long. Most are computed inside the transaction that writes the document. One that
takes longer than that may is computed before it, on the document as it was, giving way to other requests meanwhile; the
transaction uses it if the document is still the same, and otherwise computes it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from armillary import work
from armillary.account.collections import document_operations
from armillary.account.collections.document_operations import Changed, CompiledChange, DocumentWrite
from armillary.account.container import Container
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.commands import inline_commands
from armillary.errors import Failure
from armillary.model.bson.bson_values import decode

Answer = TypeVar("Answer")

_TRIES: Final = 20  # while other writers change the document


async def decide_ahead(
    call: Call, container: Container, operation: DocumentWrite, id_value: Any, change: CompiledChange
) -> int:
    """Compute an operation's change for the document as it is now; the bytes of memory that are kept for it."""

    def changed(encoded: bytes) -> Changed:
        try:
            return change(decode(encoded))
        except Failure:
            call.check_time()
            raise

    async def decide(encoded: bytes) -> Changed:
        return await inline_commands.in_slices(lambda: changed(encoded), len(encoded), call)

    scoped = await call.scoped(container, operation.key)
    kept_bytes = await document_operations.decide_ahead(scoped, operation, id_value, decide)
    call.check_time()
    return kept_bytes


async def write_decided(
    call: Call,
    container: Container,
    operation: DocumentWrite,
    id_value: Any,
    change: CompiledChange,
    write: Callable[[], Awaitable[Answer]],
) -> Answer:
    """Write, with the change computed before if necessary."""
    for _ in range(_TRIES):
        try:
            return await write()
        except work.Outlasted:
            call.check_time()
            await decide_ahead(call, container, operation, id_value, change)
    return await write()
