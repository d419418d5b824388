"""The captures of an account: recordings of what applications ask of one container. Here they are started, found,
stopped and deleted; `recorder.py` records, `writing_recorder.py` writes, `capture_store.py` keeps what was recorded.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from armillary import audit, limits
from armillary.account.captures.capture_store import RUNNING, CaptureRecord, CaptureStore, FileStore, MemoryStore
from armillary.account.captures.recorder import Recorder, Recording
from armillary.account.captures.share_recorder import ShareRecorder, Shares, ShareTaken
from armillary.account.captures.value_digests import SECRET_BYTES
from armillary.account.captures.writing_recorder import WritingRecorder
from armillary.account.events import Events
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model.json_members import shown
from armillary.model.keys import PartitionKeyDefinition

FORMAT_VERSION: Final = 1
_ID_BYTES: Final = 6


class Captures:
    """`on_changed` is called with the rid of a container whose recording has begun or ended."""

    def __init__(self, clock: Clock, events: Events, directory: Path | None) -> None:
        self._clock = clock
        self._events = events
        self._store: CaptureStore = MemoryStore() if directory is None else FileStore(directory)
        self._records: dict[str, CaptureRecord] = {}
        self._recorders: dict[str, WritingRecorder] = {}
        self._shares: dict[str, ShareRecorder] = {}  # of captures that another process of the server writes
        self._ending: dict[str, WritingRecorder] = {}  # that have ended, and whose last lines may not be written yet
        self._leaving: set[asyncio.Task[None]] = set()  # of containers that were deleted
        self.is_on = False  # whether requests are noted: the one thing that doors test for each request
        self._has_details = False  # whether a log or a trace asks for what each request did
        self.statuses: dict[Any, tuple[int, int]] = {}  # of outcomes; the SQL door gives them
        self.shares: Callable[[], Shares] | None = None  # of a new capture; None: the server has one process
        self.on_changed: Callable[[bytes], None] = lambda rid: None

    async def open(self, exists: Callable[[bytes], bool]) -> None:
        """Find the captures of earlier runs of the server. `exists`: whether there is still a container of this
        rid."""
        for record in await self._in_thread(self._store.load):
            if exists(bytes.fromhex(record.rid)):
                self._records[record.id] = record
            else:
                await self._in_thread(self._store.delete, record)

    async def close(self) -> None:
        for recorder in list(self._recorders.values()):
            recorder.end("the server stopped")
        for record in list(self._records.values()):
            await self._settle(record)
        await asyncio.gather(*self._leaving, return_exceptions=True)

    # Recording.

    async def start(
        self,
        names: tuple[str, str],
        rid: bytes,
        key: PartitionKeyDefinition | None,
        partitions: int,
        *,
        seconds: int = limits.CAPTURE_SECONDS_DEFAULT,
        share: float = 1.0,
        limit: int = limits.CAPTURE_REQUESTS_MAX,
        keeps_values: bool = False,
    ) -> CaptureRecord:
        """Begin to record what is asked of a container."""
        if len(self._records) >= limits.CAPTURES_MAX:
            raise Failure(
                Kind.CONFLICT,
                f"{limits.CAPTURES_MAX} captures are kept, which is the most. Delete one that is not needed any more.",
            )
        record = CaptureRecord(
            id=self._clock.random_bytes(_ID_BYTES).hex(),
            rid=rid.hex(),
            key=list(key.paths) if key is not None else [],
            partitions=partitions,
            begun_s=self._clock.now_s(),
            seconds=seconds,
            share=share,
            limit=limit,
            keeps_values=keeps_values,
            secret=self._clock.random_bytes(SECRET_BYTES).hex(),
        )
        self._records[record.id] = record
        try:
            await self._in_thread(self._store.save, record)
        except OSError as error:
            del self._records[record.id]
            raise Failure(
                Kind.STORAGE_FULL, f"The capture cannot be written to the data directory: {error.strerror}."
            ) from None
        shares = self.shares() if self.shares is not None else None
        ended = partial(self._ended, names, record)
        recorder = WritingRecorder(record, self._store, key, self.statuses, self._clock, shares, ended)
        self._recorders[record.id] = recorder
        self._changed(rid)
        audit.record("capture.started", database=names[0], container=names[1], id=record.id, values=keeps_values)
        self._events.record("capture-begun", f"Requests of {'/'.join(names)} are recorded.", *names, capture=record.id)
        return record

    def recording_of(self, rid: bytes) -> Recording | None:
        recorders: Iterable[Recorder] = (*self._recorders.values(), *self._shares.values())
        found = [each for each in recorders if each.record.rid == rid.hex()]
        return Recording(found) if found or self._has_details else None

    def note_details(self, is_wanted: bool) -> bool:
        """Note what each request did, for logs and traces, or stop that. Whether this changes anything: then the caller
        tells all containers."""
        is_changed = is_wanted != self._has_details
        self._has_details = is_wanted
        self._turn()
        return is_changed

    def _ended(self, names: tuple[str, str], record: CaptureRecord) -> None:
        self._ending[record.id] = self._recorders.pop(record.id)
        self._changed(bytes.fromhex(record.rid))
        self._events.record(
            "capture-ended",
            f"The capture of {'/'.join(names)} has ended with {record.requests} requests: {record.reason}.",
            *names,
            capture=record.id,
        )

    def _changed(self, rid: bytes) -> None:
        self._turn()
        self.on_changed(rid)

    def _turn(self) -> None:
        self.is_on = self._has_details or bool(self._recorders) or bool(self._shares)

    # Several processes of one server: the first writes captures.

    @property
    def running(self) -> list[CaptureRecord]:
        return [each.record for each in self._recorders.values()]

    def follow(
        self, running: Iterable[CaptureRecord], key_of: Callable[[bytes], PartitionKeyDefinition | None]
    ) -> None:
        """Record the share of this process for the captures that run."""
        left = self._shares.keys() - {each.id for each in running}
        for name in left:
            self._end_share(name)
        for record in running:
            if record.id not in self._shares:
                rid = bytes.fromhex(record.rid)
                self._shares[record.id] = ShareRecorder(record, key_of(rid), self.statuses, self._clock)
                self._changed(rid)

    def take_share(self, name: str, received: int, *, is_last: bool) -> ShareTaken:
        share = self._shares.get(name)
        if share is None:
            return ShareTaken()
        if is_last:
            self._end_share(name)
        return share.take(received)

    def _end_share(self, name: str) -> None:
        share = self._shares.pop(name)
        share.end("")
        self._changed(bytes.fromhex(share.record.rid))

    async def gather(self) -> None:
        """Have captures hold what other processes have recorded until now."""
        if self.shares is not None:
            await asyncio.gather(*[each.write() for each in list(self._recorders.values())])

    # What there is.

    def of_container(self, rid: bytes) -> list[CaptureRecord]:
        """In the order in which they were begun."""
        found = [each for each in self._records.values() if each.rid == rid.hex()]
        return sorted(found, key=lambda each: each.begun_s)

    def find(self, rid: bytes, name: str) -> CaptureRecord:
        record = self._records.get(name)
        if record is None or record.rid != rid.hex():
            raise Failure(
                Kind.NOT_FOUND,
                f"There is no capture '{shown(name)}' of this container. `armillary capture list` lists all of them.",
            )
        return record

    async def stop(self, record: CaptureRecord) -> None:
        """End a capture. One that has ended stays as it is."""
        recorder = self._recorders.get(record.id)
        if recorder is not None:
            recorder.end("it was stopped")
        await self._settle(record)

    async def _settle(self, record: CaptureRecord) -> None:
        """Wait until all of a capture that has ended is written."""
        recorder = self._ending.get(record.id)
        if recorder is not None:
            await recorder.finish()
            self._ending.pop(record.id, None)

    async def part(self, names: tuple[str, str], record: CaptureRecord, number: int) -> bytes | None:
        """A part of the file: first its head, then its lines. None: there are no more."""
        if record.state == RUNNING:
            raise Failure(Kind.CONFLICT, "The capture is running. Stop it first: its head says how much it holds.")
        await self._settle(record)
        if number == 0:
            audit.record("capture.sent", database=names[0], container=names[1], id=record.id)
            return _head_member(names, record)
        at = (number - 1) * limits.CAPTURE_PART_BYTES
        if at >= record.size_bytes:
            return None
        try:
            part: bytes = await self._in_thread(self._store.read, record, at, limits.CAPTURE_PART_BYTES)
        except OSError as error:
            raise Failure(Kind.CORRUPT, f"The file of the capture cannot be read: {error.strerror}.") from None
        return part

    async def delete(self, record: CaptureRecord) -> None:
        await self.stop(record)
        self._records.pop(record.id, None)
        await self._in_thread(self._store.delete, record)

    def leave(self, rid: bytes) -> None:
        """A container was deleted, and its captures with it."""
        for name in [each.record.id for each in self._shares.values() if each.record.rid == rid.hex()]:
            self._end_share(name)
        for record in self.of_container(rid):
            del self._records[record.id]
            task = asyncio.get_running_loop().create_task(self.delete(record))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _head_member(names: tuple[str, str], record: CaptureRecord) -> bytes:
    made = zlib.compressobj(wbits=31)
    return made.compress(orjson.dumps(head_of(names, record), option=orjson.OPT_APPEND_NEWLINE)) + made.flush()


def head_of(names: tuple[str, str], record: CaptureRecord) -> dict[str, Any]:
    """The first line of a capture's file."""
    ended_s = record.ended_s
    return {
        "format": "armillary-capture",
        "version": FORMAT_VERSION,
        "id": record.id,
        "database": names[0],
        "container": names[1],
        "key": record.key,
        "partitions": record.partitions,
        "begunAt": moment(record.begun_s),
        "endedAt": moment(ended_s) if ended_s is not None else None,
        "state": record.state,
        "reason": record.reason,
        "share": record.share,
        "values": record.keeps_values,
        "requests": record.requests,
        "missed": record.missed,
        "bytes": record.size_bytes,
    }


def moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")
