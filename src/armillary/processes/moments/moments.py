"""One moment of all processes: writers of all of them are held while each pins its stores or takes its checkpoint, and
the catalog is unchanged meanwhile. So a write that was begun after another one had been acknowledged is never there
without that one, whichever processes they were in. The first process asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from armillary import limits
from armillary.account.catalog.allocation import place_of_store
from armillary.account.visits.elsewhere.place import LocalPlace, Question
from armillary.errors import Failure, Kind
from armillary.processes.moments.holds import Hold
from armillary.processes.moments.pins import Counts, ReleasePins, pins_of
from armillary.processes.places import ProcessHere, ProcessPlace, ask_once
from armillary.processes.stopped.undivided_engine import join_checkpoints
from armillary.storage.engine import HoldableEngine, Kept


class _Divided(Protocol):
    """The engine of a process (`divided_engine.py`)."""

    own: HoldableEngine


@asynccontextmanager
async def writers_held(here: LocalPlace) -> AsyncIterator[HoldableEngine]:
    process, engine = cast(ProcessHere, here), cast(_Divided, here.account.engine).own
    async with process.holding:
        await engine.hold()
        try:
            yield engine
        finally:
            engine.release()


def is_whole(here: LocalPlace) -> bool:
    """While writers of all processes are held: whether this one has no part in a transaction that others have committed
    already, or will. If this is so of all, a commit over several processes is in all of them or in none."""
    are_none: bool = cast(ProcessHere, here).transactions.promises.are_none
    return are_none


@dataclass(slots=True)
class AwaitCommits(Question):
    """Answered when there is no such transaction."""

    async def answer(self, here: LocalPlace) -> None:
        await cast(ProcessHere, here).transactions.promises.freed()


@dataclass(slots=True)
class FlushStorage(Question):
    """Asked before writers are held, so that little is left to do then."""

    async def answer(self, here: LocalPlace) -> None:
        await cast(_Divided, here.account.engine).own.flush()


@dataclass(slots=True)
class HoldAndPin(Hold):
    run: bytes  # of the process that asks
    stores: list[int]  # of all processes

    @asynccontextmanager
    async def held(self, here: LocalPlace) -> AsyncIterator[Counts | None]:
        """None: a transaction is committed in some processes, and not yet in others."""
        number, pins = cast(ProcessHere, here).number, pins_of(here)
        own = [each for each in self.stores if place_of_store(each) == number]
        async with writers_held(here) as engine:
            if not is_whole(here):
                yield None
                return
            try:
                yield await pins.take(engine, self.run, self.id, own)
            except BaseException:
                pins.release(self.id)
                raise


@dataclass(slots=True)
class HoldAndCheckpoint(Hold):
    def held(self, here: LocalPlace) -> AbstractAsyncContextManager[str]:
        return _checkpoint_held(here)


@asynccontextmanager
async def _checkpoint_held(here: LocalPlace) -> AsyncIterator[str]:
    """The path of the checkpoint. One of before that is still here was not fetched, and is removed."""
    process = cast(ProcessHere, here)
    async with writers_held(here) as engine:
        left, process.checkpoint = process.checkpoint, None
        made = await engine.checkpoint()
        try:
            process.checkpoint = made.name
            yield str(made)
        except BaseException:
            await engine.drop_checkpoint(made.name)
            raise
    if left is not None:
        await engine.drop_checkpoint(left)


@dataclass(slots=True)
class DropCheckpoint(Question):
    async def answer(self, here: LocalPlace) -> None:
        process = cast(ProcessHere, here)
        if process.checkpoint is not None:
            await cast(_Divided, here.account.engine).own.drop_checkpoint(process.checkpoint)
            process.checkpoint = None


class Moments:
    """Of the first process."""

    def __init__(self, here: ProcessHere) -> None:
        self._here = here
        self._one = asyncio.Lock()  # one after the other

    def new_hold(self, kind: Callable[..., Hold], *given: Any, seconds: float | None = None) -> Any:
        """`seconds`: as long as a moment may take, if it is not said."""
        id_bytes = self._here.account.clock.random_bytes(16)
        return kind(id_bytes, self._here.number, seconds or limits.MOMENT_SECONDS_MAX, *given)

    @asynccontextmanager
    async def catalog_unchanged(self) -> AsyncIterator[None]:
        catalog = self._here.account.catalog
        catalog.check_changeable()
        async with self._one, AsyncExitStack() as locked:
            try:
                async with asyncio.timeout(limits.LOCK_SECONDS_MAX):
                    await locked.enter_async_context(catalog.lock)
            except TimeoutError:
                raise Failure(
                    Kind.UNAVAILABLE, "A change of the catalog does not end, so nothing was done. Try again."
                ) from None
            yield

    async def checkpoint(self) -> Path:
        """A data directory of all processes, as they are at one moment."""
        here, places = self._here, list(self._here.places.others.values())
        own = cast(_Divided, here.account.engine).own
        await asyncio.gather(
            own.flush(), *[ask_once(each, FlushStorage(), limits.FLUSH_SECONDS_MAX) for each in places]
        )
        try:
            hold: HoldAndCheckpoint = self.new_hold(HoldAndCheckpoint)
            asked = here.holds.asked(hold, places)
            async with self.catalog_unchanged(), in_time(), _checkpoint_held(here) as made, asked as told:
                paths = {here.number: Path(made)} | {number: Path(path) for number, path in told.items()}
            return await asyncio.to_thread(join_checkpoints, paths)
        except BaseException:
            await DropCheckpoint().answer(here)
            drops = [each.ask(DropCheckpoint(), limit_s=limits.HOLD_ANSWER_SECONDS) for each in here.places.connected]
            await asyncio.gather(*drops, return_exceptions=True)
            raise
        finally:
            here.checkpoint = None

    async def pin(
        self, stores: Callable[[], Iterable[int]]
    ) -> tuple[bytes, dict[int, Kept], dict[int, Counts], list[int]]:
        """The id under which others keep their pins, the own ones, what is in the others' by process, and their
        stores."""
        async with self.catalog_unchanged():
            wanted = list(stores())
            while True:
                pinned = await self._pinned(wanted)
                if pinned is not None:
                    return pinned
                await self.commits_done()

    async def commits_done(self) -> None:
        """Wait until no transaction is committed in some processes, and not yet in others."""
        asked = [ask_once(each, AwaitCommits(), limits.MOMENT_SECONDS_MAX) for each in self._here.places.connected]
        await asyncio.gather(AwaitCommits().answer(self._here), *asked)

    async def _pinned(
        self, wanted: Iterable[int]
    ) -> tuple[bytes, dict[int, Kept], dict[int, Counts], list[int]] | None:
        """None: there was such a transaction."""
        here = self._here
        own = [each for each in wanted if place_of_store(each) == here.number]
        others = [each for each in wanted if place_of_store(each) != here.number]
        places = [here.places[number] for number in sorted({place_of_store(each) for each in others})]
        hold: HoldAndPin = self.new_hold(HoldAndPin, here.remembered.run, others)
        views: dict[int, Kept] = {}
        try:
            async with in_time(), writers_held(here) as engine, here.holds.asked(hold, places) as told:
                is_good = is_whole(here) and None not in told.values()
                for each in own if is_good else ():
                    views[each] = await engine.store(each).pin()
        except BaseException:
            _release(hold.id, views, places)
            raise
        if not is_good:
            _release(hold.id, views, places)
            return None
        return hold.id, views, told, others


def _release(hold_id: bytes, views: Mapping[int, Kept], places: Iterable[ProcessPlace]) -> None:
    for view in views.values():
        view.release()
    for place in places:
        place.tell(ReleasePins(hold_id))


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limits.MOMENT_SECONDS_MAX + 2 * limits.HOLD_ANSWER_SECONDS):
            yield
    except TimeoutError:
        raise Failure(
            Kind.UNAVAILABLE,
            f"Writers of all processes could not be held at the same moment within {limits.MOMENT_SECONDS_MAX:.0f} s, "
            "so nothing was done. Try again.",
        ) from None
