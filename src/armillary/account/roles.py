"""The account of a cluster's node, in the role that the node has at the moment: a leader's, which writes and runs
background work, or a follower's, which adopts what the log brings. When the role changes, the account is closed and
opened anew on the same engine; requests and cursors that hold objects of the former one get the reason. Who leads is
decided by `storage/replication/leadership.py`, which calls these methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from armillary.account.account import Account
from armillary.account.following import FollowingAccount
from armillary.account.registry import AccountSettings
from armillary.account.topology import Topology
from armillary.clock import Clock
from armillary.errors import Failure, Kind, Reason
from armillary.storage.overlay import Layer
from armillary.storage.replication.group_commit import not_leader
from armillary.storage.replication.replicated_engine import ReplicatedEngine

OnOpened = Callable[[Account], Awaitable[None]]  # doors are opened here
OnClosing = Callable[[], Awaitable[None]]  # and closed here
OnCeasing = Callable[[], None]  # this node takes no writes any more


class AccountRoles:
    """Implements `Roles` of leadership.py. One role change at a time: leadership waits for each."""

    def __init__(
        self,
        engine: ReplicatedEngine,
        clock: Clock,
        settings: AccountSettings,
        on_opened: OnOpened | None = None,
        on_closing: OnClosing | None = None,
        topology: Topology | None = None,
        on_ceasing: OnCeasing = lambda: None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._settings = settings
        self._on_opened = on_opened
        self._on_closing = on_closing
        self._topology = topology
        self._on_ceasing = on_ceasing
        self.account: Account | None = None  # None: between two roles

    async def lead(self) -> None:
        await self.close(_role_changes())
        await self._use(await Account.open(self._engine, self._clock, self._settings))

    def cease(self) -> None:
        self._on_ceasing()

    async def follow(self) -> None:
        await self.close(not_leader())
        account = await FollowingAccount.open(self._engine, self._clock, self._settings)
        account.begin_history()  # of its own load: nothing is written to the replica
        await self._use(account)

    def adopt(self, layer: Layer, notes: bytes) -> None:
        if isinstance(self.account, FollowingAccount):  # not while this node takes over: the account is opened then
            self.account.adopt(layer, notes)

    def apply_delay_s(self) -> float:
        return self.account.faults.apply_delay_s if self.account is not None else 0.0

    async def close(self, reason: Failure) -> None:
        account, self.account = self.account, None
        if account is not None:
            if self._on_closing is not None:
                await self._on_closing()
            await account.close(reason)

    async def _use(self, account: Account) -> None:
        account.topology = self._topology
        self.account = account
        if self._on_opened is not None:
            await self._on_opened(account)


def _role_changes() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "This node of the cluster takes over at this moment. Try again.",
        retry_after_ms=100,
        details={"reason": Reason.ROLE_CHANGED},
    )
