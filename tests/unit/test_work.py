"""The meter of work: evaluations give way, in turn, can wait, can be ended, and count the memory they make."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import cmp_to_key

import pytest
from greenlet import getcurrent

from armillary import limits, work
from armillary.errors import Failure, Kind, bad_request


def busy(slices: int) -> int:
    for _ in range(slices * 100):
        work.spend(limits.WORK_SLICE_UNITS // 100 + 1)
    return slices


async def test_short_functions_are_answered_without_a_turn_of_the_loop() -> None:
    with pytest.raises(StopIteration) as ended:
        work.run(lambda: 7).send(None)
    assert ended.value.value == 7


async def test_long_functions_give_way_in_slices() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert await work.run(lambda: busy(50)) == 50
    counting.cancel()
    assert turns >= 50


async def test_functions_called_by_c_code_give_way_too() -> None:
    def compare(first: int, second: int) -> int:
        work.spend(limits.WORK_SLICE_UNITS // 2)
        return first - second

    assert await work.run(lambda: sorted([3, 1, 2, 9, 5], key=cmp_to_key(compare))) == [1, 2, 3, 5, 9]


async def test_one_run_continues_in_each_iteration_of_the_loop() -> None:
    order: list[tuple[int, str]] = []
    iteration = 0

    async def count() -> None:
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    def note(name: str) -> None:
        for _ in range(10):
            order.append((iteration, name))
            work.spend(limits.WORK_SLICE_UNITS + 1)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(work.run(lambda name=name: note(name)) for name in "abcd"))  # type: ignore[misc]
    counting.cancel()
    continued = [at for at, _ in order if at > order[0][0] + 1]
    assert len(continued) == len(set(continued)), "two evaluations continued in one iteration"


async def test_a_check_ends_a_run_and_its_frames_are_left_in_order() -> None:
    left: list[str] = []

    def endless() -> None:
        try:
            while True:
                work.spend(1_000)
        finally:
            left.append("left")

    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Failure(Kind.TIMED_OUT, "too long")

    with pytest.raises(Failure, match="too long"):
        await work.run(endless, check)
    assert (calls, left) == (5, ["left"])


async def test_a_cancelled_request_ends_its_run() -> None:
    left: list[str] = []

    def endless() -> None:
        try:
            while True:
                work.spend(1_000)
        finally:
            left.append("left")

    task = asyncio.create_task(work.run(endless))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == ["left"]


async def test_synchronous_code_can_wait_for_an_answer() -> None:
    async def answer(value: int) -> int:
        await asyncio.sleep(0)
        return value + 1

    async def failure() -> int:
        await asyncio.sleep(0)
        raise Failure(Kind.BAD_REQUEST, "no")

    def ask() -> list[int]:
        answers = [work.wait(answer(number)) for number in range(3)]
        with pytest.raises(Failure, match="no"):
            work.wait(failure())
        return answers

    assert await work.run(ask) == [1, 2, 3]
    assert not work.can_wait()
    asked = answer(1)
    with pytest.raises(RuntimeError):
        work.wait(asked)
    asked.close()


async def test_memory_is_refused_before_it_is_taken() -> None:
    def hold() -> None:
        for _ in range(1_000):
            work.make(limits.MB)

    def drop() -> None:
        for _ in range(1_000):
            before = work.made()
            work.make(limits.MB)
            work.release(before)

    with pytest.raises(Failure) as refused:
        await work.run(hold)
    assert refused.value.kind is Kind.TOO_LARGE
    await work.run(drop)
    with pytest.raises(Failure):
        work.make(limits.WORK_BYTES_MAX + 1)


async def test_work_outside_of_runs_is_seen() -> None:
    before, work.longest_units = work.longest_units, 0
    busy(30)
    assert work.longest_units >= 29 * limits.WORK_SLICE_UNITS
    work.longest_units = before


async def test_the_stretches_of_a_driven_coroutine_give_way() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def request() -> list[int]:
        found = [busy(10)]
        await asyncio.sleep(0)
        found.append(await work.run(lambda: busy(20)))
        found.append(work.wait(asyncio.sleep(0, 5)))
        return found

    counting = asyncio.create_task(count())
    assert await work.drive(request()) == [10, 20, 5]
    counting.cancel()
    assert turns >= 30


async def test_a_driven_coroutine_is_cancelled_checked_and_fails_like_any_other() -> None:
    left: list[str] = []

    async def endless() -> None:
        try:
            while True:
                await asyncio.sleep(0)
                busy(1)
        except asyncio.CancelledError:
            left.append("cancelled")
            raise
        except Failure:
            left.append("checked")
            raise

    async def failing() -> None:
        await asyncio.sleep(0)
        raise Failure(Kind.BAD_REQUEST, "no")

    def late() -> None:
        raise Failure(Kind.TIMED_OUT, "too long")

    task = asyncio.ensure_future(work.drive(endless()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(Failure, match="too long"):
        await work.drive(endless(), late)
    with pytest.raises(Failure, match="no"):
        await work.drive(failing())
    assert left == ["cancelled", "checked"]


async def test_runs_are_used_again_and_keep_nothing() -> None:
    class Thing:
        pass

    made = await work.run(Thing)
    gone = weakref.ref(made)
    del made
    assert gone() is None
    seen: list[int] = []

    def note() -> None:
        seen.append(id(getcurrent()))
        assert work.made() == 0
        work.make(1_000)

    for _ in range(3):
        await work.run(note)
    assert len(set(seen)) == 1


async def test_what_is_atomic_does_not_give_way() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    before, work.longest_units = work.longest_units, 0
    assert await work.run(lambda: work.atomic(lambda: busy(5))) == 5
    assert turns == 0
    assert work.longest_units >= 4 * limits.WORK_SLICE_UNITS
    work.longest_units = before
    counting.cancel()


async def test_a_run_that_waits_for_the_next_keeps_nothing_alive() -> None:
    """Partitions that were split away, say: their stores are emptied when the last reader has let go of them."""

    class Thing:
        pass

    work._idle.runs.clear()
    for _ in range(2):  # in a new run, and in one that is used again
        thing = Thing()
        seen = weakref.ref(thing)
        assert await work.run(lambda thing=thing: thing is not None)  # type: ignore[misc]
        del thing
        gc.collect()
        assert seen() is None


@pytest.mark.parametrize("is_driven", [True, False])
async def test_what_is_closed_by_the_garbage_collector_does_not_end_the_request_that_it_works_in(
    is_driven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request whose task is gone, for example with its event loop, is closed wherever the collector comes by."""
    closed = []

    async def wait(never: asyncio.Future[None]) -> None:
        try:
            await never
        finally:
            closed.append(1)
            raise RuntimeError("Event loop is closed")

    def wait_inside(never: asyncio.Future[None]) -> None:
        try:
            work.wait(never)
        finally:
            closed.append(1)
            raise RuntimeError("Event loop is closed")

    class Abandoned:
        """Is in a cycle, and nothing that waits knows of it."""

        def __init__(self) -> None:
            self.request = self.begin()
            self.request.send(None)

        async def begin(self) -> None:
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            await (work.drive(wait(never)) if is_driven else work.run(lambda: wait_inside(never)))

    async def answer() -> str:
        gc.collect()
        work.spend(3 * limits.WORK_SLICE_UNITS)
        return "answered"

    monkeypatch.setattr("sys.unraisablehook", lambda _: None)  # the collector's report of the one that was closed
    gc.disable()
    try:
        Abandoned()
        assert await work.drive(answer()) == "answered"
    finally:
        gc.enable()
    assert len(closed) == 1
    assert await work.drive(answer()) == "answered"


async def test_a_run_whose_function_fails_is_used_again() -> None:
    """Making a greenlet costs many times what using one again does, and refusals are frequent."""

    def refuse() -> None:
        raise bad_request("No.")

    seen = []
    for _ in range(5):
        with pytest.raises(Failure):
            await work.run(refuse)
        seen.append(await work.run(lambda: id(work.current())))
    assert len(set(seen)) == 1
