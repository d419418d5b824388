"""The engine of a cluster's node behind the interface of storage engines: reads on the local replica, writes through
the log while this node leads, and refused while it follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from armillary.clock import Clock
from armillary.errors import Failure
from armillary.storage.disk_errors import again, closed, translated
from armillary.storage.engine import Loader, Quick, Receiver, T, Txn
from armillary.storage.log.replicated_log import ReplicatedLog
from armillary.storage.log.rows import Place
from armillary.storage.operating.storage_figures import StorageFigures
from armillary.storage.replication.group_commit import GroupCommit, not_leader
from armillary.storage.replication.lease import Lease
from armillary.storage.replication.local_replica import LocalReplica
from armillary.storage.replication.replicated_loader import LoadTurns, ReplicatedLoader
from armillary.storage.rocks_database import Database, KeptState, Version
from armillary.storage.rocks_store import ReadCache, RocksStore, prefix_of


class ReplicatedEngine:
    def __init__(self, replica: LocalReplica, clock: Clock) -> None:
        self.replica = replica
        self._clock = clock
        self._commit: GroupCommit | None = None
        self._lease: Lease | None = None
        self._failure: Failure | None = None  # why this node serves nothing
        self._files = ThreadPoolExecutor(1, "armillary-checkpoint")
        self.load_turns = LoadTurns(clock, lambda: replica.position.transactions)

    # Roles.

    def lead(self, log: ReplicatedLog, epoch: int, lease: Lease, on_end: Callable[[Failure], None]) -> GroupCommit:
        """Take writes. The replica has applied everything up to this epoch's fence."""
        assert self._commit is None
        self._lease = lease
        self._commit = GroupCommit(self.replica, log, epoch, lease, self._clock, on_end)
        return self._commit

    def follow(self) -> None:
        """Refuse writes. The group commit has ended."""
        self._commit = self._lease = None

    @property
    def is_leading(self) -> bool:
        return self._commit is not None

    @property
    def may_answer_strongly(self) -> bool:
        """Whether what is published here is known to be the newest state of the cluster."""
        return self._lease is not None and self._lease.holds

    # Comparing nodes.

    async def mark(self) -> Place:
        """Append a mark, at which every node digests its state."""
        return await self._leading().mark()

    def digest_of(self, seq: int) -> bytes | None:
        """Of this node's state at a mark; None: not known yet, or no more."""
        return self.replica.digests.of(seq)

    # What stores need (RocksVersions).

    @property
    def published(self) -> Version | None:
        return self.replica.published

    @property
    def read_cache(self) -> ReadCache:
        return self.replica.read_cache

    async def readable(self) -> Version:
        version = self.replica.published
        if version is None:
            raise again(self._failure) if self._failure is not None else closed()
        return version

    def submit(self, prefix: bytes, fn: Callable[[Txn], T], is_freeing: bool = False) -> asyncio.Future[T]:
        return self._leading().submit(prefix, fn, is_freeing)

    def deliver(
        self, prefix: bytes, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None
    ) -> None:
        self._leading().deliver(prefix, fn, receiver, quick)

    def _leading(self) -> GroupCommit:
        if self._commit is None:
            raise not_leader() if self.replica.database is not None else closed()
        return self._commit

    async def keep(self) -> KeptState:
        return await self.replica.keep()

    def writable(self) -> Database:
        return self.replica.check_writable()

    @property
    def load_path(self) -> Path:
        return self.replica.directory.load_path

    # The interface of engines.

    def store(self, number: int) -> ReplicatedStore:
        assert 0 <= number < 2**32 - 1, "a store is numbered with four bytes"
        return ReplicatedStore(self, prefix_of(number))

    async def drop(self, number: int) -> None:
        low, high = prefix_of(number), prefix_of(number + 1)
        await self.submit(b"", lambda txn: txn.delete_range(low, high), is_freeing=True)

    async def checkpoint(self) -> Path:
        """The local state with its position: what a new replica, or a backup, starts from."""
        database = self.replica.check_writable()

        def make() -> Path:
            database.flush()
            return self.replica.directory.make_checkpoint(database.checkpoint)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._files, make)
        except Exception as error:
            raise (translated(error) or error) from error

    async def drop_checkpoint(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._files, self.replica.directory.remove_checkpoint, name)

    def keep_free(self, reserve_bytes: int | None) -> None:
        """Change the space that is kept free on the disk. None: the default."""
        self.replica.keep_free(reserve_bytes)

    def figures(self) -> StorageFigures:
        found = self.replica.figures()
        found.failure = self._failure.message if self._failure is not None else None
        found.waiting_writes = self._commit.waiting_count if self._commit is not None else 0
        return found

    def fail(self, failure: Failure) -> None:
        """This node cannot go on: requests are refused with the reason."""
        self._failure = failure
        self.replica.published = None

    async def close(self) -> None:
        """Finish waiting writes, make everything durable and release the directory."""
        if self._commit is not None:
            await self._commit.end(closed())
            self.follow()
        self._files.shutdown()
        await self.replica.digests.end()
        database = self.replica.database
        if database is not None and self._failure is None:
            await asyncio.get_running_loop().run_in_executor(None, database.finish)
        self.replica.close()
        self.replica.directory.release()


class ReplicatedStore(RocksStore):
    __slots__ = ("_log_writer",)

    def __init__(self, engine: ReplicatedEngine, prefix: bytes) -> None:
        super().__init__(engine, prefix)
        self._log_writer = engine

    def loader(self) -> Loader:
        engine = self._log_writer
        return ReplicatedLoader(engine.submit, self._prefix, engine.load_turns)
