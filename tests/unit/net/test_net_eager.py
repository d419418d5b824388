"""A coroutine that is started by hand and finished in a Task behaves as one that was a Task from the start."""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from armillary.net.eager import resume


async def finish(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Any:
    return await resume(coroutine, awaited)


def begin(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """The first step here, the rest in a Task."""
    return asyncio.get_running_loop().create_task(finish(coroutine, coroutine.send(None)))


async def test_results_pass_through_every_kind_of_wait() -> None:
    async def work() -> list[str]:
        steps = []
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, "future")
        steps.append(await future)
        await asyncio.sleep(0)
        steps.append("turn")
        steps.append(await asyncio.wait_for(asyncio.sleep(0.001, "timer"), 1))
        async with asyncio.timeout(1), asyncio.TaskGroup() as group:  # there is a current task by now
            child = group.create_task(asyncio.sleep(0, "child"))
        steps.append(child.result())
        return steps

    assert await begin(work()) == ["future", "turn", "timer", "child"]


async def test_a_future_that_fails_raises_where_it_is_awaited() -> None:
    async def work() -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError("lost"))
        try:
            return await future
        except KeyError:
            await asyncio.sleep(0)
            return "caught"

    assert await begin(work()) == "caught"


async def test_exceptions_come_out() -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("out")

    with pytest.raises(ValueError, match="out"):
        await begin(work())


@pytest.mark.parametrize("waits", [1, 2])
async def test_cancellation_reaches_the_first_wait_and_later_ones(waits: int) -> None:
    seen = []
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            if waits == 2:
                await asyncio.sleep(0)
            await future
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)  # cleaning up may wait
            seen.append("cleaned")

    task = begin(work())
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled", "cleaned"]
    assert future.cancelled()


async def test_cancellation_before_the_task_runs_reaches_the_coroutine_that_has_already_begun() -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            seen.append("cleaned")

    coroutine = work()
    task = asyncio.get_running_loop().create_task(finish(coroutine, coroutine.send(None)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    coroutine.close()  # a Task that never took its first step leaves its coroutine to its owner
    assert seen == ["cleaned"]


async def test_a_cancellation_that_is_swallowed_goes_on_with_a_result() -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "stayed"
        return "never"

    task = begin(work())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "stayed"


async def test_closing_closes_the_coroutine() -> None:
    seen = []

    @types.coroutine
    def pause() -> Generator[str, None, None]:
        yield "paused"

    async def work() -> None:
        try:
            await pause()
        finally:
            seen.append("closed")

    coroutine = work()
    outer = finish(coroutine, coroutine.send(None))
    assert outer.send(None) == "paused"
    outer.close()
    assert seen == ["closed"]


async def test_a_context_can_be_carried_over() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="outside")

    async def work() -> str:
        token = name.set("inside")
        await asyncio.sleep(0)
        seen = name.get()
        name.reset(token)  # fails in any other context than that of the first step
        return seen

    context = contextvars.copy_context()
    coroutine = work()
    awaited = context.run(coroutine.send, None)
    task = asyncio.get_running_loop().create_task(finish(coroutine, awaited), context=context)
    assert await task == "inside"
    assert name.get() == "outside"
