"""Parts of the server that are imported with their first use, so that a start and an idle server do not pay for them.

A server opens the ports of all doors and may never get a request for most of them. A `Late` part stands for an object
whose modules are imported when a first request needs it. The import runs in a thread: requests to other parts are
answered meanwhile, and the request that waits is not refused. `make` has the imports in its body, so that type checks,
import-linter and the test for import cycles see them.

Two threads cannot block each other by importing: that takes an import cycle, and there is none.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


@contextmanager
def imports_uncollected() -> Iterator[None]:
    """Import without the garbage collector: modules stay, and it would look at them again and again while hundreds of
    them are imported. A program that runs a server in its own process may have turned it off: then it stays off."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _import(modules: tuple[str, ...]) -> None:
    with imports_uncollected():
        for module in modules:
            import_module(module)


class Late(Generic[T]):
    """An object that is made with its first use."""

    def __init__(self, make: Callable[[], T], *modules: str) -> None:
        """`make`: called once, on the event loop. `modules`: those that it imports, and those that the object's first
        use imports; named here, so that a thread can do it before."""
        self.modules = modules
        self.made: T | None = None
        self._make = make
        self._when_made: list[Callable[[T], None]] = []

    def get(self) -> T:
        """The object at once: what is not imported yet is imported here, and holds up the event loop."""
        made = self.made
        if made is None:
            made = self.made = self._make()
            for call in self._when_made:
                call(made)
            self._when_made.clear()
        return made

    async def load(self) -> T:
        """The object, after its modules were imported in a thread. Raises what the import raises; the next call tries
        again."""
        if self.made is None:
            await asyncio.get_running_loop().run_in_executor(None, _import, self.modules)
        return self.get()

    async def prepare(self) -> None:
        """What a port waits for before its first connection is served."""
        await self.load()

    def when_made(self, call: Callable[[T], None]) -> None:
        """Call with the object: now, if there is one, or when it is made."""
        if self.made is not None:
            call(self.made)
        else:
            self._when_made.append(call)
