"""A server for tests inside of the test's own process: an event loop in a thread of its own, free ports of this
machine, data in memory. It starts faster than a process and can be stepped through with a debugger; the tests and the
server share one interpreter, so that neither runs while the other computes.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

from armillary.clock import MovableClock, SystemClock
from armillary.net.connection_limits import Crowd
from armillary.storage import file_descriptors
from armillary.testing.controls import Controls
from armillary.testing.server_settings import new_control_key, server_options
from armillary.tools.resolve import check_exposure, resolve
from armillary.tools.serving.event_loop import new_event_loop
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.serve import open_server
from armillary.tools.settings import Settings

_STOP_S: Final = 15.0


class Server(Controls):
    """`with Server(throughput="enforce") as server:` in any thread, `async with` in asyncio, or `start` and `stop`. It
    can be started again, and is empty then."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._options = server_options(settings) | {"memory": True, "sql-port": 0}
        resolve(self._options, {})  # what is wrong is said here, not when the server starts
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def start(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("the server has been started already")
        started: Future[None] = Future()
        self.control_key = new_control_key()
        settings = resolve(self._options | {"control-key": self.control_key}, {})
        check_exposure(settings)
        self.key, self.account = settings.key, settings.account
        thread = threading.Thread(target=self._run, args=[settings, started], name="armillary", daemon=True)
        self._thread = thread
        thread.start()
        try:
            started.result()
        except BaseException:
            thread.join(_STOP_S)
            self._thread = None
            raise
        return self

    def stop(self) -> None:
        """End the server, and wait until it has ended."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None:
            return
        self._close_connections()  # the server waits for those that are open
        if loop is not None and stopping is not None and thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
        thread.join(_STOP_S)
        self._thread = self._loop = self._stopping = None
        self._forget_server()

    def _run(self, settings: Settings, started: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve(settings, started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, settings: Settings, started: Future[None]) -> None:
        machine = SystemClock()
        clock = MovableClock() if settings.clock == "movable" else machine
        crowd = Crowd(file_descriptors.for_connections(), clock=machine)
        async with AsyncExitStack() as opened:
            runtime = Runtime(settings, machine)
            _, listeners = await open_server(opened, settings, machine, clock, crowd, set(), runtime)
            runtime.start()
            opened.push_async_callback(runtime.stop)
            self.addresses = {
                name: f"{settings.scheme(name)}://{settings.host}:{each.port}" for name, each in listeners.items()
            }
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            started.set_result(None)
            await self._stopping.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)
