"""Metering of work and memory. Every evaluator spends units for the size of what it does (elements compared, bytes
made) with `spend` and `make`, so that a large item costs more than a small one. An evaluation inside `run` yields to
the event loop whenever a slice of units is used up, wherever in its call stack it is, and continues afterwards ("gives
way"); memory is counted before values are made, and refused if it is too much.

`run` executes a plain synchronous function in a greenlet. Switching back to the event loop needs no cooperation from
the frames in between, so generated query code, library functions and sort keys can all spend. The same mechanism lets
such code wait for an answer (`wait`), for example of a user-defined function in another process.

A function that gives way is not atomic: it may read only what cannot change meanwhile (a snapshot, its own values).
"""

from __future__ import annotations

import asyncio
import threading
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet

from armillary import limits
from armillary.errors import Failure, Kind, computed_too_large

T = TypeVar("T")
Check = Callable[[], None]  # called before a run continues; raises to end it, for example when a deadline has passed

_SLICE = limits.WORK_SLICE_UNITS
_left = _SLICE  # units until the next turn of the event loop
_overrun = 0  # units spent outside of runs since the event loop had its last turn
_long_runs = 0  # runs under way that have given way at least once, and may hold many values
after_long_runs: Callable[[], object] | None = None  # called when the last of them is over
longest_units = 0  # the most that was spent between two turns: checked by tests of fairness


class Run(greenlet):  # type: ignore[misc] # the library has no types
    """One evaluation in progress. `made_bytes` is the size of its values not released yet; `derived` caches what was
    computed from large values, by their identity. A run is reused when it is over: making a greenlet costs 11 µs, most
    of it for its stack, reusing one 0.6 µs."""

    made_bytes = 0
    derived: dict[Any, Any] | None = None
    is_over = False
    is_long = False  # it has given way
    answer: Any = None
    error: Exception | None = None  # that the function raised: an exception that left the greenlet would end it
    checks: tuple[Check, ...] = ()

    def run(self) -> None:
        """Started without a function: the arguments that a greenlet is started with live as long as it does, and an
        idle one must not keep anything alive."""
        fn = self.parent.switch()
        while fn is not None:
            try:
                self.answer = fn()
            except Exception as error:
                self.error = error
            finally:
                if self.is_long:
                    self._end_long()
            self.is_over, self.made_bytes, self.derived = True, 0, None
            fn = None
            fn = self.parent.switch()

    def _end_long(self) -> None:
        global _long_runs
        self.is_long = False
        _long_runs -= 1
        if not _long_runs and after_long_runs is not None:
            after_long_runs()


class _Idle(threading.local):
    """Idle runs of each thread, for reuse."""

    def __init__(self) -> None:
        self.runs: list[Run] = []


_idle = _Idle()


def _begin(check: Check | None) -> Run:
    idle = _idle.runs
    if idle:
        run_now = idle.pop()
    else:
        run_now = Run()
        run_now.switch()
    run_now.is_over = False
    run_now.checks = () if check is None else (check,)
    outside = getcurrent()
    if run_now.parent is not outside:
        run_now.parent = outside
    return run_now


def _end(run_now: Run) -> Any:
    answer, error, run_now.answer, run_now.error = run_now.answer, run_now.error, None, None
    idle = _idle.runs
    if len(idle) < limits.WORK_IDLE_RUNS_MAX:
        idle.append(run_now)
    if error is None:
        return answer
    try:
        raise error
    finally:
        del error  # the traceback holds this frame


class Outside:
    """In place of a Run for code outside of runs: nothing is counted or cached."""

    made_bytes = 0
    derived: dict[Any, Any] | None = None


_outside = Outside()


def current() -> Run | Outside:
    """The evaluation that this code is part of; for loops that check its `made_bytes` for every item."""
    run_now = getcurrent()
    return run_now if isinstance(run_now, Run) else _outside


def end_item(run_now: Run | Outside, before_bytes: int) -> None:
    """Release the values made for an item. To be called when `made_bytes` has changed."""
    run_now.made_bytes = before_bytes
    run_now.derived = None


# How often `make` was called, by any evaluation. A loop that holds this list can check at the price of a list element
# whether the memory count of an item needs a look.
makings = [0]


def spend(units: int) -> None:
    """Count work, about 100 ns a unit. May give way: see the module's description."""
    global _left
    _left -= units
    if _left < 0:
        _give_way()


def portions(values: Sequence[T], units_each: int = 10) -> Iterator[Sequence[T]]:
    """A list in pieces, each counted before it is yielded: for loops over long lists. May give way."""
    size = limits.WORK_PORTION
    if len(values) <= size:
        spend(len(values) * units_each)
        yield values
        return
    for at in range(0, len(values), size):
        spend(size * units_each)
        yield values[at : at + size]


def paced(values: Iterable[T], units_each: int = 10) -> Iterator[T]:
    """Values one by one, counted in portions: for comprehensions, and loops over dictionaries. May give way."""
    given = iter(values)
    while portion := list(islice(given, limits.WORK_PORTION)):
        spend(len(portion) * units_each)
        yield from portion


def unique(values: Sequence[T]) -> list[T]:
    """The distinct values, in the order of their first places."""
    return list(dict.fromkeys(paced(values, 3)))


def make(size_bytes: int) -> None:
    """Count memory before a value of so many bytes is made, and the work of making it."""
    run_now = getcurrent()
    makings[0] += 1
    if run_now.__class__ is Run:
        assert isinstance(run_now, Run)
        run_now.made_bytes += size_bytes
        if run_now.made_bytes > limits.WORK_BYTES_MAX:
            raise too_much_memory()
    elif size_bytes > limits.WORK_BYTES_MAX:
        raise too_much_memory()
    spend(size_bytes // limits.WORK_UNIT_BYTES)


def made() -> int:
    """The memory counted so far, to be passed to `release` when everything made since is dropped."""
    run_now = getcurrent()
    return run_now.made_bytes if isinstance(run_now, Run) else 0


def release(before_bytes: int) -> None:
    """Release everything made since `made` returned `before_bytes`."""
    run_now = getcurrent()
    if isinstance(run_now, Run):
        run_now.made_bytes = before_bytes


def too_much_memory() -> Failure:
    return computed_too_large(
        f"The values that this request computes take more than {limits.WORK_BYTES_MAX // limits.MB} MB of memory. "
        "Ask for less at once, or make shorter strings and arrays.",
    )


def can_wait() -> bool:
    """Whether this code is executed by `run`, and not by `bounded` inside it."""
    return _bound is None and isinstance(getcurrent(), Run)


def wait(awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable in the middle of synchronous code that is executed by `run`."""
    run_now = getcurrent()
    if not isinstance(run_now, Run) or run_now.parent is None:
        raise RuntimeError("only code that work.run executes can wait")
    return run_now.parent.switch(awaitable)  # type: ignore[no-any-return]


async def run(fn: Callable[[], T], check: Check | None = None) -> T:
    """Execute a synchronous function; the event loop has its turn whenever a slice of work is used up."""
    global _left
    run_now = getcurrent()
    if isinstance(run_now, Run):
        return _run_inside(run_now, fn, check)
    worker = _begin(check)
    _left = _SLICE
    asked = worker.switch(fn)
    while not worker.is_over:
        try:
            if asked is None:
                await _turn()
                for each in worker.checks:
                    each()
                answer = None
            else:
                answer = await asked
        except BaseException as error:  # cancelled, out of time, or the failure of what was waited for
            asked = _throw(worker, error)
        else:
            _begin_slice()
            asked = worker.switch(answer)
    return _end(worker)  # type: ignore[no-any-return]


def _run_inside(run_now: Run, fn: Callable[[], T], check: Check | None) -> T:
    """A run inside another, for example of `drive`, which gives way for both. Its memory is counted separately."""
    before_bytes, before_checks = run_now.made_bytes, run_now.checks
    if check is not None:
        run_now.checks = (*before_checks, check)
    try:
        return fn()
    finally:
        run_now.checks = before_checks
        end_item(run_now, before_bytes)


def _throw(worker: Run, error: BaseException) -> Any:
    """Raise an exception in a run. An evaluation whose task is gone is closed by the garbage collector, possibly in the
    middle of another evaluation. What it raises then belongs to the place that closed it, not to the event loop that it
    was started from, where the other evaluation would be taken to have failed."""
    closing = getcurrent()
    if worker.parent is not closing:
        worker.parent = closing
    _begin_slice()
    return worker.throw(error)


def begin(fn: Callable[[], None]) -> asyncio.Future[None] | None:
    """`run` for callers that are not coroutines: execute a function at once, as far as one slice goes. None: it is
    done. Otherwise it continues slice by slice, cannot be cancelled, and the future is done when it is."""
    worker = _begin(None)
    _begin_slice()
    worker.switch(fn)
    if worker.is_over:
        _end(worker)
        return None
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _turn().add_done_callback(partial(_go_on, worker, done))
    return done


def _go_on(worker: Run, done: asyncio.Future[None], _turned: asyncio.Future[Any]) -> None:
    _begin_slice()
    try:
        worker.switch()
        if not worker.is_over:
            _turn().add_done_callback(partial(_go_on, worker, done))
            return
        _end(worker)
    except BaseException:
        done.cancel()
        raise
    if not done.done():
        done.set_result(None)


@types.coroutine
def drive(coroutine: Coroutine[Any, Any, T], check: Check | None = None) -> Generator[Any, Any, T]:
    """Await a coroutine whose synchronous stretches, between one await and the next, may all spend and give way: the
    counterpart of `run`. For requests that evaluate in many places."""
    worker = _begin(check)
    worker.gr_context = copy_context()  # a greenlet has a context of its own; it gets a copy of the caller's
    _begin_slice()
    asked = worker.switch(partial(_step_through, coroutine))
    while not worker.is_over:
        try:
            if asked is None:
                yield from _turn()
                for each in worker.checks:
                    each()
                answer = None
            elif asked is _YIELDED:
                answer = yield worker.answer
            else:  # of `wait`
                answer = yield from asked.__await__()
        except BaseException as error:  # cancelled, closed, out of time, or the failure of what was waited for
            asked = _throw(worker, error)
        else:
            _begin_slice()
            asked = worker.switch(answer)
    return _end(worker)  # type: ignore[no-any-return]


_YIELDED = object()  # the driven coroutine yielded something for its task, which is in the run's `answer`


def _step_through(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine to its end, in a greenlet of its own."""
    run_now = getcurrent()
    outside = run_now.parent
    step: Callable[[Any], Any] = coroutine.send
    given = None
    while True:
        try:
            run_now.answer = step(given)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        try:
            step, given = coroutine.send, outside.switch(_YIELDED)
        except BaseException as error:
            step, given = coroutine.throw, error


_holds = 0  # functions under way that may not give way


def atomic(fn: Callable[[], T]) -> T:
    """Execute a function that must not be interrupted, such as a transaction's, whatever it spends."""
    global _holds
    _holds += 1
    try:
        return fn()
    finally:
        _holds -= 1


class Outlasted(Failure):
    """What `bounded` executes exceeds its units. It can be executed elsewhere, where it gives way."""


_bound: int | None = None  # units left to what `bounded` executes


def bounded(fn: Callable[[], T], units: int) -> T:
    """Execute a function that cannot give way and must be short: `Outlasted` is raised in it when so many units are
    spent."""
    global _bound, _left
    before, left = _bound, _left
    _bound, _left = units, min(units, _SLICE)
    _bound -= _left
    try:
        return fn()
    finally:
        _bound, _left = before, left


def _begin_slice() -> None:
    global _left
    _left = _SLICE


def _give_way() -> None:
    global _left, _long_runs, _overrun, longest_units
    spent = _SLICE - _left
    run_now = getcurrent()
    if _bound is not None:
        _go_on_bounded()
        return
    if isinstance(run_now, Run) and run_now.parent is not None and not _holds:
        longest_units = max(longest_units, spent)
        if not run_now.is_long:
            run_now.is_long = True
            _long_runs += 1
        run_now.parent.switch(None)
        return
    # Nothing here can switch to the event loop. The units are added up until its next turn, for tests.
    _left = _SLICE
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    if not _overrun:
        loop.call_soon(_end_overrun)
    _overrun += spent
    longest_units = max(longest_units, _overrun)


def _go_on_bounded() -> None:
    global _bound, _left
    assert _bound is not None
    if _bound + _left < 0:
        raise Outlasted(
            Kind.RETRY_WITH, "The document changes again and again while it is computed what becomes of it; try again."
        )
    granted = min(_bound, _SLICE - _left)
    _left += granted
    _bound -= granted


def _end_overrun() -> None:
    global _overrun
    _overrun = 0


class _Turns:
    """A queue of runs that wait for their next slice: one of them continues in each iteration of the event loop, so
    that ten heavy requests delay the others no more than one does."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def wait(self, future: asyncio.Future[None]) -> asyncio.Future[None]:
        self._waiting.append(future)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._next)
        return future

    def _next(self) -> None:
        waiting = self._waiting
        while waiting:
            future = waiting.popleft()
            if not future.done():
                future.set_result(None)
                break
        self._is_scheduled = bool(waiting)
        if waiting:
            self._call_soon(self._next)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turn() -> asyncio.Future[Any]:
    loop = asyncio.get_running_loop()
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = _Turns(loop)
    return turns.wait(loop.create_future())


# Sorting that gives way: long lists are sorted in short runs, which are then merged. One call of Python's own sort
# cannot be interrupted, and takes a second for a million values.

_RUN = 2_048  # values sorted at once: about 2 ms
_RUN_UNITS = 10  # units of work to sort one of them
_MERGE_UNITS = 15
_STRIDE = 256
_FIRST = itemgetter(0)


def sorted_values(values: Iterable[T], key: Callable[[T], Any] | None = None, *, is_reversed: bool = False) -> list[T]:
    """Like `sorted`, and stable like it. May give way."""
    given = values if isinstance(values, list) else list(values)
    if len(given) <= _RUN:
        spend(len(given) * _RUN_UNITS)
        return sorted(given, key=key, reverse=is_reversed)  # type: ignore[arg-type]
    runs: list[list[tuple[Any, T]]] = []
    for first in range(0, len(given), _RUN):
        piece = given[first : first + _RUN]
        spend(len(piece) * _RUN_UNITS)
        pairs = [(each if key is None else key(each), each) for each in piece]
        pairs.sort(key=_FIRST, reverse=is_reversed)
        runs.append(pairs)
    made: list[T] = []
    for _, each in merge(*runs, key=_FIRST, reverse=is_reversed):
        made.append(each)
        if len(made) % _STRIDE == 0:
            spend(_STRIDE * _MERGE_UNITS)
    return made
