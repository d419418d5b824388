"""Commands of logical sessions and their transactions: startSession, refreshSessions, endSessions, killSessions,
killAllSessions, commitTransaction, abortTransaction, and the checks of every command with `autocommit: false`. A
command that fails aborts its transaction. Sessions are in `sessions.py`, transactions in `transactions.py`.
"""

from __future__ import annotations

from typing import Final

from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64

from armillary import limits
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Command, Reply
from armillary.doors.mongo.commands import capped
from armillary.doors.mongo.sessions import authorization
from armillary.doors.mongo.sessions.sessions import Session, session_id_of
from armillary.doors.mongo.sessions.transactions import Transaction
from armillary.doors.mongo.settings import Grant
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

_ALLOWED: Final = frozenset(
    "find aggregate distinct insert update delete findAndModify findandmodify getMore killCursors bulkWrite create "
    "createIndexes commitTransaction abortTransaction ping hello isMaster".split()
)
_OF_SERVER: Final = ("bulkWrite", "ping", "hello", "isMaster")  # sent to the admin database, but not about it
_ENDING: Final = ("commitTransaction", "abortTransaction")
_COMMITTED: Final = ("committing", "committed")


# Transactions.


async def run(call: Call, command: Command) -> Reply:
    """A command of a transaction."""
    session, number = call.session, call.txn_number
    assert session is not None and number is not None
    if call.body.get("autocommit") is not False:
        raise refusal(72, "autocommit may only be false")
    if call.name not in _ALLOWED:
        raise refusal(263, f"Cannot run '{call.name}' in a multi-document transaction.")
    if call.name in _ENDING:
        return await command.run(call)
    if "writeConcern" in call.body:
        raise refusal(72, "writeConcern is not allowed within a multi-statement transaction")
    if call.database in ("config", "local") or (call.database == "admin" and call.name not in _OF_SERVER):
        raise refusal(263, f"Cannot run commands against the '{call.database}' database in a transaction.")
    begins = call.body.get("startTransaction", True)
    if begins is not True:
        raise refusal(72, "Specifying startTransaction=false is not allowed.")
    if call.name == "killCursors" and "startTransaction" in call.body:
        raise refusal(263, "Cannot run killCursors as the first operation in a multi-document transaction.")
    if call.body.get("tailable") is True:
        raise refusal(263, "Cannot use tailable cursors in a multi-document transaction.")
    transaction = await _begun(call) if "startTransaction" in call.body else _found(call)
    if transaction.lock.locked():
        raise refusal(117, f"Another command of transaction {number} is running on this session")
    async with transaction.lock:
        call.transaction = transaction
        try:
            if command.writes and isinstance(call.body[call.name], str):
                capped.check_write(call, call.collection())
            reply = await command.run(call)
        except BaseException:  # also on cancellation: a transaction with half a command in it must not commit
            await _give_up(call, transaction)
            raise
        if isinstance(reply, dict) and "writeErrors" in reply:
            await _give_up(call, transaction)
        return reply


async def _begun(call: Call) -> Transaction:
    session, number = call.session, call.txn_number
    assert session is not None and number is not None
    if number < session.txn_number:
        raise _too_old(number, session.txn_number)
    before = session.transaction
    if number == session.txn_number and before is not None:
        raise refusal(
            117,
            f"Transaction {number} already in progress on this session: it cannot be started again",
        )
    if before is not None:
        await before.abort()
    level = (call.body.get("readConcern") or {}).get("level")
    if level not in (None, "local", "majority", "snapshot"):
        raise refusal(
            72,
            "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a "
            "transaction",
        )
    session.txn_number = number
    transaction = session.transaction = Transaction(
        call.account,
        call.services.machine,
        number,
        call.services.settings.transaction_s,
        call.services.open_transactions,
        before,
        is_snapshot=level == "snapshot",
    )
    return transaction


def _found(call: Call) -> Transaction:
    """The transaction that a later command belongs to."""
    session, number = call.session, call.txn_number
    assert session is not None and number is not None
    if number < session.txn_number:
        raise _too_old(number, session.txn_number)
    transaction = session.transaction
    if number != session.txn_number or not isinstance(transaction, Transaction):
        raise unknown(number, session.txn_number)
    if "readConcern" in call.body:
        raise refusal(72, "Only the first command in a transaction may specify a readConcern")
    if transaction.state in _COMMITTED:
        raise refusal(256, f"Transaction with {{ txnNumber: {number} }} has been committed.")
    if not transaction.is_open:
        raise refusal(
            251,
            f"Transaction with {{ txnNumber: {number} }} has been aborted.",
            labels=("TransientTransactionError",),
        )
    return transaction


async def _give_up(call: Call, transaction: Transaction) -> None:
    await transaction.abort()
    await close_cursors(call, transaction)


async def close_cursors(call: Call, transaction: Transaction) -> None:
    assert call.session is not None
    for cursor_id in call.services.cursors.of_session(call.client.grant, call.session.id):
        cursor = call.services.cursors.find(cursor_id)
        if cursor is not None and cursor.transaction == transaction.number:
            await call.services.cursors.kill(cursor_id)


# Commands.


async def commit(call: Call) -> Reply:
    """Also for keys that may only read: the writes of their transactions were refused one by one."""
    session, number = _addressed(call)

    async def announce(database: str, name: str, container: Container) -> None:
        identity, options = namespaces.uuid_of(container), namespaces.options_of(container)
        await namespaces.announce_creation(call, database, name, identity, options)

    transaction = session.transaction
    if number != session.txn_number or not isinstance(transaction, Transaction):
        if call.client.grant is Grant.WRITE and await _was_committed(call, session.id, number):
            return {}
        raise unknown(number, session.txn_number)
    async with transaction.lock:  # a commit that is asked for again waits for the first one
        if transaction.state == "committed" or (
            transaction.state == "unknown" and await _was_committed(call, session.id, number)
        ):
            return {}
        if not transaction.is_open:
            raise refusal(
                251,
                f"Transaction with {{ txnNumber: {number} }} has been aborted.",
                labels=("TransientTransactionError",),
            )
        await close_cursors(call, transaction)
        await transaction.commit(session.id, announce)
    call.services.cluster_time.tick()
    return {}


async def abort(call: Call) -> Reply:
    session, number = _addressed(call)
    transaction = session.transaction
    if number != session.txn_number or not isinstance(transaction, Transaction):
        raise unknown(number, session.txn_number)
    if transaction.state in _COMMITTED:
        raise refusal(256, f"Transaction with {{ txnNumber: {number} }} has been committed.")
    if not transaction.is_open:
        raise refusal(251, f"Transaction with {{ txnNumber: {number} }} has been aborted.")
    await _give_up(call, transaction)
    return {}


def _addressed(call: Call) -> tuple[Session, int]:
    if call.session is None or call.txn_number is None or call.body.get("autocommit") is not False:
        raise refusal(125, f"{call.name} must be run within a transaction")
    return call.session, call.txn_number


async def _was_committed(call: Call, session_id: bytes, number: int) -> bool:
    """Whether the commit is recorded in storage: it may have been before a restart."""
    for container in call.account.containers:
        if await document_operations.recorded(container, session_id, number):
            return True
    return False


def unknown(number: int, last: int) -> Failure:
    return refusal(
        251,
        f"Given transaction number {number} does not match any in-progress transactions. The active transaction number "
        f"is {last}",
        labels=("TransientTransactionError",),
    )


def _too_old(number: int, last: int) -> Failure:
    return refusal(
        225,
        f"Cannot start transaction {number} on this session because a newer transaction {last} has already started.",
    )


# Sessions.


async def start_session(call: Call) -> Reply:
    lsid = {"id": Binary(bytes.fromhex(call.clock.guid().replace("-", "")), UUID_SUBTYPE)}
    call.services.sessions_of(call.client).find(session_id_of(lsid, call.client.owner))
    return {"id": lsid, "timeoutMinutes": limits.MONGO_SESSION_SECONDS // 60}


async def refresh_sessions(call: Call) -> Reply:
    for lsid in call.fields.documents(call.name):
        call.services.sessions_of(call.client).find(session_id_of(lsid, call.client.owner))
    return {}


async def end_sessions(call: Call) -> Reply:
    for lsid in call.fields.documents(call.name):
        await call.services.end_session(call.services.sessions_of(call.client), session_id_of(lsid, call.client.owner))
    return {}


async def kill_sessions(call: Call) -> Reply:
    """Sessions of clients with the same grant: all, if none is named."""
    wanted = call.fields.documents(call.name)
    if not wanted:
        authorization.refuse_limited(call)
    own = call.services.sessions_of(call.client)
    named = [session_id_of(each, call.client.owner) for each in wanted]
    for session_id in named or [each.id for each in own.all()]:
        await call.services.end_session(own, session_id)
    return {}


async def kill_all_sessions(call: Call) -> Reply:
    """All of them: there is one user."""
    call.fields.array(call.name)
    for sessions in call.services.all_sessions:
        for session in sessions.all():
            await call.services.end_session(sessions, session.id)
    return {}


async def listed(call: Call) -> list[Document]:
    """As $listLocalSessions shows them."""
    numbers = {each.id: each.txn_number for each in call.services.sessions_of(call.client).all()}
    others = call.services.others
    asked: Document = {"aggregate": 1, "pipeline": [{"$listLocalSessions": {}}], "$db": call.database}
    asked["cursor"] = {"batchSize": limits.MONGO_SESSIONS_MAX}
    for answer in await others.gather(call, asked) if others is not None else []:
        for each in answer["cursor"]["firstBatch"]:  # a session may have been used in several processes
            session_id = bytes(each["_id"]["id"])
            numbers[session_id] = max(numbers.get(session_id, -1), int(each["txnNumber"]))
    return [{"_id": {"id": Binary(each, UUID_SUBTYPE)}, "txnNumber": Int64(number)} for each, number in numbers.items()]
