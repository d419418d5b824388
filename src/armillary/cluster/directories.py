"""Data directories of stopped nodes join and leave clusters: `init` makes a cluster of a single server's directory,
`leave` makes a single server's directory of a replica, `reset_log` makes a new log of a replica when the log was lost
or set back.

Each can be repeated after it was interrupted. All raise Failures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.directory import log_directories
from armillary.storage.log.replicated_log import LOG_EXISTS, LogMaker, LogRefused, LogUnavailable, ReplicatedLog
from armillary.storage.log.rows import CHAIN_BYTES, GENERATION_BYTES, Place, RowKind, origin_row
from armillary.storage.private import Permissions
from armillary.storage.replication.local_replica import Position, not_a_replica
from armillary.storage.replication.stopped_replica import StoppedDirectory

_ORIGIN_SEQ: Final = 2  # of the first row of a log that is made of a directory: an empty replica would need row 1


class Left(NamedTuple):
    """What a replica has kept when it left."""

    position: Position
    missing_rows: int | None  # transactions of the log that it does not have; None: not known
    is_removed: bool  # from the replicas that the log keeps rows for, and from the nodes of the cluster


class LogReset(NamedTuple):
    """A log that was made anew."""

    former: Position  # what the new log begins with: later transactions are lost, if there were any
    position: Position  # of the replica, in the new log

    @property
    def sentence(self) -> str:
        moment = datetime.fromtimestamp(self.former.time_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
        return (
            f"The log was made anew from row {self.former.place.seq} of epoch {self.former.place.epoch}, written at "
            f"{moment}. What was acknowledged later is lost, if there was anything. The other nodes' replicas are of "
            "the former log: empty their data directories, and start them to be built anew from this one."
        )


def position_of(path: Path, permissions: Permissions = "private") -> Position | None:
    """Of the replica in a stopped node's directory; None: it is a single server's."""
    with StoppedDirectory.open(path, permissions) as directory:
        return directory.position


async def init(maker: LogMaker, path: Path, clock: Clock, permissions: Permissions = "private") -> Position:
    """Make of a stopped single server's directory the first replica of a new log. Refused if there is a log already."""
    with StoppedDirectory.open(path, permissions) as directory:
        async with _told():
            present = await maker.generation()
        position = directory.position
        is_new = position is None
        if position is not None:
            # An earlier attempt has come as far as this.
            is_begun = (position.place.epoch, position.place.seq) == (0, _ORIGIN_SEQ)
            if not is_begun or present not in (None, position.generation):
                raise bad_request("The data directory is a replica of a cluster already.")
        else:
            if present is not None:
                raise bad_request(LOG_EXISTS)
            if directory.is_empty:
                raise bad_request("The data directory holds no account. Start the nodes of a new cluster without it.")
            place = Place(0, _ORIGIN_SEQ, clock.random_bytes(CHAIN_BYTES))
            position = Position(clock.random_bytes(GENERATION_BYTES), place, int(clock.now_s() * 1_000_000), 0)
            directory.store(position)  # first: a log without a replica could not be used
        try:
            async with _told():
                await _make(maker, position, replaces=False)
        except Failure as failure:
            if is_new and failure.kind is not Kind.UNAVAILABLE:
                directory.store(None)
            raise
        return position


async def leave(
    path: Path,
    log: ReplicatedLog | None,
    node: str | None = None,
    *,
    accepts_loss: bool = False,
    permissions: Permissions = "private",
) -> Left:
    """Make a single server's directory of a stopped node's replica. Refused, unless `accepts_loss`, if the log cannot
    be asked, is not the replica's, has removed rows that the replica has not applied, does not have what the replica
    has applied, or has transactions that the replica has not applied. With the name of the node, the log keeps no rows
    for it from then on."""
    _refuse_several(path)
    with StoppedDirectory.open(path, permissions) as directory:
        position = directory.position
        if position is None:
            raise not_a_replica()
        reason: str | None = "Whether this replica has everything is not known without its log."
        missing_rows: int | None = None
        if log is not None:
            async with _told():
                reason, missing_rows = await _compared(position, log)
        if reason is not None and not accepts_loss:
            raise bad_request(reason + _OR_ACCEPT)
        directory.store(None)
    if log is None or node is None:
        return Left(position, missing_rows, is_removed=False)
    try:
        await log.remove(node)
        await log.forget(node)
    except LogUnavailable:
        return Left(position, missing_rows, is_removed=False)
    return Left(position, missing_rows, is_removed=True)


async def reset_log(
    maker: LogMaker, path: Path, *, accepts_loss: bool = False, permissions: Permissions = "private"
) -> LogReset:
    """After the log was lost or set back: make a new one of the state of a stopped node's replica, in the place of the
    one that is there. Refused, unless `accepts_loss`, if the log has what this replica has, or is another one."""
    _refuse_several(path)
    with StoppedDirectory.open(path, permissions) as directory:
        former = directory.position
        if former is None:
            raise not_a_replica()
        position = _renewed(former)
        async with _told():
            present = await maker.generation()
            # Made by an attempt that was interrupted, or of another replica with the same state: continued.
            if present not in (None, position.generation) and not accepts_loss:
                if present != former.generation:
                    raise bad_request("The database holds the log of another cluster, or one made anew." + _OR_ACCEPT)
                if await maker.holds(former.place):
                    raise bad_request(
                        "The log was neither lost nor set back: it has what this replica has, and a new log could lose "
                        "later transactions." + _OR_ACCEPT
                    )
            await _make(maker, position, replaces=True)
        directory.store(position)
    return LogReset(former, position)


_OR_ACCEPT: Final = " Nothing was changed. Say that losses are accepted to go on all the same."


async def _compared(position: Position, log: ReplicatedLog) -> tuple[str | None, int | None]:
    """Why a replica may lack something, and how many rows of transactions; None: not known."""
    place = position.place
    if (await log.leader()).generation != position.generation:
        return "The log is not the one of this replica.", None
    if await log.lowest() > place.seq + 1:
        return "The log has removed rows that this replica has not applied.", None
    newest = await log.newest()
    is_set_back = newest.seq < place.seq or (newest.seq == place.seq and newest.chain != place.chain)
    missing_rows = 0
    while not is_set_back and (rows := await log.read(place.seq, limits.LOG_READ_BYTES)):
        is_set_back = not rows[0].follows(place)
        place = rows[-1].place
        missing_rows += sum(row.kind is RowKind.GROUP for row in rows)
    if is_set_back:
        return "The log was set back: it does not have what this replica has applied.", None
    if missing_rows == 0:
        return None, 0
    rows_text = f"{missing_rows} row{'s' * (missing_rows != 1)}"
    return (
        f"The log has {rows_text} of transactions that this replica has not applied. Start the node, wait until it has "
        "followed, and stop it again."
    ), missing_rows


def _refuse_several(path: Path) -> None:
    numbers = log_directories(path)
    if numbers:
        raise bad_request(
            f"The data directory has replicas of {1 + len(numbers)} logs. This is for nodes of clusters with one log."
        )


def _renewed(former: Position) -> Position:
    """The same state in a new log. Generation and chain follow from it, so that an interrupted attempt is repeated with
    the same. Epochs that this replica has not seen are skipped, so that they do not go back."""
    state = former.pack()
    generation = blake2b(state, digest_size=GENERATION_BYTES, person=b"generation").digest()
    chain = blake2b(state, digest_size=CHAIN_BYTES, person=b"chain").digest()
    seq = max(former.place.seq + 1, _ORIGIN_SEQ)
    return former._replace(generation=generation, place=Place(former.place.epoch + limits.RESET_LOG_EPOCHS, seq, chain))


async def _make(maker: LogMaker, position: Position, *, replaces: bool) -> None:
    origin = origin_row(position.place, time_us=position.time_us, transactions=position.transactions)
    await maker.make(position.generation, origin, replaces=replaces)


@asynccontextmanager
async def _told() -> AsyncIterator[None]:
    """Failures of the log as Failures."""
    try:
        yield
    except LogRefused as error:
        raise bad_request(str(error)) from None
    except LogUnavailable as error:
        raise Failure(
            Kind.UNAVAILABLE, f"The replicated log does not answer: {error}. Run the same command again."
        ) from None
