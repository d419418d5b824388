"""Retryable writes: commands with a transaction number outside of transactions, whose statements are done once however
often the driver sends them. Commands with a transaction number inside a transaction go to `session_commands.py`.
"""

from __future__ import annotations

from typing import Final

from armillary.account.collections import document_operations
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Command, Reply, RetryableWrite
from armillary.doors.mongo.commands.fail_points import Loss
from armillary.doors.mongo.sessions import session_commands
from armillary.doors.mongo.writing.inserts import documents_at, statement_numbers
from armillary.languages.mongo.errors import refusal

_STATEMENTS: Final = {"insert": "documents", "update": "updates", "delete": "deletes", "bulkWrite": "ops"}


async def run(call: Call, command: Command) -> Reply:
    session = call.session
    assert session is not None and call.txn_number is not None
    if "autocommit" in call.body:
        return await session_commands.run(call, command)
    if "startTransaction" in call.body:
        raise refusal(72, "'startTransaction' field requires 'autocommit' field to also be specified")
    if not command.is_retryable:
        raise refusal(72, f"txnNumber may not be provided for the {call.name} command")
    last = max(session.txn_number, await _last_number(call, session.id))
    if call.txn_number < last:
        raise refusal(
            225,
            f"Retryable write with txnNumber {call.txn_number} is prohibited on session {session.id.hex()} because a "
            f"newer retryable write with txnNumber {last} has already started on this session.",
        )
    if session.transaction is not None:
        await session.transaction.abort()
        session.transaction = None
    session.txn_number = call.txn_number
    call.retryable = RetryableWrite(session.id, call.txn_number)
    loss = call.services.fail_points.loss
    return await (command.run(call) if loss is None else _run_lossy(call, command, loss))


async def _run_lossy(call: Call, command: Command, loss: Loss) -> Reply:
    """Apply a fail point: run the command up to the statement that is lost, or run all of it and lose the answer."""
    field = _STATEMENTS.get(call.name)
    if field is None:
        statements, known = [b""], {}
    else:
        statements = call.sequences.get(field) or documents_at(call.raw_body, field)
        assert call.retryable is not None
        name = call.body.get(call.name)
        container = namespaces.find(call, name) if type(name) is str else None
        known = await call.retryable.known(container) if container is not None else {}
    numbers = statement_numbers(call, len(statements))
    due = [index for index, number in enumerate(numbers) if number not in known and loss.is_due()]
    if due and loss.is_before:
        if due[0] and field is not None:
            call.sequences[field] = statements[: due[0]]
            await command.run(call)
        raise loss.failure()
    reply = await command.run(call)
    if due:
        raise loss.failure()
    return reply


async def _last_number(call: Call, session_id: bytes) -> int:
    """The last number of a session in storage: it may be from before a restart."""
    name = call.body.get(call.name)
    container = namespaces.find(call, name) if type(name) is str else None
    return await document_operations.last_number(container, session_id) if container is not None else -1
