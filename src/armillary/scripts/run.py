"""Runs one stored procedure or trigger: prepares its input, reads its result, and turns its errors into failures whose
stack traces show only lines of the user's source. `ScriptQueue` serializes scripts that conflict. The caller commits
the transaction; the process that executes the script is `jail.py`'s part.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind, computed_too_large
from armillary.languages.sql.compiling.compile import UserFunctions
from armillary.partition.operations import Document
from armillary.scripts.calls import Calls, Trace
from armillary.scripts.cell import USER_LINE_OFFSET
from armillary.scripts.jail import Begin, Ended, Jail
from armillary.scripts.transaction import ScriptTransaction

_find_place = re.compile(r"<input>:(\d+):(\d+)")
_STACK_LINES_MAX = 20
_MESSAGE_CHARACTERS_MAX = 2_000
_COMPILE_ERROR = 0xFFFF  # the sub-status of syntax errors


class Role(Enum):
    PROCEDURE = "stored procedure"
    PRE_TRIGGER = "pre-trigger"
    POST_TRIGGER = "post-trigger"
    FUNCTION = "user-defined function"


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    source: str
    role: Role


@dataclass(slots=True)
class Setting:
    """The input of a script."""

    arguments: Sequence[Any] = ()
    operation: str | None = None  # of triggers: Create, Upsert, Replace or Delete
    request: Document | None = None
    response: bytes | None = None  # JSON
    quotas: tuple[str, str] | None = None  # of post-triggers: the container's usage and its quota


@dataclass(slots=True)
class Ran:
    """The result of a script."""

    response: bytes | None  # JSON; None: the script has set none
    request: Document | None  # the request body that a pre-trigger has set
    log: str


async def run_script(
    jail: Jail,
    script: Script,
    transaction: ScriptTransaction,
    setting: Setting,
    clock: Clock,
    functions: UserFunctions | None = None,
    trace: Trace | None = None,
) -> Ran:
    given: dict[str, Any] = {
        "arguments": list(setting.arguments),
        "selfLink": transaction.home.self_link,
        "altLink": transaction.home.alt_link,
        "operationType": setting.operation,
        "mayChangeRequest": script.role is Role.PRE_TRIGGER,
        "hasResponse": script.role is not Role.PRE_TRIGGER,
        "operationsMax": limits.SCRIPT_OPERATIONS_MAX,
        "batchMax": limits.SCRIPT_BATCH,
        "batchCharactersMax": limits.SCRIPT_BATCH_CHARACTERS,
        "unitsMax": transaction.units_left_ru,
        "acceptedForMs": limits.SCRIPT_ACCEPTED_SECONDS * 1000,
        "responseCharactersMax": limits.SCRIPT_RESPONSE_BYTES_MAX,
        "logCharactersMax": limits.SCRIPT_LOG_CHARACTERS_MAX,
    }
    if setting.request is not None:
        given["requestBody"] = setting.request
    if setting.quotas is not None:
        given["usage"], given["quota"] = setting.quotas
    if setting.response is not None:
        given["responseBody"] = orjson.Fragment(setting.response)
    ended = await jail.run(
        Begin(script.source, given, transaction.home.database), Calls(transaction, clock, functions, trace).perform
    )
    return result_of(script, ended)


def result_of(script: Script, ended: Ended) -> Ran:
    """The result of a script that ended; raises the Failure if it failed."""
    if ended.stopped is not None:
        raise stopped(script, ended.stopped)
    told = ended.told
    if not isinstance(told, dict) or not isinstance(told.get("logged"), list):
        raise _failed(script, "the script has overwritten built-in objects that it needs itself")
    failure = told.get("failure")
    if failure is not None:
        raise _thrown(script, failure)
    request = told.get("requestBody")
    if request is not None and not isinstance(request, dict):
        raise _failed(script, "the body of a request must be an object")
    response = orjson.dumps(told["responseBody"]) if "responseBody" in told else None
    if response is not None and len(response) > limits.SCRIPT_RESPONSE_BYTES_MAX:
        raise computed_too_large(
            f"The response of {script.role.value} '{script.name}' has {len(response)} bytes, "
            f"{limits.SCRIPT_RESPONSE_BYTES_MAX} are allowed.",
        )
    log = "\n".join([line for line in told["logged"] if isinstance(line, str)])
    return Ran(response, request, log)


def stopped(script: Script, reason: str) -> Failure:
    """The failure of a script that was stopped by the engine or by the jail: time, memory, syntax, lost process."""
    if "interrupted" in reason:
        most_s = limits.SCRIPT_FUNCTION_SECONDS_MAX if script.role is Role.FUNCTION else limits.SCRIPT_SECONDS_MAX
        return _failed(script, f"it ran for longer than {most_s:g} seconds and was ended", sub_status=408)
    if reason == "lost":
        return _failed(script, "the process that it ran in ended")
    if "memory" in reason.lower():
        return _failed(script, f"it needed more than {limits.SCRIPT_MEMORY_BYTES_MAX // limits.MB} MB and was ended")
    first, *stack = reason.splitlines() or [""]
    if first.startswith("SyntaxError"):
        return _described(script, first, stack, _COMPILE_ERROR, "compiling")
    return _described(script, first, stack, None)


def thrown(script: Script, reason: str, number: int) -> Failure:
    """The failure of a user-defined function that threw an error. `number`: the error's `number`; 0 if it has none."""
    first, *stack = reason.splitlines() or [""]
    if first in ("InternalError: interrupted", "InternalError: out of memory"):
        return stopped(script, first)
    return _described(script, first, stack, number if 0 < number < 1 << 31 else None)


def _thrown(script: Script, failure: Any) -> Failure:
    if not isinstance(failure, dict):
        return _failed(script, "it threw a value that cannot be converted to text")
    number = failure.get("number")
    is_number = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 1 << 31
    stack = failure.get("stack")
    if failure.get("message") == "null" and not stack:
        # When memory is exhausted the engine cannot allocate an error object, and throws null.
        return _failed(script, f"it needed more than {limits.SCRIPT_MEMORY_BYTES_MAX // limits.MB} MB, or threw null")
    lines = stack.splitlines() if isinstance(stack, str) else []
    return _described(script, str(failure.get("message")), lines, number if is_number else None)


def _described(script: Script, message: str, stack: list[str], number: int | None, doing: str = "executing") -> Failure:
    message = message[:_MESSAGE_CHARACTERS_MAX]
    places = [line for line in (_place(script, each) for each in stack) if line is not None][:_STACK_LINES_MAX]
    text = f"Encountered exception while {doing} Javascript. Exception = {message}"
    if places:
        text += "\r\nStack trace: " + "\r\n".join([message, *places])
    return Failure(Kind.SCRIPT_FAILED, f"{text}\r\n({script.role.value} '{script.name}')", details=_sub_status(number))


def _place(script: Script, line: str) -> str | None:
    """A line of a stack trace, numbered as in the user's source; None for lines of the prelude."""
    found = _find_place.search(line)
    if found is None or int(found[1]) <= USER_LINE_OFFSET:
        return None
    name = line.strip().removeprefix("at ").split(" (")[0]
    if name.startswith("<input>"):
        name = "<script>"
    return f"   at {name} ({script.name}.js:{int(found[1]) - USER_LINE_OFFSET}:{found[2]})"


def _failed(script: Script, what: str, sub_status: int | None = None) -> Failure:
    message = f"The {script.role.value} '{script.name}' failed: {what}. Nothing was written."
    return Failure(Kind.SCRIPT_FAILED, message, details=_sub_status(sub_status))


def _sub_status(number: int | None) -> dict[str, Any]:
    return {"sub_status": number if number is not None else 400}


class ScriptQueue:
    """Serializes scripts that conflict: one lock for each logical partition in which a script is being retried.

    A script whose transaction conflicted with another writer runs again while it holds the queue of its logical
    partition, and later scripts of that logical partition wait for it. Plain writes never take this lock.
    """

    def __init__(self) -> None:
        self._locks: dict[bytes, asyncio.Lock] = {}
        self._users: dict[bytes, int] = {}

    def is_taken(self, place: bytes) -> bool:
        """Whether a script is being retried in this logical partition."""
        return place in self._locks

    @asynccontextmanager
    async def at(self, place: bytes) -> AsyncIterator[None]:
        """Hold the queue of a logical partition. Waits for the scripts before it, for a limited time."""
        lock = self._locks.setdefault(place, asyncio.Lock())
        self._users[place] = self._users.get(place, 0) + 1
        try:
            try:
                await asyncio.wait_for(lock.acquire(), limits.SCRIPT_WAIT_SECONDS_MAX)
            except TimeoutError:
                message = "Too many scripts are waiting for others in their logical partition. Try again later."
                raise Failure(Kind.TIMED_OUT, message) from None
            try:
                yield
            finally:
                lock.release()
        finally:
            self._users[place] -= 1
            if not self._users[place]:
                del self._users[place], self._locks[place]
