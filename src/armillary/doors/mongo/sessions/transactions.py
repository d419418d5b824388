"""Transactions of sessions: their lifetime, the collections that they create, commit and abort. Their reads and writes
are in `account/collections/spanning_transactions.py`, with snapshot isolation. The commands are in
`session_commands.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.collections import document_operations
from armillary.account.collections.document_operations import WriteOutcome
from armillary.account.collections.spanning_transactions import OpenTransaction, begin_transaction
from armillary.account.collections.transactions import elsewhere
from armillary.account.container import Container
from armillary.account.visits.write_visits import write_conflict
from armillary.clock import Clock
from armillary.doors.mongo.errors import code_of
from armillary.errors import Failure, Kind, Reason
from armillary.languages.mongo.errors import refusal
from armillary.model.keys import Key

_TRANSIENT: Final = (112, 246, 251)

Announce = Callable[[str, str, Container], Awaitable[None]]  # tells change streams of a new collection


class Transaction:
    """The current transaction of a session."""

    def __init__(
        self,
        account: Account,
        machine: Clock,
        number: int,
        lifetime_s: float,
        others: set[Transaction],
        before: Transaction | None = None,
        *,
        is_snapshot: bool = False,
    ) -> None:
        """`machine`: the clock that its lifetime is measured with. `others`: all open ones; it joins them. `before`: of
        the same session, which mostly does the same again. `is_snapshot`: all that it reads is to be of the moment of
        its first command, by its read concern, also where several processes have it."""
        self._is_snapshot = is_snapshot
        self.spans: bool = before is not None and before.spans  # partitions of several processes
        self.number = number
        # Or committing, committed, aborted, unknown: the commit was cancelled, and storage knows how it ended.
        self.state = "open"
        self._machine = machine
        self._ends_s = machine.monotonic_s() + lifetime_s
        self._inner: OpenTransaction | None = None
        self._others = others
        self._others.add(self)
        self._account = account
        # Collections that it has made, by database and name: no other command finds them before it commits.
        self.made: dict[tuple[str, str], Container] = {}
        self.lock = asyncio.Lock()  # a session runs one command of it at a time

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def is_over_time(self) -> bool:
        return self.is_open and self._machine.monotonic_s() > self._ends_s

    async def within(self, container: Container, key: Key | None) -> Container:
        """The container as the transaction sees it; its snapshot is taken with the first one."""
        if self._inner is None:
            if key is None and container.key is not None:
                raise elsewhere()
            self._inner = await begin_transaction(self._account, spans=self.spans or self._is_snapshot)
        is_own = container in self.made.values()
        try:
            return await self._inner.within(container, key if container.key is not None else None, is_own=is_own)
        finally:
            self.spans = self._inner.spans

    def check_indexable(self, database: str, container: Container) -> None:
        """In a transaction indexes are created only on its own new, empty collections."""
        if container not in self.made.values():
            raise refusal(
                263,
                f"Cannot create new indexes on existing collection {database}.{container.name} in a multi-document "
                "transaction.",
            )
        if self._inner is not None and self._inner.uses(container):
            raise refusal(263, "Cannot create new indexes on a collection that the transaction has used before.")

    def check(self, outcomes: Iterable[WriteOutcome | Failure]) -> None:
        """Raise a write conflict: it fails the whole command, and the client retries the transaction."""
        for each in outcomes:
            if isinstance(each, Failure):
                is_elsewhere = each.details.get("reason") is Reason.TRANSACTION_ELSEWHERE
                if is_elsewhere or code_of(each) in _TRANSIENT:
                    raise each

    async def commit(self, session_id: bytes, announce: Announce) -> None:
        """Called under the lock. The state is `committed` when the writes are durable and not before."""
        self._others.discard(self)
        self.state = "committing"
        try:
            await self._show(announce)
            if self._inner is not None:
                await self._inner.commit(
                    document_operations.retry_record(session_id, self.number, (0,), (b"committed",))
                )
        except Failure as failure:
            # Another process has ended that was to commit it: what is stored says whether it did.
            self.state = "unknown" if failure.details.get("is_unknown") else "aborted"
            if self._inner is not None:
                await self._inner.abort()
            if self.state == "aborted":
                await self._forget_made()
            raise
        except BaseException:  # cancelled, or a defect: what was written may be durable
            self.state = "unknown"
            if self._inner is not None:
                await self._inner.abort()
            raise
        self.state = "committed"

    async def _show(self, announce: Announce) -> None:
        """Give its new collections their names. If the commit fails after this, an empty collection remains."""
        for (database, name), container in self.made.items():
            await announce(database, name, container)
            try:
                await containers.rename_container(self._account, container, name)
            except Failure as failure:
                raise (write_conflict() if failure.kind is Kind.CONFLICT else failure) from None

    async def _forget_made(self) -> None:
        for container in self.made.values():
            await containers.delete_container(self._account, container, None)
        self.made = {}

    def forget(self) -> None:
        """The account that it is of has ended. Its new collections are deleted when the account is opened as a
        leader's."""
        self._others.discard(self)
        if self.is_open:
            self.state = "aborted"

    async def abort(self) -> None:
        self._others.discard(self)
        if self.is_open:
            self.state = "aborted"
            if self._inner is not None:
                await self._inner.abort()
            await self._forget_made()
