"""The process that functions of queries run in, when it does not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from armillary import limits
from armillary.errors import Failure
from armillary.scripts.functions import Caller, QueryFunctions


async def test_a_call_that_comes_late_is_said_to_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that its process ended, which is ended only then; another takes its place."""
    caller = Caller()
    await caller.ready()
    functions = QueryFunctions(lambda: caller, {"double": "function (n) { return n * 2; }"}.get)
    functions.check_function("double")
    assert functions.call_function("double", [21]) == 42
    first = caller.process_id
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(limits, "SCRIPT_FUNCTION_SECONDS_MAX", 0.01)
    with pytest.raises(Failure, match="longer than"):
        functions.call_function("double", [21])
    monkeypatch.undo()
    assert functions.call_function("double", [21]) == 42
    assert caller.process_id != first
    caller.leave()


async def test_a_query_goes_on_when_the_process_was_ended_between_two_of_its_calls() -> None:
    caller = Caller()
    await caller.ready()
    functions = QueryFunctions(lambda: caller, {"double": "function (n) { return n * 2; }"}.get)
    functions.check_function("double")
    assert functions.call_function("double", [21]) == 42
    caller.leave()  # as when another query kept it too long
    assert functions.call_function("double", [21]) == 42
    process_id = caller.process_id
    assert process_id is not None
    os.kill(process_id, signal.SIGKILL)  # as the kernel does when memory is short
    await asyncio.to_thread(os.waitid, os.P_PID, process_id, os.WEXITED | os.WNOWAIT)
    assert functions.call_function("double", [21]) == 42
    caller.leave()


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what a process has computed")
async def test_one_that_computes_in_a_step_of_the_engines_is_not_waited_for_as_long_as_one_that_does_not() -> None:
    """Nothing interrupts sorting with the engine's own order, say, and everybody waits for a function."""
    caller = Caller()
    await caller.ready()
    source = "function () { const one = 'x'.repeat(1e6); for (;;) one.split('').sort(); }"
    functions = QueryFunctions(lambda: caller, {"sorts": source}.get)
    functions.check_function("sorts")
    with pytest.raises(Failure, match="longer than"):
        functions.call_function("sorts", [])
    caller.leave()
