"""Calls of user-defined functions by queries. A query calls a function while it evaluates items: the call is sent to a
cell (`cell.py`), and other requests continue while the query waits (`work.wait`). The queries of one database share a
process, which executes one call at a time; each execution of a query has its own engine context there, so no state
leaks
from one query to another. A call that exceeds the time limit ends its query.
"""

from __future__ import annotations

import asyncio
import marshal
import math
import os
import select
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from armillary import limits, work
from armillary.errors import Failure, Kind, bad_request
from armillary.model.values import UNDEFINED, Value
from armillary.scripts.jail import Confinement, cell_command, check_ready, vanishing_directory
from armillary.scripts.run import Role, Script, stopped, thrown

_HEAD = struct.Struct(">IB")
_PATIENCE = 6  # elapsed time allowed, as a multiple of the CPU time allowed: the machine may be busy
_STEP = 1.6  # CPU time after which the process is killed, as the same multiple: the engine did not interrupt itself
_LOOK_S = 0.1  # between two checks of the CPU time
_AT_ONCE_S = 0.0005  # time to block for an answer before yielding to other requests
_CALL_UNITS = 1_000  # work units for a call
_PIPE_BYTES = 60_000  # what an empty pipe accepts without blocking
_LARGE_BYTES = 1_024  # arguments and results below this are not charged by size
_UNIT_BYTES = 100  # bytes for one unit of work
_VALUE_BYTES = 12  # of memory for each byte of JSON, at most


class FunctionProcesses:
    """The processes that execute functions: one for each database, up to SCRIPT_FUNCTION_CELLS_MAX."""

    def __init__(self, confinement: Confinement = "filter") -> None:
        self._confinement = confinement
        self._by_owner: dict[str, FunctionProcess] = {}  # least recently used first

    def of(self, owner: str) -> FunctionProcess:
        """The process of a database. Starts no process; may stop the least recently used idle one."""
        caller = self._by_owner.pop(owner, None) or FunctionProcess(self._confinement)
        if len(self._by_owner) >= limits.SCRIPT_FUNCTION_CELLS_MAX:
            longest = next((owner for owner, each in self._by_owner.items() if not each.is_busy), None)
            if longest is not None:
                self._by_owner.pop(longest).leave()  # a query that still uses it starts it again on its next call
        self._by_owner[owner] = caller
        return caller

    def leave(self) -> None:
        for caller in self._by_owner.values():
            caller.leave()
        self._by_owner.clear()


class FunctionProcess:
    """The process that executes the functions of one database, one call at a time: queries take turns."""

    def __init__(self, confinement: Confinement = "filter") -> None:
        self._confinement = confinement
        self._process: subprocess.Popen[bytes] | None = None
        self._next_context = 0
        self.generation = 0  # number of processes started so far: contexts are lost with their process
        self.is_busy = False  # a query is using the process
        self._waiting: deque[asyncio.Future[None]] = deque()  # queries that wait for their turn
        self._unsaid: list[bytes] = []  # frames without answer, sent at the end of the turn
        self._exchange: asyncio.Future[Any] | None = None  # a call that is executed in a thread

    async def ready(self) -> None:
        """Start the process before the first call, since that takes a while."""
        if self._is_alive:
            return
        if self.is_busy:
            await self._turn()
        self.is_busy = True
        try:
            if not self._is_alive:
                await asyncio.to_thread(self._start)
        finally:
            self.end_turn()

    # Turns.

    def begin_turn(self) -> None:
        """Wait for exclusive use of the process, until `end_turn`."""
        if self.is_busy:
            work.wait(self._turn())
        self.is_busy = True

    def end_turn(self) -> None:
        unsaid, self._unsaid = self._unsaid, []
        for frame in unsaid:
            self._say(frame)
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self.is_busy = False

    async def _turn(self) -> None:
        following = asyncio.get_running_loop().create_future()
        self._waiting.append(following)
        try:
            await following
        except asyncio.CancelledError:
            if following.done() and not following.cancelled():
                self.end_turn()
            raise

    @property
    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def new_context(self) -> int:
        self._next_context += 1
        return self._next_context

    def revive(self) -> None:
        """Start the process if it does not run. A new process has a new `generation`, and no contexts or functions."""
        if self._is_alive:
            return
        if work.can_wait():
            work.wait(asyncio.to_thread(self._start))
        else:
            self._start()

    def ask(self, letter: bytes, body: bytes) -> tuple[bytes, bytes]:
        """Send a frame and return the answer. Without an answer in time the process is killed, and TIMED_OUT raised. To
        be called between `begin_turn` and `end_turn`."""
        most_s = limits.SCRIPT_FUNCTION_SECONDS_MAX

        def read() -> tuple[bytes, bytes]:
            return self._read(most_s * _PATIENCE, most_s * _STEP)

        def ask() -> tuple[bytes, bytes]:
            self._write(letter, body)
            return read()

        try:
            if not work.can_wait():
                return ask()
            work.spend(_CALL_UNITS)
            if len(body) > _PIPE_BYTES:
                return work.wait(self._in_thread(ask))
            self._write(letter, body)
            # Most functions answer faster than switching to another task would take.
            if not self._is_answered():
                return work.wait(self._in_thread(read))
            head = self._exactly(_HEAD.size, most_s * _PATIENCE, most_s * _STEP)
            if _HEAD.unpack(head)[0] > _PIPE_BYTES:
                return work.wait(self._in_thread(lambda: self._rest(head, most_s * _PATIENCE, most_s * _STEP)))
            return self._rest(head, most_s * _PATIENCE, most_s * _STEP)
        except (OSError, EOFError) as error:
            self.leave()
            raise Failure(Kind.TIMED_OUT, "interrupted" if isinstance(error, TimeoutError) else "lost") from None

    async def _in_thread(self, fn: Callable[[], tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
        exchange = self._exchange = asyncio.get_running_loop().run_in_executor(None, fn)
        try:
            return await asyncio.shield(exchange)
        except asyncio.CancelledError:
            self.leave()  # its late answer must not be taken for the answer to the next call
            raise
        finally:
            self._exchange = None

    def _is_answered(self) -> bool:
        assert self._process is not None and self._process.stdout is not None
        return bool(select.select([self._process.stdout.fileno()], [], [], _AT_ONCE_S)[0])

    def tell(self, letter: bytes, body: bytes) -> None:
        """Send a frame that needs no answer, after the current call."""
        frame = _HEAD.pack(len(body), letter[0]) + body
        if self.is_busy:
            self._unsaid.append(frame)
        else:
            self._say(frame)

    def _say(self, frame: bytes) -> None:
        process = self._process
        if process is not None and process.stdin is not None and self._is_alive:
            try:
                process.stdin.write(frame)
            except OSError:
                self.leave()

    def _start(self) -> None:
        self.leave()
        with vanishing_directory() as directory:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                cell_command(self._confinement),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd=directory,
                bufsize=0,
            )
        try:
            check_ready(*self._read(limits.SCRIPT_START_SECONDS_MAX))
        except (OSError, EOFError):
            self.leave()
            raise Failure(Kind.UNAVAILABLE, "The process for functions did not start.") from None
        except Failure:
            self.leave()
            raise

    def _write(self, letter: bytes, body: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(_HEAD.pack(len(body), letter[0]) + body)

    def _read(self, seconds: float, computing_s: float = math.inf) -> tuple[bytes, bytes]:
        """The next frame. TimeoutError after so many seconds, or after so many seconds of CPU time of the process."""
        return self._rest(self._exactly(_HEAD.size, seconds, computing_s), seconds, computing_s)

    def _rest(self, head: bytes, seconds: float, computing_s: float) -> tuple[bytes, bytes]:
        length, letter = _HEAD.unpack(head)
        if length > limits.SCRIPT_MESSAGE_BYTES_MAX:
            raise EOFError
        return bytes([letter]), self._exactly(length, seconds, computing_s)

    def _exactly(self, count: int, seconds: float, computing_s: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        file = self._process.stdout.fileno()
        parts = []
        while count:
            self._await(file, seconds, computing_s)
            part = os.read(file, min(count, _PIPE_BYTES))  # os.read allocates as much as it is asked for
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _await(self, file: int, seconds: float, computing_s: float) -> None:
        begun_s = None
        while not select.select([file], [], [], min(seconds, _LOOK_S))[0]:
            seconds -= _LOOK_S
            computed_s = self._computed_s()
            begun_s = computed_s if begun_s is None else begun_s
            if seconds <= 0 or computed_s - begun_s > computing_s:
                raise TimeoutError

    def _computed_s(self) -> float:
        """CPU time of the process. 0 where /proc does not exist: then only elapsed time is limited."""
        try:
            with open(f"/proc/{self.process_id}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def leave(self) -> None:
        """Kill the process. The next call starts another one."""
        process, self._process = self._process, None
        self._unsaid.clear()
        if process is not None:
            self.generation += 1
            process.kill()
            if self._exchange is not None and not self._exchange.done():
                # A thread is still reading the pipe and will see its end; the pipe is closed after that.
                self._exchange.add_done_callback(lambda exchange: _end(process, exchange))
            else:
                _end(process, None)


def _end(process: subprocess.Popen[bytes], exchange: asyncio.Future[Any] | None) -> None:
    if exchange is not None and not exchange.cancelled():
        exchange.exception()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


class QueryFunctions:
    """The user-defined functions of a container, for one execution of a query."""

    __slots__ = ("_context", "_find", "_generation", "_got", "_owned", "_sources", "_told")

    def __init__(self, caller: Callable[[], FunctionProcess], find: Callable[[str], str | None]) -> None:
        """`caller` returns the process, on the first call; `find` returns the source of a function by its name."""
        self._got = caller
        self._owned: FunctionProcess | None = None
        self._find = find
        self._sources: dict[str, str] = {}
        self._told: set[str] = set()  # functions whose source the process has
        self._context = 0
        self._generation = -1

    def check_function(self, name: str) -> None:
        source = self._find(name)
        if source is None:
            raise bad_request(f"The query calls the user-defined function 'udf.{name}', which the container has not.")
        self._sources[name] = source

    @property
    def _caller(self) -> FunctionProcess:
        if self._owned is None:
            self._owned = self._got()
        return self._owned

    async def ready(self) -> None:
        if self._sources:
            await self._caller.ready()

    def call_function(self, name: str, arguments: Sequence[Value]) -> Value:
        given = orjson.dumps(list(arguments))
        if len(given) > _LARGE_BYTES:
            work.make(3 * len(given))
            work.spend(len(given) // _UNIT_BYTES)
        caller = self._caller
        caller.begin_turn()
        try:
            letter, body = self._ask(caller, name, given)
        finally:
            caller.end_turn()
        script = Script(name, "", Role.FUNCTION)
        if letter == b"F":
            number, _, text = body.decode("utf-8", "replace").partition("\n")
            raise thrown(script, text, int(number) if number.isdecimal() else 0)
        if letter != b"E":
            raise stopped(script, body.decode("utf-8", "replace"))
        if len(body) > _LARGE_BYTES:
            work.make(_VALUE_BYTES * len(body))
            work.spend(len(body) // _UNIT_BYTES)
        try:
            return orjson.loads(body) if body else UNDEFINED
        except ValueError:
            raise stopped(script, "Error: what it returns is not JSON in UTF-8") from None

    def _ask(self, caller: FunctionProcess, name: str, given: bytes) -> tuple[bytes, bytes]:
        caller.revive()
        if self._generation != caller.generation or not self._context:
            self._context, self._generation, self._told = caller.new_context(), caller.generation, set()
        asked = {
            "context": self._context,
            "name": name,
            "arguments": given.decode(),
            "cpu_s": limits.SCRIPT_FUNCTION_SECONDS_MAX,
            "memory_bytes": limits.SCRIPT_MEMORY_BYTES_MAX,
        }
        if name not in self._told:
            asked["source"] = self._sources[name]
        try:
            answer = caller.ask(b"C", marshal.dumps(asked))
        except Failure as failure:
            raise stopped(Script(name, "", Role.FUNCTION), failure.message) from None
        self._told.add(name)
        return answer

    def __del__(self) -> None:
        if self._context and self._generation == self._caller.generation:
            self._caller.tell(b"D", b"%d" % self._context)


# The JavaScript that MongoDB's commands carry.

_DOCUMENTS = "javascript"
CHANGING = "The document changes again and again while JavaScript computes what becomes of it; try again."


@cache
def _documents_source() -> str:
    return (Path(__file__).parent / "documents.js").read_text(encoding="utf-8")


class DocumentFunctions:
    """The functions of one command of MongoDB, run by `documents.js` in an engine context of their own."""

    def __init__(self, caller: Callable[[], FunctionProcess]) -> None:
        self._functions = QueryFunctions(caller, lambda name: _documents_source())
        self._functions.check_function(_DOCUMENTS)

    def run(self, request: dict[str, Any]) -> Any:
        """The answer to a request. Inside a transaction, which cannot wait, `work.Outlasted` is raised: what becomes of
        the document is then computed before it."""
        if not work.can_wait():
            raise work.Outlasted(Kind.RETRY_WITH, CHANGING)
        return self._functions.call_function(_DOCUMENTS, [request])
