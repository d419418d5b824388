"""Transactions as clients see them: begun by the first command that carries their number, ended by a command on admin.
What they do is `account/collections/transactions.py`'s: snapshot isolation inside one value of the shard key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from armillary.account import containers
from armillary.account.collections import document_operations, transactions
from armillary.account.collections.document_operations import WriteOutcome
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands import capped
from armillary.doors.mongo.errors import code_of
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.keys import NO_KEY, Key

if TYPE_CHECKING:
    from armillary.doors.mongo.commands.command_table import Command
    from armillary.doors.mongo.sessions.sessions import Session

_ALLOWED: Final = frozenset(
    "find aggregate distinct insert update delete findAndModify findandmodify getMore killCursors bulkWrite create "
    "createIndexes commitTransaction abortTransaction ping hello isMaster".split()
)
_OF_SERVER: Final = ("bulkWrite", "ping", "hello", "isMaster")  # said to the admin database, and not about it
_ENDING: Final = ("commitTransaction", "abortTransaction")
_TRANSIENT: Final = (112, 246, 251)


class Transaction:
    """The one of a session that has its highest number."""

    def __init__(self, call: Call, number: int) -> None:
        self.number = number
        self.state = "open"  # or committed, aborted
        self._call_clock = call.door.machine
        self._account_clock = call.clock
        self._ends_s = call.door.machine.monotonic_s() + call.door.settings.transaction_s
        self._inner: transactions.Transaction | None = None
        self._others = call.door.open_transactions
        self._others.add(self)
        self._account = call.account
        # Collections that it has made, by database and name: nobody else finds them before it commits.
        self.made: dict[tuple[str, str], Container] = {}
        self.lock = asyncio.Lock()  # a session runs one command of it at a time

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def is_over_time(self) -> bool:
        return self.is_open and self._call_clock.monotonic_s() > self._ends_s

    async def within(self, container: Container, key: Key | None) -> Container:
        """The container as the transaction sees it; it begins with the first."""
        if self._inner is None:
            if key is None and container.key is not None:
                raise transactions.elsewhere()
            self._inner = await transactions.Transaction.begin(container, key or NO_KEY, self._account_clock)
        return self._inner.within(container, key if container.key is not None else None)

    def check_indexable(self, database: str, container: Container) -> None:
        """Indexes are made of collections that it has made itself, while these are empty."""
        if container not in self.made.values():
            raise refusal(
                263,
                f"Cannot create new indexes on existing collection {database}.{container.name} in a multi-document "
                "transaction.",
            )
        if self._inner is not None:
            raise refusal(263, "Cannot create new indexes on a collection that the transaction has used before.")

    def check(self, outcomes: Iterable[WriteOutcome | Failure]) -> None:
        """A conflict ends the command, not only a statement of it: the client is to begin again."""
        for each in outcomes:
            if isinstance(each, Failure) and (code_of(each) in _TRANSIENT or code_of(each) == transactions.ELSEWHERE):
                raise each

    async def commit(self, call: Call, session_id: bytes) -> None:
        self._others.discard(self)
        self.state = "committed"
        try:
            await self._show(call)
            if self._inner is not None:
                await self._inner.commit(
                    document_operations.retry_record(session_id, self.number, (0,), lambda _outcomes: [b"committed"])
                )
        except Failure:
            self.state = "aborted"
            if self._inner is not None:
                await self._inner.abort()
            await self._forget_made()
            raise

    async def _show(self, call: Call) -> None:
        """Give what it has made its name. If all ends here, there is an empty collection and nothing else."""
        for (database, name), container in self.made.items():
            made, options = namespaces.uuid_of(container), namespaces.options_of(container)
            await namespaces.announce_creation(call, database, name, made, options)
            try:
                await containers.rename_container(call.account, container, name)
            except Failure as failure:
                raise (transactions.conflict() if failure.kind is Kind.CONFLICT else failure) from None

    async def _forget_made(self) -> None:
        for container in self.made.values():
            await containers.delete_container(self._account, container, None)
        self.made = {}

    async def abort(self) -> None:
        self._others.discard(self)
        if self.is_open:
            self.state = "aborted"
            if self._inner is not None:
                await self._inner.abort()
            await self._forget_made()


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
        except BaseException:  # also if the client has gone: a transaction with half a command in it is none
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
    transaction = session.transaction = Transaction(call, number)
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
    if transaction.state == "committed":
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
    for cursor_id in call.door.cursors.of_session(call.client.grant, call.session.id):
        cursor = call.door.cursors.find(cursor_id)
        if cursor is not None and cursor.transaction == transaction.number:
            await call.door.cursors.kill(cursor_id)


# Commands.


async def commit(call: Call) -> Reply:
    session, number = _addressed(call)
    transaction = session.transaction
    if number != session.txn_number or not isinstance(transaction, Transaction):
        if _was_committed(call, session.id, number):
            return {}
        raise unknown(number, session.txn_number)
    if transaction.state == "committed":
        return {}
    if not transaction.is_open:
        raise refusal(
            251, f"Transaction with {{ txnNumber: {number} }} has been aborted.", labels=("TransientTransactionError",)
        )
    async with transaction.lock:
        await close_cursors(call, transaction)
        await transaction.commit(call, session.id)
    return {}


async def abort(call: Call) -> Reply:
    session, number = _addressed(call)
    transaction = session.transaction
    if number != session.txn_number or not isinstance(transaction, Transaction):
        raise unknown(number, session.txn_number)
    if transaction.state == "committed":
        raise refusal(256, f"Transaction with {{ txnNumber: {number} }} has been committed.")
    if not transaction.is_open:
        raise refusal(251, f"Transaction with {{ txnNumber: {number} }} has been aborted.")
    await _give_up(call, transaction)
    return {}


def _addressed(call: Call) -> tuple[Session, int]:
    if call.session is None or call.txn_number is None or call.body.get("autocommit") is not False:
        raise refusal(125, f"{call.name} must be run within a transaction")
    return call.session, call.txn_number


def _was_committed(call: Call, session_id: bytes, number: int) -> bool:
    """Whether the commit is recorded in storage: it may have been before a restart."""
    return any(document_operations.recorded(container, session_id, number) for container in call.account.containers)


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
