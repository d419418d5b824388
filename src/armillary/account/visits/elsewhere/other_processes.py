"""What snapshots, restores and migrations need of the other processes of a server that hold partitions of its account.
`armillary/processes/moments` has it. A server with one process has none of this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from armillary.storage.engine import Kept, Loader
from armillary.storage.overlay import Pair


class PinnedPartition(NamedTuple):
    """A partition, and its store as it is pinned."""

    container: bytes  # rid
    range_id: int
    store: int


class Copying(NamedTuple):
    """A pinned store that is to be copied to a new one in the same process."""

    store: int
    target: int
    range_id: int  # of the copy
    lsn: int  # where the copy goes on, at least


class PinnedElsewhere(Protocol):
    """Stores that other processes have pinned."""

    items: int
    size_bytes: int

    def pairs(self, store: int, low: bytes, high: bytes) -> AsyncIterator[list[Pair]]:
        """In portions that a message takes."""

    async def get(self, store: int, keys: list[bytes]) -> list[bytes | None]: ...

    async def rewind(self, partitions: Sequence[PinnedPartition]) -> set[bytes]:
        """Undo what was written since. Returns the containers for which that is too much."""

    async def copy(self, wanted: Sequence[Copying]) -> None:
        """Copy stores. The copies are pinned too."""

    def release(self, stores: Sequence[int] | None = None) -> None:
        """None: all of them."""


class OtherProcesses(Protocol):
    async def pin_together(self, stores: Callable[[], Iterable[int]]) -> tuple[dict[int, Kept], PinnedElsewhere]:
        """Pin stores as they are at one moment, in which no process writes anything and the catalog is unchanged.
        `stores` is called in that moment. Those of this process, and the others."""

    async def pin(self, stores: Iterable[int]) -> PinnedElsewhere:
        """Pin stores of other processes that are not written to, or whose writers are held."""

    def still(self, containers: Sequence[bytes]) -> AbstractAsyncContextManager[None]:
        """Other processes begin no splits or merges of these containers, and have taken back those that ran."""

    def held(self, containers: Sequence[bytes]) -> AbstractAsyncContextManager[None]:
        """Other processes write nothing to these containers, and all that was written is durable. A change of the
        catalog that this process makes meanwhile is refused if one of them has ended since. What others replace by then
        is not written to afterwards."""

    async def raise_lsns(self, stores: Sequence[int], lsn: int) -> None:
        """Let what is written to stores of other processes have lsns above this one."""

    def loader(self, store: int) -> Loader:
        """Fills a store of another process."""

    async def put(self, store: int, pairs: Sequence[Pair]) -> None:
        """In one transaction, to a store of another process."""


class SpanningProcesses(Protocol):
    """Transactions and snapshot reads over all processes of a server (`armillary/processes/transactions`)."""

    async def begin_transaction(self, *, spans: bool) -> Any:
        """An OpenTransaction (`account/collections/spanning_transactions.py`). `spans`: it is likely to use partitions
        of several processes."""

    async def take_snapshot(self) -> Any:
        """A PastAccount (`account/snapshots/snapshot_reads.py`)."""
