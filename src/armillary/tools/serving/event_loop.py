"""The event loop of a server and of commands, the signals that stop a server, and when its garbage collector runs.
uvloop's loop is used where uvloop is installed, else asyncio's own: it has no wheels for Windows, and everything works
without it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from armillary import work

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

log = logging.getLogger("armillary")

IS_UVLOOP: Final = uvloop is not None
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_READ_BYTES: Final = 4096
T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    return uvloop.new_event_loop() if uvloop is not None else asyncio.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on the loop of this module."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def log_slower_loop() -> None:
    """Say once that a server runs without uvloop."""
    if not IS_UVLOOP:
        log.info("uvloop is not installed: requests are served by asyncio's event loop, which is slower")


def stop_signal(*, ends_with_stdin: bool = False) -> asyncio.Event:
    """Set by SIGTERM or SIGINT. A second signal ends the process at once, which loses nothing acknowledged.
    `ends_with_stdin`: also set when standard input ends."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in _STOPPING:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    try:
        for number in _STOPPING:
            loop.add_signal_handler(number, stop)
    except NotImplementedError:  # Windows: Python's own handlers, which run between two instructions of the main thread
        _handle_without_loop(loop, stopping)
    if ends_with_stdin:
        threading.Thread(target=_wait_for_stdin, args=(loop, stopping.set), name="standard input", daemon=True).start()
    return stopping


def _handle_without_loop(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    def stop(number: int, _frame: object) -> None:
        for each in _STOPPING:
            signal.signal(each, signal.SIG_DFL)
        loop.call_soon_threadsafe(stopping.set)

    for number in _STOPPING:
        signal.signal(number, stop)


def _wait_for_stdin(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """The kernel ends a pipe when the last process that may write to it has ended, however it ended. What is written to
    it is read and dropped. In a thread: event loops read no plain files, and on Windows no pipes of other programs."""
    try:
        descriptor = sys.stdin.fileno()
        while os.read(descriptor, _READ_BYTES):
            pass
    except (AttributeError, OSError, ValueError):  # standard input is closed
        pass
    try:
        loop.call_soon_threadsafe(stop)
    except RuntimeError:  # the server has stopped meanwhile
        pass


# A full pass of Python's garbage collector looks at every live container object and cannot be interrupted: with the
# million values that one evaluation may hold it would stop all requests for more than 100 ms. So full passes are made
# between long evaluations, when little is alive, and during one only after a very large number of new objects.
# Requests make and drop many small objects and hardly any cycles: looking for those less often is measurable.
_YOUNG_OBJECTS = 20_000  # made and not dropped, for a pass over them
_YOUNG_PASSES = 5  # for a pass over what they left: 100,000 objects, about 5 ms
_PASSES_AT_MOST, _PASSES_IN_PAUSE = 100, 5  # of the latter kind, for a full one


@contextmanager
def full_collections_in_pauses() -> Iterator[None]:
    def collect() -> None:
        if gc.get_count()[2] >= _PASSES_IN_PAUSE:
            gc.collect()

    gc.collect()
    gc.freeze()  # what was made until now stays: full passes need not look at it again
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_PASSES, _PASSES_AT_MOST)
    loop = asyncio.get_running_loop()
    work.after_long_runs = lambda: loop.call_soon(collect)  # its values are referenced until its task goes on
    try:
        yield
    finally:
        work.after_long_runs = None
