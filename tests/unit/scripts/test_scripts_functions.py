"""The process that functions of queries run in, when it does not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest
from support.limits import WithLimits

from armillary import work
from armillary.errors import Failure
from armillary.scripts.functions import FunctionProcess, QueryFunctions


async def test_a_call_that_comes_late_is_said_to_be_late(with_limits: WithLimits) -> None:
    """Not that its process ended, which is ended only then; another takes its place."""
    caller = FunctionProcess()
    await caller.ready()
    functions = QueryFunctions(lambda: caller, {"double": "function (n) { return n * 2; }"}.get)
    functions.check_function("double")
    assert functions.call_function("double", [21]) == 42
    first = caller.process_id
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    with_limits(SCRIPT_FUNCTION_SECONDS_MAX=0.01)
    with pytest.raises(Failure, match="longer than"):
        functions.call_function("double", [21])
    with_limits.restore()
    assert functions.call_function("double", [21]) == 42
    assert caller.process_id != first
    caller.leave()


async def test_a_query_goes_on_when_the_process_was_ended_between_two_of_its_calls() -> None:
    caller = FunctionProcess()
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
    """The engine does not interrupt a built-in sort, and other queries wait for the function's process."""
    caller = FunctionProcess()
    await caller.ready()
    source = "function () { const one = 'x'.repeat(1e6); for (;;) one.split('').sort(); }"
    functions = QueryFunctions(lambda: caller, {"sorts": source}.get)
    functions.check_function("sorts")
    with pytest.raises(Failure, match="longer than"):
        functions.call_function("sorts", [])
    caller.leave()


def functions_of(caller: FunctionProcess, **sources: str) -> QueryFunctions:
    functions = QueryFunctions(lambda: caller, sources.get)
    for name in sources:
        functions.check_function(name)
    return functions


async def test_others_go_on_while_a_function_is_asked() -> None:
    """The event loop has its turn though a call takes long, and the queries of a database take turns at its process:
    each gets the answers to its own questions."""
    caller = FunctionProcess()
    await caller.ready()
    slow = "function (n) { for (let i = 0; i < 1e5; i++); return n; }"
    big = "function (n) { return 'x'.repeat(200000) + n; }"
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def ask(first: int) -> list[object]:
        functions = functions_of(caller, slow=slow, big=big)
        made: list[object] = [functions.call_function("slow", [number]) for number in range(first, first + 5)]
        answer = functions.call_function("big", ["y" * 100_000])
        assert isinstance(answer, str)
        return [*made, len(answer)]

    counting = asyncio.create_task(count())
    answers = await asyncio.gather(*[work.run(lambda first=first: ask(first)) for first in (0, 100, 200)])  # type: ignore[misc]
    counting.cancel()
    assert answers == [[*range(first, first + 5), 300_000] for first in (0, 100, 200)]
    assert turns > 15
    caller.leave()


async def test_a_query_that_is_given_up_in_the_middle_of_a_call_disturbs_no_other() -> None:
    caller = FunctionProcess()
    await caller.ready()
    endless = functions_of(caller, spin="function () { for (;;); }")
    first = asyncio.create_task(work.run(lambda: endless.call_function("spin", [])))
    double = functions_of(caller, double="function (n) { return n * 2; }")
    second = asyncio.create_task(work.run(lambda: double.call_function("double", [21])))
    while caller._exchange is None:  # noqa: ASYNC110 (it becomes so in another task)
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == 42
    assert await work.run(lambda: double.call_function("double", [4])) == 8
    caller.leave()


async def test_contexts_that_end_during_a_question_are_told_of_later() -> None:
    caller = FunctionProcess()
    await caller.ready()
    double = functions_of(caller, double="function (n) { return n * 2; }")
    assert await work.run(lambda: double.call_function("double", [1])) == 2
    caller.begin_turn()
    caller.tell(b"D", b"%d" % double._context)
    assert len(caller._unsaid) == 1
    caller.end_turn()
    assert not caller._unsaid and not caller.is_busy
    caller.leave()
