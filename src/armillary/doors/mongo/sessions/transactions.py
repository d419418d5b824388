"""Transactions of sessions: their lifetime, the collections that they create, commit and abort. Their reads and writes
are in `account/collections/transactions.py`: snapshot isolation inside one value of the shard key. The commands are in
`session_commands.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.collections import document_operations, transactions
from armillary.account.collections.document_operations import WriteOutcome
from armillary.account.container import Container
from armillary.account.visits.write_visits import write_conflict
from armillary.clock import Clock
from armillary.doors.mongo.errors import code_of
from armillary.errors import Failure, Kind, Reason
from armillary.languages.mongo.errors import refusal
from armillary.model.keys import NO_KEY, Key

_TRANSIENT: Final = (112, 246, 251)

Announce = Callable[[str, str, Container], Awaitable[None]]  # tells change streams of a new collection


class Transaction:
    """The current transaction of a session."""

    def __init__(
        self, account: Account, machine: Clock, number: int, lifetime_s: float, others: set[Transaction]
    ) -> None:
        """`machine`: the clock that its lifetime is measured with. `others`: all open ones; it joins them."""
        self.number = number
        self.state = "open"  # or committed, aborted
        self._machine = machine
        self._ends_s = machine.monotonic_s() + lifetime_s
        self._inner: transactions.Transaction | None = None
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
                raise transactions.elsewhere()
            self._inner = await transactions.Transaction.begin(container, key or NO_KEY, self._account.clock)
        return self._inner.within(container, key if container.key is not None else None)

    def check_indexable(self, database: str, container: Container) -> None:
        """In a transaction indexes are created only on its own new, empty collections."""
        if container not in self.made.values():
            raise refusal(
                263,
                f"Cannot create new indexes on existing collection {database}.{container.name} in a multi-document "
                "transaction.",
            )
        if self._inner is not None:
            raise refusal(263, "Cannot create new indexes on a collection that the transaction has used before.")

    def check(self, outcomes: Iterable[WriteOutcome | Failure]) -> None:
        """Raise a write conflict: it fails the whole command, and the client retries the transaction."""
        for each in outcomes:
            if isinstance(each, Failure):
                is_elsewhere = each.details.get("reason") is Reason.TRANSACTION_ELSEWHERE
                if is_elsewhere or code_of(each) in _TRANSIENT:
                    raise each

    async def commit(self, session_id: bytes, announce: Announce) -> None:
        self._others.discard(self)
        self.state = "committed"
        try:
            await self._show(announce)
            if self._inner is not None:
                await self._inner.commit(
                    document_operations.retry_record(session_id, self.number, (0,), (b"committed",))
                )
        except Failure:
            self.state = "aborted"
            if self._inner is not None:
                await self._inner.abort()
            await self._forget_made()
            raise

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

    async def abort(self) -> None:
        self._others.discard(self)
        if self.is_open:
            self.state = "aborted"
            if self._inner is not None:
                await self._inner.abort()
            await self._forget_made()
