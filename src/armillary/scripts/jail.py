"""The jail: processes that run scripts and can reach nothing else, kept ready, one script at a time in each. One that
does not answer in time, or not in form, is killed, and another takes its place. What scripts ask for while they run is
for whoever runs them to do.
"""

from __future__ import annotations

import asyncio
import importlib.util
import struct
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from armillary import limits
from armillary.errors import Failure, Kind

_HEAD = struct.Struct(">IB")
_HERE = Path(__file__).parent

Perform = Callable[[Any], Awaitable[list[Any]]]  # what a script asks for -> results, in order


def cell_command() -> list[str]:
    """How a cell is started: without the server's modules, environment and settings."""
    engine = importlib.util.find_spec("_quickjs")
    assert engine is not None and engine.origin is not None, "the engine is a dependency"
    return [sys.executable, "-I", "-S", str(_HERE / "cell.py"), engine.origin, str(_HERE / "prelude.js")]


class Ended(NamedTuple):
    """How a script ended: by its own account, or stopped by the engine."""

    told: dict[str, Any]
    stopped: str | None = None


class Jail:
    def __init__(self) -> None:
        self._idle: list[_Cell] = []
        self._cells: set[_Cell] = set()
        self._room = asyncio.Semaphore(limits.SCRIPT_CELLS_MAX)
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._is_closed = False

    async def run(self, begin: dict[str, Any], perform: Perform) -> Ended:
        """Run a script to its end. `perform` does what it asks for; what that raises ends the script."""
        try:
            await asyncio.wait_for(self._room.acquire(), limits.SCRIPT_WAIT_SECONDS_MAX)
        except TimeoutError:
            raise Failure(Kind.TIMED_OUT, "Too many scripts are waiting for others to end. Try again later.") from None
        try:
            return await self._run(await self._ready(), begin, perform)
        finally:
            self._room.release()

    async def _run(self, cell: _Cell, begin: dict[str, Any], perform: Perform) -> Ended:
        try:
            return await asyncio.wait_for(cell.run(begin, perform), limits.SCRIPT_SECONDS_MAX)
        except TimeoutError:
            return Ended({}, "interrupted")
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            return Ended({}, "lost")
        finally:
            if cell.is_at_rest and not self._is_closed:
                self._idle.append(cell)
            else:
                self._cells.discard(cell)
                await asyncio.shield(cell.kill())

    async def _ready(self) -> _Cell:
        if self._is_closed:
            raise Failure(Kind.UNAVAILABLE, "The server is stopping.")
        while self._idle:
            cell = self._idle.pop()
            if cell.is_alive:
                return cell
            self._cells.discard(cell)
            await cell.kill()
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="armillary-jail-")
        cell = await _Cell.start(self._directory.name)
        self._cells.add(cell)
        return cell

    @property
    def process_ids(self) -> list[int]:
        return [cell.process_id for cell in self._cells]

    async def close(self) -> None:
        self._is_closed = True
        for cell in list(self._cells):
            await cell.kill()
        self._cells.clear()
        self._idle.clear()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


class _Cell:
    """One process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self.is_at_rest = True

    @classmethod
    async def start(cls, directory: str) -> _Cell:
        try:
            process = await asyncio.create_subprocess_exec(
                *cell_command(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env={},
                cwd=directory,
                close_fds=True,
            )
        except OSError as error:
            raise Failure(Kind.UNAVAILABLE, f"No process for scripts could be started: {error.strerror}.") from None
        cell = cls(process)
        try:
            letter, _ = await asyncio.wait_for(cell._read(), limits.SCRIPT_START_SECONDS_MAX)
            assert letter == b"E", "a cell says that it is ready"
        except (TimeoutError, asyncio.IncompleteReadError):
            await cell.kill()
            raise Failure(Kind.UNAVAILABLE, "The process for scripts did not start.") from None
        return cell

    async def run(self, begin: dict[str, Any], perform: Perform) -> Ended:
        self.is_at_rest = False
        self._write(b"S", orjson.dumps(begin))
        while True:
            letter, body = await self._read()
            try:
                told = orjson.loads(body)
            except ValueError:
                if letter == b"O":
                    self._write(b"Q", b"")
                self.is_at_rest = True
                return Ended(
                    {}, "Error: what the script says is not JSON in UTF-8: lone surrogates have no place in it"
                )
            if letter == b"O":
                try:
                    results = await perform(told)
                except Failure:
                    self._write(b"Q", b"")  # the script is over, and the cell is ready for the next
                    self.is_at_rest = True
                    raise
                self._write(b"R", orjson.dumps(results))
                continue
            self.is_at_rest = True
            if letter == b"E":
                return Ended(told)
            return Ended({}, told["message"])

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    @property
    def process_id(self) -> int:
        return self._process.pid

    async def _read(self) -> tuple[bytes, bytes]:
        length, letter = _HEAD.unpack(await self._stdout.readexactly(_HEAD.size))
        if length > limits.SCRIPT_MESSAGE_BYTES_MAX:
            raise ValueError("a message over the limit")
        return bytes([letter]), await self._stdout.readexactly(length)

    def _write(self, letter: bytes, body: bytes) -> None:
        self._stdin.write(_HEAD.pack(len(body), letter[0]) + body)

    async def kill(self) -> None:
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                pass
        self._stdin.close()
        await self._process.wait()
