"""Commands that carry a transaction number: retryable writes, which are done once however often they arrive, and the
commands of transactions.
"""

from __future__ import annotations

from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands import Command
from armillary.languages.mongo.errors import refusal


async def run(call: Call, command: Command) -> Reply:
    session = call.session
    assert session is not None and call.txn_number is not None
    if "autocommit" in call.body:
        raise refusal(115, "Transactions are not offered yet")
    if "startTransaction" in call.body:
        raise refusal(72, "'startTransaction' field requires 'autocommit' field to also be specified")
    if not command.is_retryable:
        raise refusal(72, f"txnNumber may not be provided for the {call.name} command")
    if call.txn_number < session.txn_number:
        raise refusal(
            225,
            f"Retryable write with txnNumber {call.txn_number} is prohibited on session {session.id.hex()} because a "
            f"newer retryable write with txnNumber {session.txn_number} has already started on this session.",
        )
    session.txn_number = call.txn_number
    return await command.run(call)
