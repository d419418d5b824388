"""A replica is built from another node: its checkpoint is received part by part beside the engine's files and takes
their place when it is whole. Then the log brings it to the present. Sending is in `bootstrap_source.py`.

Registering comes first, so that the log keeps what follows the copy. A broken connection, a stop of this process and a
new checkpoint of the same node cost only what had not arrived: files count by their digests, parts by their checksums.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

import orjson

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.bootstrap_source import BEGIN, DIGEST, END, PART, checksum_of
from armillary.cluster.peers.calls import Answer, PeerGone
from armillary.cluster.peers.log_calls import Call
from armillary.errors import Failure, Kind
from armillary.storage.directory import FORMAT_VERSION, DataDirectory
from armillary.storage.disk_errors import no_room, translated
from armillary.storage.engine import T
from armillary.storage.log.replicated_log import ReplicatedLog
from armillary.storage.replication.arriving_copy import ArrivingCopy, too_old
from armillary.storage.replication.local_replica import Position

_log = logging.getLogger(__name__)
_is_name = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", re.ASCII).fullmatch
_PART_ATTEMPTS: Final = 3
_FILE_ATTEMPTS: Final = 2  # the second receives it from its beginning


class Progress(NamedTuple):
    done_bytes: int  # of the checkpoint that is received
    total_bytes: int


class _Checkpoint(NamedTuple):
    """What the other node has offered."""

    id: str
    seq: int
    files: Mapping[str, int]

    @classmethod
    def parse(cls, head: Mapping[str, Any], body: bytes) -> _Checkpoint:
        """Names come from another machine: one that leads out of the directory is refused."""
        files = {str(name): int(size_bytes) for name, size_bytes in orjson.loads(body).items()}
        if not all(_is_name(name) and size_bytes >= 0 for name, size_bytes in files.items()):
            raise ValueError
        return cls(str(head["id"]), int(head["seq"]), files)


async def needs_bootstrap(position: Position, log: ReplicatedLog) -> bool:
    """Whether the rows that follow a replica's position are gone: an empty replica of a log that has begun long ago, or
    one that is too far behind. A replica that is ahead of the log is not built anew by itself: its follower stops and
    says that the log was set back. To be asked after the replica is registered. Raises LogUnavailable."""
    return await log.lowest() > position.place.seq + 1


def drop_arrived(directory: DataDirectory) -> None:
    """Remove what has arrived of a copy that is not needed any more."""
    ArrivingCopy(directory).drop()


async def fetch(
    call: Call,
    source: str,
    directory: DataDirectory,
    log: ReplicatedLog,
    node: str,
    generation: bytes,
    clock: Clock,
    *,
    on_progress: Callable[[Progress], None] | None = None,
) -> Position:
    """Build the replica in a directory, whose database is closed, from another node. Returns the position that it has
    now. Raises a Failure, LogUnavailable, or PeerGone after several attempts without progress: what has arrived stays
    for the next call, with this source or another one."""
    lowest_seq = await log.register(node)
    fetching = _Fetch(call, source, directory, generation, lowest_seq, on_progress)
    attempts, reached = 0, 0
    while True:
        try:
            return await fetching.run()
        except (Failure, PeerGone) as error:
            # Not found: the other node has started again, or has dropped the checkpoint.
            if isinstance(error, Failure) and error.kind is not Kind.NOT_FOUND:
                raise
            attempts = attempts + 1 if fetching.received_bytes == reached else 1
            reached = fetching.received_bytes
            if attempts >= limits.BOOTSTRAP_ATTEMPTS:
                raise
            _log.info("copying from node %s was interrupted and is continued: %s", source, error)
            await clock.sleep(limits.BOOTSTRAP_RETRY_SECONDS)


class _Fetch:
    def __init__(
        self,
        call: Call,
        source: str,
        directory: DataDirectory,
        generation: bytes,
        lowest_seq: int,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._call = call
        self._source = source
        self._directory = directory
        self._copy = ArrivingCopy(directory)
        self._generation = generation
        self._lowest_seq = lowest_seq
        self._on_progress = on_progress
        self._progress = Progress(0, 0)
        self.received_bytes = 0  # over all attempts

    async def run(self) -> Position:
        checkpoint = await self._begin()
        files = checkpoint.files
        await _in_thread(partial(self._copy.begin, files))
        total_bytes = sum(files.values())
        present_bytes = sum(map(self._copy.length, files))
        if self._directory.free_bytes() < total_bytes - present_bytes + self._directory.default_reserve_bytes():
            raise no_room()
        self._progress = Progress(0, total_bytes)
        for name, size_bytes in files.items():
            await self._receive(checkpoint, name, size_bytes)
        position = await _in_thread(partial(self._copy.check, self._generation, self._lowest_seq))
        await self._end(checkpoint)
        await _in_thread(self._copy.take_place)
        return position

    async def _begin(self) -> _Checkpoint:
        head, body = await self._ask(BEGIN, {"generation": self._generation.hex()})
        if head.get("format") != FORMAT_VERSION:
            raise Failure(
                Kind.UNSUPPORTED,
                f"Node {self._source} has data of another format: run the same version of Armillary on both nodes.",
            )
        try:
            checkpoint = _Checkpoint.parse(head, body)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged_on_the_way(self._source) from None
        if checkpoint.seq < self._lowest_seq:
            raise too_old(checkpoint.seq, self._lowest_seq)
        return checkpoint

    async def _receive(self, checkpoint: _Checkpoint, name: str, size_bytes: int) -> None:
        before = self._progress.done_bytes
        for _ in range(_FILE_ATTEMPTS):
            self._tell(before + self._copy.length(name))
            while (offset := self._copy.length(name)) < size_bytes:
                await self._receive_parts(checkpoint, name, offset, size_bytes)
                self._tell(before + self._copy.length(name))
            head, _ = await self._ask(DIGEST, {"id": checkpoint.id, "file": name})
            if await _in_thread(partial(self._copy.is_whole, name, bytes.fromhex(head["digest"]))):
                return
            await _in_thread(partial(self._copy.remove, name))  # a beginning of an earlier file of this name
        raise damaged_on_the_way(self._source)

    async def _receive_parts(self, checkpoint: _Checkpoint, name: str, offset: int, size_bytes: int) -> None:
        """Several at once, since nodes may be far from each other. What arrives before one that fails is kept."""
        ahead = range(offset, size_bytes, limits.BOOTSTRAP_PART_BYTES)[: limits.BOOTSTRAP_PARTS_AHEAD]
        asked = [self._part(checkpoint, name, each, size_bytes) for each in ahead]
        parts = await asyncio.gather(*asked, return_exceptions=True)
        arrived = list(takewhile(lambda part: isinstance(part, bytes), parts))
        content = b"".join(part for part in arrived if isinstance(part, bytes))
        if content:
            await _in_thread(partial(self._copy.add, name, offset, content))
            self.received_bytes += len(content)
        if len(arrived) < len(parts) and isinstance(failure := parts[len(arrived)], BaseException):
            raise failure

    async def _part(self, checkpoint: _Checkpoint, name: str, offset: int, size_bytes: int) -> bytes:
        length = min(limits.BOOTSTRAP_PART_BYTES, size_bytes - offset)
        for _ in range(_PART_ATTEMPTS):
            asked = {"id": checkpoint.id, "file": name, "offset": offset, "length": length}
            head, part = await self._ask(PART, asked)
            if len(part) == length and head.get("checksum") == await _in_thread(partial(checksum_of, part)):
                return part
        raise damaged_on_the_way(self._source)

    async def _end(self, checkpoint: _Checkpoint) -> None:
        try:
            await self._ask(END, {"id": checkpoint.id})
        except Exception as error:  # the other node drops the checkpoint later by itself
            _log.info("node %s was not told that the copy is complete: %s", self._source, error)

    async def _ask(self, name: str, head: dict[str, Any]) -> Answer:
        return await self._call(self._source, name, head, b"", limit_s=limits.BOOTSTRAP_CALL_SECONDS)

    def _tell(self, done_bytes: int) -> None:
        self._progress = self._progress._replace(done_bytes=done_bytes)
        if self._on_progress is not None:
            self._on_progress(self._progress)


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(None, work)
    except Failure:
        raise
    except Exception as error:
        raise (translated(error) or error) from error


def damaged_on_the_way(source: str) -> Failure:
    return Failure(
        Kind.CORRUPT,
        f"What node {source} sends does not have the checksums that it names. Check its disk and the network, or copy "
        "from another node.",
    )
