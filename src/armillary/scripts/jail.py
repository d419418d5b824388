"""The jail: a pool of cells, which are sandboxed processes (`cell.py`) that each run one script at a time. A cell that
does not answer in time, or sends a malformed frame, is killed and replaced. The operations that a script requests while
it runs are executed by the `perform` function that the caller passes (`calls.py`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import marshal
import os
import struct
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import orjson

from armillary import limits
from armillary.errors import Failure, Kind

_HEAD = struct.Struct(">IB")
_LENGTH = struct.Struct(">I")
_HERE = Path(__file__).parent
_UNSEEN_S = 0.1  # within which the exit of an idle process may still be unnoticed
_NOT_JSON = "Error: the script's output is not JSON in UTF-8: it has lone surrogates"

Perform = Callable[[Any], Awaitable[Any]]  # requested operations -> their results


# What a cell requires before it runs a script. "limits": the seccomp filter may be missing.
Confinement = Literal["filter", "limits"]


def cell_command(confinement: Confinement) -> list[str]:
    """The command line of a cell: without the server's modules, environment and settings."""
    if sys.platform == "win32":
        raise Failure(
            Kind.UNSUPPORTED, "JavaScript is not run on Windows, because its process cannot be confined there."
        )
    engine = importlib.util.find_spec("_quickjs")
    if engine is None or engine.origin is None:
        raise Failure(
            Kind.UNSUPPORTED,
            "JavaScript is not run here: quickjs-ng is not installed. It has no wheel for macOS on Intel processors; "
            "elsewhere `pip install quickjs-ng` brings it.",
        )
    return [sys.executable, "-I", "-S", str(_HERE / "cell.py"), engine.origin, str(_HERE), confinement]


def check_ready(letter: bytes, body: bytes) -> None:
    """Check the first frame of a cell: it is confined, or says why it could not be."""
    if letter == b"E":
        return
    if letter != b"N":
        raise EOFError
    raise Failure(
        Kind.UNSUPPORTED,
        f"JavaScript is not run here, because its process cannot be confined: {body.decode('utf-8', 'replace')[:200]}. "
        "Where scripts are trusted, --script-confinement limits runs them without the filter.",
    )


@contextmanager
def vanishing_directory() -> Iterator[str]:
    """A working directory for a cell. It is removed as soon as the cell runs, so nothing is left of it when a process
    is killed, and no file can be created in it."""
    directory = tempfile.mkdtemp(prefix="armillary-jail-")
    try:
        yield directory
    finally:
        os.rmdir(directory)


class Begin(NamedTuple):
    """A script for a cell: source, limits and input."""

    source: str
    given: dict[str, Any]
    owner: str = ""  # the database: a cell runs scripts of one database only
    cpu_s: float = limits.SCRIPT_ENGINE_SECONDS_MAX
    memory_bytes: int = limits.SCRIPT_MEMORY_BYTES_MAX

    def encode(self) -> bytes:
        head = {
            "source": self.source,
            "cpu_s": self.cpu_s,
            "memory_bytes": self.memory_bytes,
            "message_bytes_max": limits.SCRIPT_MESSAGE_BYTES_MAX,
        }
        text = marshal.dumps(head)
        return _LENGTH.pack(len(text)) + text + orjson.dumps(self.given)


class Ended(NamedTuple):
    """How a script ended: what it reported, or why it was stopped."""

    told: dict[str, Any]
    stopped: str | None = None


class Jail:
    """The pool of cells of an account."""

    def __init__(self, confinement: Confinement = "filter") -> None:
        self._confinement = confinement
        self._idle: list[_Cell] = []  # least recently used first
        self._cells: set[_Cell] = set()
        self._room = asyncio.Semaphore(limits.SCRIPT_CELLS_MAX)
        self._long_count = 0  # long-running scripts that no longer count against the pool's size
        self._is_closed = False

    async def run(self, begin: Begin, perform: Perform) -> Ended:
        """Run a script to its end. `perform` executes the operations that it requests; a Failure of it ends the
        script."""
        if self._room.locked():
            try:
                await asyncio.wait_for(self._room.acquire(), limits.SCRIPT_WAIT_SECONDS_MAX)
            except TimeoutError:
                message = "Too many scripts are waiting for others to end. Try again later."
                raise Failure(Kind.TIMED_OUT, message) from None
        else:
            await self._room.acquire()
        place = _Place()
        loop = asyncio.get_running_loop()
        timer = loop.call_later(limits.SCRIPT_LONG_SECONDS, self._make_room, place)
        try:
            cell = await self._ready(begin.owner)
            begun_s = loop.time()
            ended = await self._run(cell, begin, perform)
            if ended.stopped == "lost" and not cell.has_answered and loop.time() - begun_s < _UNSEEN_S:
                # The idle process had probably ended unnoticed. No operation was executed, so another cell may try.
                ended = await self._run(await self._ready(begin.owner), begin, perform)
            return ended
        finally:
            timer.cancel()
            if place.is_long:
                self._long_count -= 1
            else:
                self._room.release()

    def _make_room(self, place: _Place) -> None:
        """Let another script start: a few long-running scripts must not occupy the whole pool."""
        if self._long_count < limits.SCRIPT_LONG_CELLS_MAX:
            self._long_count += 1
            place.is_long = True
            self._room.release()

    async def _run(self, cell: _Cell, begin: Begin, perform: Perform) -> Ended:
        try:
            return await cell.run(begin, perform)
        except TimeoutError:
            return Ended({}, "interrupted")
        except (EOFError, ValueError):
            return Ended({}, "lost")
        finally:
            if cell.is_at_rest and not self._is_closed and len(self._idle) < limits.SCRIPT_CELLS_MAX:
                self._idle.append(cell)
            else:
                self._cells.discard(cell)
                await asyncio.shield(cell.kill())

    async def _ready(self, owner: str) -> _Cell:
        """An idle cell that ran only scripts of this database, or a new one. A script that takes over the engine could
        read the input of the next script in the same cell."""
        if self._is_closed:
            raise Failure(Kind.UNAVAILABLE, "The server is stopping.")
        while (cell := self._take_idle(owner)) is not None:
            if cell.is_alive:
                return cell
            await self._end(cell)
        if len(self._idle) >= limits.SCRIPT_CELLS_MAX:
            await self._end(self._idle.pop(0))
        cell = await _Cell.start(owner, self._confinement)
        self._cells.add(cell)
        return cell

    def _take_idle(self, owner: str) -> _Cell | None:
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].owner == owner:
                return self._idle.pop(place)
        return None

    async def _end(self, cell: _Cell) -> None:
        self._cells.discard(cell)
        await cell.kill()

    @property
    def process_ids(self) -> list[int]:
        return [cell.process_id for cell in self._cells]

    async def close(self) -> None:
        self._is_closed = True
        for cell in list(self._cells):
            await cell.kill()
        self._cells.clear()
        self._idle.clear()


class _Place:
    """The place of a running script in the pool; a long-running one has given it up (`_make_room`)."""

    is_long = False


class _Cell(asyncio.SubprocessProtocol):
    """One process. Frames that it sends are buffered until `_read` takes them."""

    def __init__(self) -> None:
        self.owner = ""
        self._received = bytearray()
        self._length: int | None = None  # of the frame that is being received
        self._arrived: asyncio.Future[None] | None = None  # set while `_read` waits for a frame
        self._ended = asyncio.get_running_loop().create_future()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._is_silent = False  # no more frames will be received
        self.is_at_rest = True
        self.has_answered = False  # during the current script

    @classmethod
    async def start(cls, owner: str, confinement: Confinement) -> _Cell:
        loop = asyncio.get_running_loop()
        try:
            with vanishing_directory() as directory:
                transport, cell = await loop.subprocess_exec(
                    cls,
                    *cell_command(confinement),
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=DEVNULL,
                    env={},
                    cwd=directory,
                    close_fds=True,
                )
        except OSError as error:
            raise Failure(Kind.UNAVAILABLE, f"No process for scripts could be started: {error.strerror}.") from None
        cell.owner = owner
        cell._transport = transport
        cell._stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        try:
            check_ready(*await cell._read(limits.SCRIPT_START_SECONDS_MAX))
        except (TimeoutError, EOFError):
            await cell.kill()
            raise Failure(Kind.UNAVAILABLE, "The process for scripts did not start.") from None
        except Failure:
            await cell.kill()
            raise
        return cell

    async def run(self, begin: Begin, perform: Perform) -> Ended:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + limits.SCRIPT_SECONDS_MAX
        self.is_at_rest = self.has_answered = False
        self._write(b"S", begin.encode())
        first = await self._read(limits.SCRIPT_SECONDS_MAX)
        self.has_answered = True
        if first[0] != b"O":  # many scripts request nothing, and need no task
            return self._ended_by(*first)
        return await asyncio.wait_for(self._serve(first, perform), ends_s - loop.time())

    async def _serve(self, frame: tuple[bytes, bytes], perform: Perform) -> Ended:
        while frame[0] == b"O":
            try:
                asked = orjson.loads(frame[1])
            except ValueError:
                self._write(b"Q", b"")
                return self._ended_by(*frame)
            try:
                answer = await perform(asked)
            except Failure:
                self._write(b"Q", b"")  # cancel the script; the cell is ready for the next
                self.is_at_rest = True
                raise
            self._write(b"R", orjson.dumps(answer))
            frame = await self._read()
        return self._ended_by(*frame)

    def _ended_by(self, letter: bytes, body: bytes) -> Ended:
        self.is_at_rest = True
        if letter == b"X":
            return Ended({}, body.decode("utf-8", "replace"))
        try:
            return Ended(orjson.loads(body))
        except ValueError:
            return Ended({}, _NOT_JSON)

    @property
    def is_alive(self) -> bool:
        return not self._ended.done() and not self._is_silent

    @property
    def process_id(self) -> int:
        assert self._transport is not None
        return self._transport.get_pid()

    async def _read(self, seconds: float | None = None) -> tuple[bytes, bytes]:
        """The next frame. EOFError if the process has ended, ValueError if the frame is too large, TimeoutError after
        so many seconds; None: no timeout."""
        while (frame := self._frame()) is None:
            if self._is_silent:
                raise EOFError
            loop = asyncio.get_running_loop()
            self._arrived = loop.create_future()
            # Not asyncio.timeout, which needs a task: point requests run without one.
            timer = loop.call_later(seconds, self._wake, TimeoutError()) if seconds is not None else None
            try:
                await self._arrived
            finally:
                if timer is not None:
                    timer.cancel()
        return frame

    def _frame(self) -> tuple[bytes, bytes] | None:
        received = self._received
        if self._length is None:
            if len(received) < _HEAD.size:
                return None
            self._length = _HEAD.unpack_from(received)[0]
            if self._length > limits.SCRIPT_MESSAGE_BYTES_MAX:
                raise ValueError("a message over the limit")
        end = _HEAD.size + self._length
        if len(received) < end:
            return None
        frame = bytes(received[4:5]), bytes(received[_HEAD.size : end])
        del received[:end]
        self._length = None
        return frame

    def _write(self, letter: bytes, body: bytes) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(_HEAD.pack(len(body), letter[0]) + body)

    async def kill(self) -> None:
        if self._transport is None:
            return
        try:
            self._transport.kill()
        except ProcessLookupError:
            pass
        await self._ended
        self._transport.close()

    # Callbacks of the event loop.

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._received += data
        if len(self._received) > _HEAD.size + limits.SCRIPT_MESSAGE_BYTES_MAX:
            self._is_silent = True  # our program never sends that much: the cell is compromised
            self._received.clear()
            self._wake()
        elif len(self._received) >= _HEAD.size + (self._length or 0):
            self._wake()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._is_silent = True
            self._wake()

    def process_exited(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        self._is_silent = True
        self._wake()

    def _wake(self, error: BaseException | None = None) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is not None and not arrived.done():
            if error is None:
                arrived.set_result(None)
            else:
                arrived.set_exception(error)
