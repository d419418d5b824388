"""The state of a replica on one node: a data directory with its RocksDB, the position in the log that it has reached,
and the version that readers see.

Groups come from the log, confirmed, one after the other; `apply` writes one together with its position, and `publish`
shows it to readers. RocksDB is not synced for that: after a crash its state is that of an earlier position, from which
the log is applied again. `sync` makes a position durable, so that the log need not keep the rows up to it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Self

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory
from armillary.storage.disk_errors import closed, no_room
from armillary.storage.log.rows import CHAIN_BYTES, GENERATION_BYTES, START, Place
from armillary.storage.operating.storage_figures import StorageFigures, figures_of
from armillary.storage.overlay import Layer
from armillary.storage.replication.state_digest import StateDigests
from armillary.storage.rocks_database import POSITION_KEY, Database, KeptState, Version
from armillary.storage.rocks_store import ReadCache

_FORMAT: Final = 1
_POSITION: Final = struct.Struct(f">B{GENERATION_BYTES}sQQ{CHAIN_BYTES}sQQ")


class Position(NamedTuple):
    """How far a replica has come: the last row that it has applied, of which log, and what that row says."""

    generation: bytes
    place: Place
    time_us: int
    transactions: int

    def pack(self) -> bytes:
        return _POSITION.pack(_FORMAT, self.generation, *self.place, self.time_us, self.transactions)

    @classmethod
    def unpack(cls, packed: bytes) -> Position:
        version, *_ = packed
        if version != _FORMAT:
            raise Failure(
                Kind.UNSUPPORTED,
                f"The replica's position has format {version}, which this version of Armillary does not read. Upgrade "
                "this node.",
            )
        _, generation, epoch, seq, chain, time_us, transactions = _POSITION.unpack(packed)
        return cls(generation, Place(epoch, seq, chain), time_us, transactions)


def start_of(generation: bytes) -> Position:
    """The position of a replica that is empty."""
    return Position(generation, START, 0, 0)


class LocalReplica:
    def __init__(self, directory: DataDirectory, database: Database, position: Position, reserve_bytes: int) -> None:
        self.directory = directory
        self.database: Database | None = database
        self.position = position  # as published
        self.published: Version | None = database.version()
        self.read_cache = ReadCache()
        self._applied: tuple[Version, Position, Layer] | None = None  # written, and not published
        self._stored = position  # the last that was written; rows that write nothing are passed over
        self._reserve_bytes = reserve_bytes
        self.digests = StateDigests()
        self._is_whole = asyncio.Event()  # set while the newest state is between two groups
        self._is_whole.set()

    @classmethod
    def open(
        cls,
        directory: DataDirectory,
        generation: bytes | None,
        *,
        reserve_bytes: int,
        open_database: Callable[[Path], Database] = Database,
    ) -> Self:
        """A new directory becomes an empty replica of this log. One of another log, or of a single server, is refused
        and released. Without a generation a replica of any log is opened, to be read."""
        try:
            database = open_database(directory.engine_path)
        except BaseException:
            directory.release()
            raise
        try:
            position = _position_in(database, generation)
        except BaseException:
            database.close()
            directory.release()
            raise
        return cls(directory, database, position, reserve_bytes)

    def check_writable(self) -> Database:
        if self.database is None:
            raise closed()
        if self.directory.free_bytes() < self._reserve_bytes:
            raise no_room()
        return self.database

    @property
    def has_room(self) -> bool:
        return self.directory.free_bytes() >= self._reserve_bytes

    @property
    def has_room_to_follow(self) -> bool:
        """Whether rows of the log are applied. A leader accepts nothing more before this: nodes with equal disks can
        still apply what it has accepted, and the transactions that free room again."""
        return self.directory.free_bytes() >= self._reserve_bytes // 2

    def keep_free(self, reserve_bytes: int | None) -> None:
        self._reserve_bytes = self.directory.default_reserve_bytes() if reserve_bytes is None else reserve_bytes

    def figures(self) -> StorageFigures:
        found = figures_of(self.directory, self.database, self._reserve_bytes)
        found.reads = self.read_cache.figures()
        return found

    def apply(self, layer: Layer, position: Position) -> None:
        """Write a group and its position, atomically. Inside a run of work a large one gives way between portions;
        readers have the published state meanwhile. Raises what RocksDB raises: then the state is as before if it was a
        stall, and else unknown until the database is opened again."""
        assert self.database is not None
        assert self.published is not None
        assert self._applied is None, "the group before this one is not published"
        assert position.place.seq > self.position.place.seq
        layer.writes[POSITION_KEY] = position.pack()
        self.published.hold()
        if len(layer.writes) <= limits.WRITE_AT_ONCE_KEYS:
            self.database.write(self.database.batch(layer))
        else:
            self._is_whole.clear()
            for batch in self.database.batches(layer):
                self.database.write(batch)
            self._is_whole.set()
        self._applied = self.database.version(), position, layer
        self._stored = position

    def publish(self) -> None:
        """Show the applied group to readers."""
        assert self._applied is not None
        (self.published, self.position, layer), self._applied = self._applied, None
        self.read_cache.drop(layer)

    def pass_over(self, position: Position) -> None:
        """Rows that write nothing were confirmed. Not stored by itself: after a crash they are read again."""
        self.position = position

    def pass_mark(self, position: Position) -> None:
        """A mark was confirmed: what was applied now is the state that all nodes compare."""
        assert self.database is not None
        assert self._applied is None
        self.pass_over(position)
        self.digests.begin(position.place.seq, self.database.keep())

    async def sync(self) -> Position:
        """Make the applied state durable. Returns the position that survives a crash of the machine from now on."""
        database = self.database
        if database is None:
            raise closed()
        if self._applied is None and self._is_whole.is_set() and self._stored != self.position:
            layer = Layer()
            layer.writes[POSITION_KEY] = self.position.pack()
            database.write(database.batch(layer))
            self._stored = self.position
        # Not what was applied: a position that is not stored is lost in a crash, and its rows are needed again.
        stored = self._stored
        await asyncio.get_running_loop().run_in_executor(None, database.sync)
        return stored

    async def keep(self) -> KeptState:
        database = self.check_writable()
        while not self._is_whole.is_set():
            await self._is_whole.wait()
            database = self.check_writable()
        return database.keep()

    def close(self) -> None:
        """Close without writing anything more."""
        self.published = self._applied = None
        self.read_cache.clear()
        database, self.database = self.database, None
        if database is not None:
            database.stop_background()
            database.close()


def _position_in(database: Database, generation: bytes | None) -> Position:
    stored = database.get(POSITION_KEY)
    if stored is None:
        if generation is None or holds_stores(database):
            raise not_a_replica()
        return start_of(generation)
    position = Position.unpack(stored)
    if generation is not None and position.generation != generation:
        raise Failure(
            Kind.BAD_REQUEST,
            "The data directory is a replica of another log: that of another cluster, or this cluster's before its log "
            "was reset. Name the directory of this cluster, or an empty one, which is built anew from another node.",
        )
    return position


def holds_stores(database: Database) -> bool:
    """Whether there is anything but a replica's own notes."""
    return any(True for _ in database.scan(b"", POSITION_KEY, False, 0))


def not_a_replica() -> Failure:
    return Failure(
        Kind.BAD_REQUEST,
        "The data directory is of a single server, not of a replica. Name an empty directory, or make it the first "
        "replica of a new cluster with `armillary cluster init`.",
    )
