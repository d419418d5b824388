"""The interface of replicated logs. A log is an ordered sequence of rows that one node at a time may extend, kept by a
system that survives the loss of a machine: `memory_log.py` in memory, with faults on request, for tests and simulation;
`postgres_log.py` on PostgreSQL.

Who leads is one record: (epoch, node, renewals). A node that wants to lead raises the epoch by compare-and-set and then
appends a fence behind the newest row, checking under a lock that the epoch is still its own. `append` only succeeds
behind a row of the same epoch, so nothing of an earlier leader can follow a fence. The lease is renewed by
compare-and-set too; it protects strong reads, never the log itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from armillary.storage.log.rows import Place, Row

LOG_EXISTS: Final = (
    "The database holds the log of a cluster already. Name another database; to join that cluster, start a node with "
    "an empty data directory."
)
NO_LOG: Final = "The database holds no log of Armillary: the address leads to another database, or the log was removed."
OTHER_LOG: Final = (
    "The database holds the log of another cluster: the address leads elsewhere, or the log was made anew."
)


class Deposed(Exception):
    """Another node leads now. Nothing of this call is in the log, and nothing of this epoch can follow."""


class LogUnavailable(Exception):
    """The log did not answer, or its answer could not be trusted. A call that reads can be repeated."""


class LogRefused(LogUnavailable):
    """The log must not be used as it is configured. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class LeaderState:
    """Who leads, as the log has it. A change of `renewals` shows that the leader is alive."""

    generation: bytes  # made with the log; a node that has another generation is of another cluster
    epoch: int  # 0: no node has led yet
    node: str
    renewals: int
    confirmed: Place  # acknowledged rows, as the leader told with its last renewal


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How far a node has come, as it told the log last."""

    node: str
    applied: int
    flushed: int  # survives a crash of the node's machine; this row and those above it stay in the log


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node of the cluster, as it announced itself last."""

    node: str
    region: str
    addresses: dict[str, str]  # by the name of the door
    silent_s: float  # since its last announcement, by the clock of the log


@dataclass(frozen=True, slots=True)
class LogFigures:
    """What an operator looks at."""

    newest_seq: int  # 0: the log has no rows
    newest_time_us: int
    newest_transactions: int
    lowest_seq: int
    size_bytes: int  # of its rows and their indexes
    dead_rows: int  # that PostgreSQL's vacuum has not removed yet
    wants_standby: bool  # appends wait for a synchronous standby
    has_standby: bool | None  # one is connected; None: the role may not see that (pg_read_all_stats)


class ReplicatedLog(Protocol):
    @property
    def cluster_key(self) -> bytes:
        """32 random bytes, made with the log: nodes prove to each other that they know them."""

    async def leader(self) -> LeaderState:
        """Who leads now. Raises LogUnavailable."""

    async def take(self, seen: LeaderState, node: str, time_us: int) -> tuple[LeaderState, Row] | None:
        """Become the leader, if the record is still as it was seen: a compare-and-set to the next epoch, then the
        fence behind the newest row, in a transaction that checks the epoch under a lock. Returns the new record and the
        acknowledged fence; None if another node was faster. Raises LogUnavailable: the caller may or may not lead,
        and looks again."""

    async def renew(self, seen: LeaderState, confirmed: Place) -> LeaderState | None:
        """Renew the lease by compare-and-set on (epoch, renewals), and tell what is confirmed. None: the record is not
        as it was seen. Raises LogUnavailable."""

    async def resign(self, seen: LeaderState, successor: str) -> bool:
        """Give up leading, after the last append: a compare-and-set that names the node that may take over at once; an
        empty name: any node. False: another node leads already. Raises LogUnavailable."""

    async def append(self, rows: Sequence[Row]) -> None:
        """Append rows behind the row before them, atomically. Returns when they are acknowledged as durable. An unknown
        outcome is resolved inside, however long that takes: the same append is repeated until the rows are there or
        another epoch is. Raises Deposed. Must not be cancelled: run it in a task of its own."""

    def rest(self) -> None:
        """This node does not lead: what only appends need may be given back. The next one gets it again."""

    async def read(self, after_seq: int, bytes_max: int, *, is_certain: bool = False) -> list[Row]:
        """Rows above a seq, in order, at least one if there is any. They need not be acknowledged yet. If the first has
        not the seq that follows, the rows between were trimmed. `is_certain`: not from a former primary, which may show
        other rows than its successor. Raises LogUnavailable."""

    async def newest(self) -> Place:
        """The newest row; START if there is none. Raises LogUnavailable."""

    async def lowest(self) -> int:
        """The seq of the first row that the log has; 1 if it has none. Raises LogUnavailable."""

    async def tail(self, after_seq: int) -> None:
        """Wait until there may be rows above a seq, or a while has passed. Raises LogUnavailable."""

    async def register(self, node: str) -> int:
        """Make this node a replica. Rows above the returned seq stay in the log for it until it has flushed them."""

    async def report(self, node: str, applied: int, flushed: int) -> bool:
        """Tell how far this replica has come. False: it was removed and has to be built anew."""

    async def replicas(self) -> list[ReplicaState]: ...

    async def remove(self, node: str) -> None:
        """The node is no replica any more: rows do not wait for it."""

    async def withdraw(self, node: str, applied: int) -> bool:
        """This node is to be no replica any more, and has applied rows up to a seq. False: it stays one, because the
        record names it as the leader, or no other replica has flushed these rows: what is trimmed of the log could be
        lost with this node's state. Two that withdraw at the same time do not count on each other. Can be repeated if
        its outcome is unknown: LogUnavailable. The node must not report or register meanwhile."""

    async def announce(self, node: str, region: str, addresses: dict[str, str]) -> None:
        """Tell the cluster that a node is alive, and where."""

    async def nodes(self) -> list[NodeState]:
        """Those that have announced themselves and were not forgotten."""

    async def forget(self, node: str) -> None:
        """Remove a node that will not come back."""

    async def figures(self) -> LogFigures:
        """Raises LogUnavailable."""

    async def trim(self) -> int:
        """Remove the rows below the lowest place that every replica has flushed, never the newest row. The row at that
        place stays: an append whose outcome is unknown looks for the row before it. Returns the lowest seq that is
        left."""

    async def close(self) -> None: ...


class ReplicatedLogs(Protocol):
    """All logs of a cluster, as one node uses them. They are numbered from 0 on; new ones are added behind the last."""

    @property
    def cluster_key(self) -> bytes:
        """Of log 0: nodes prove to each other that they know it."""

    @property
    def count(self) -> int:
        """As far as this node has seen; it only grows."""

    async def log(self, number: int) -> ReplicatedLog:
        """One of them; each time the same. Raises LogUnavailable."""

    async def leaders(self) -> Sequence[LeaderState]:
        """Who leads each log, by its number, read with one statement. Raises LogUnavailable."""

    async def close(self) -> None:
        """The logs too."""


class LogMaker(Protocol):
    """Makes logs that continue from the state of a data directory, and compares a replica with the log that is there.
    Nodes do not use it."""

    async def generation(self) -> bytes | None:
        """Of the log that is there; None if there is none. Raises LogUnavailable."""

    async def holds(self, place: Place) -> bool:
        """Whether the log that is there has this row, or has trimmed it. False: it was set back. Raises
        LogUnavailable."""

    async def make(self, generation: bytes, origin: Row, *, replaces: bool) -> None:
        """Make a log of this generation, with one row. `replaces`: a log that is there is removed with its replicas;
        else it is refused with LogRefused. Can be repeated if its outcome is unknown: LogUnavailable."""
