"""The node that a new replica is copied from: it makes a checkpoint, sends its files part by part, and drops it when
the receiver is done or has been silent for long. Receiving is in `bootstrap.py`.

Only files that the checkpoint had when it was made can be asked for, by the node that it was made for. All transfers
share one rate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.peers.calls import Answer, Handler
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.directory import FORMAT_VERSION
from armillary.storage.engine import T
from armillary.storage.private import read_regular
from armillary.storage.replication.arriving_copy import digest_of
from armillary.storage.replication.replicated_engine import ReplicatedEngine

BEGIN: Final = "bootstrap.begin"
DIGEST: Final = "bootstrap.digest"
PART: Final = "bootstrap.part"
END: Final = "bootstrap.end"
CHECKSUM_BYTES: Final = 16


def checksum_of(part: bytes) -> str:
    return blake2b(part, digest_size=CHECKSUM_BYTES).hexdigest()


@dataclass(slots=True)
class Transfer:
    """A checkpoint that a node receives."""

    node: str
    path: Path  # of the engine's files
    files: dict[str, int]  # name: bytes
    used_s: float
    watch: asyncio.Task[None] | None = None


class BootstrapSource:
    def __init__(
        self, engine: ReplicatedEngine, clock: Clock, bytes_per_second: float = limits.BOOTSTRAP_BYTES_PER_SECOND
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._free_s = float("-inf")  # when the rate allows the next part
        self._transfers: dict[str, Transfer] = {}
        self._dropping: set[asyncio.Future[None]] = set()
        self.calls: dict[str, Handler] = {
            BEGIN: self._begin,
            DIGEST: self._digest,
            PART: self._part,
            END: self._end,
        }

    async def close(self) -> None:
        for name in list(self._transfers):
            await self._drop(name)
        await asyncio.gather(*self._dropping)

    async def _begin(self, node: str, head: dict[str, Any], body: bytes) -> Answer:
        replica = self._engine.replica
        if head.get("generation") != replica.position.generation.hex():
            raise bad_request("This node has a replica of another log.")
        for name in [name for name, each in self._transfers.items() if each.node == node]:
            await self._drop(name)  # the receiver has begun again
        if len(self._transfers) >= limits.BOOTSTRAP_TRANSFERS_MAX:
            raise Failure(
                Kind.UNAVAILABLE, "This node is being copied to other nodes. Try again later.", retry_after_ms=10_000
            )
        reached = await replica.sync()  # the checkpoint has this row, and may have later ones
        made = await self._checkpoint()
        path = made / replica.directory.engine_path.name
        files = {each.name: each.stat().st_size for each in sorted(path.iterdir()) if each.is_file()}
        transfer = Transfer(node, path, files, self._clock.elapsed_s())
        self._transfers[made.name] = transfer
        transfer.watch = asyncio.ensure_future(self._drop_when_silent(made.name, transfer))
        told = {
            "id": made.name,
            "format": FORMAT_VERSION,
            "generation": reached.generation.hex(),
            "seq": reached.place.seq,
        }
        return told, orjson.dumps(files)

    async def _checkpoint(self) -> Path:
        """A checkpoint that is complete after the receiver has given up waiting is dropped at once."""
        making = asyncio.ensure_future(self._engine.checkpoint())
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(self._drop_unwanted)
            raise

    def _drop_unwanted(self, making: asyncio.Future[Path]) -> None:
        if making.exception() is None:
            dropping = asyncio.ensure_future(self._engine.drop_checkpoint(making.result().name))
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)

    async def _digest(self, node: str, head: dict[str, Any], body: bytes) -> Answer:
        path, _ = self._file(node, head)
        digest = await _in_thread(partial(digest_of, path))
        return {"digest": digest.hex()}, b""

    async def _part(self, node: str, head: dict[str, Any], body: bytes) -> Answer:
        path, size_bytes = self._file(node, head)
        offset, length = head.get("offset"), head.get("length")
        if type(offset) is not int or type(length) is not int:
            raise bad_request("A part has an offset and a length.")
        if offset < 0 or not 0 < length <= limits.BOOTSTRAP_PART_BYTES or offset + length > size_bytes:
            raise bad_request("The part is not inside of the file, or is too long.")
        await self._pace(length)
        part, checksum = await _in_thread(partial(_read, path, offset, length))
        return {"checksum": checksum}, part

    async def _end(self, node: str, head: dict[str, Any], body: bytes) -> Answer:
        name, _ = self._transfer(node, head)
        await self._drop(name)
        return {}, b""

    def _transfer(self, node: str, head: dict[str, Any]) -> tuple[str, Transfer]:
        name = head.get("id")
        transfer = self._transfers.get(name) if type(name) is str else None
        if type(name) is not str or transfer is None or transfer.node != node:
            raise Failure(Kind.NOT_FOUND, "There is no such checkpoint any more: begin again.")
        transfer.used_s = self._clock.elapsed_s()
        return name, transfer

    def _file(self, node: str, head: dict[str, Any]) -> tuple[Path, int]:
        """A file of the checkpoint, by the name that it had there, and its size."""
        _, transfer = self._transfer(node, head)
        name = head.get("file")
        if type(name) is not str or name not in transfer.files:
            raise bad_request("The checkpoint has no such file.")
        return transfer.path / name, transfer.files[name]

    async def _pace(self, size_bytes: int) -> None:
        now_s = self._clock.elapsed_s()
        begin_s = max(now_s, self._free_s)
        self._free_s = begin_s + size_bytes / self._bytes_per_second
        if begin_s > now_s:
            await self._clock.sleep(begin_s - now_s)

    async def _drop_when_silent(self, name: str, transfer: Transfer) -> None:
        while (left_s := transfer.used_s + limits.BOOTSTRAP_SILENCE_SECONDS - self._clock.elapsed_s()) > 0:
            await self._clock.sleep(left_s)
        transfer.watch = None  # this task, which must not be cancelled before it is done
        await self._drop(name)

    async def _drop(self, name: str) -> None:
        transfer = self._transfers.pop(name, None)
        if transfer is None:
            return
        if transfer.watch is not None:
            transfer.watch.cancel()
        await self._engine.drop_checkpoint(name)


def _read(path: Path, offset: int, length: int) -> tuple[bytes, str]:
    with read_regular(path) as file:
        file.seek(offset)
        part = file.read(length)
    return part, checksum_of(part)


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)
