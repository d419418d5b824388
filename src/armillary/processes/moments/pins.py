"""Stores as they were at a moment, which a process keeps for another one: for named snapshots, snapshot files and
migrations. What is read of them is sent in portions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, cast

from armillary import limits
from armillary.account.visits.elsewhere.place import LocalPlace, Question, Told
from armillary.errors import Failure, Kind
from armillary.partition.history import log
from armillary.storage.engine import Engine, Kept
from armillary.storage.overlay import Pair


class _Pinning(Protocol):
    pins: Pins


def pins_of(here: LocalPlace) -> Pins:
    return cast(_Pinning, here).pins


@dataclass(slots=True)
class Counts:
    items: int = 0
    size_bytes: int = 0


class Pins:
    """Those that a process keeps, under the ids that the process which asked for them has given."""

    def __init__(self) -> None:
        self._kept: dict[bytes, dict[int, Kept]] = {}
        self._run = b""  # of the process that has asked for them

    async def take(self, engine: Engine, run: bytes, pin_id: bytes, stores: Iterable[int]) -> Counts:
        """`run`: of the process that asks. Those of a former one are not used any more."""
        if run != self._run:
            self.release_all()
            self._run = run
        kept = self._kept.setdefault(pin_id, {})
        counts = Counts()
        for store in stores:
            view = kept[store] = await engine.store(store).pin()
            head = log.load_head(view, 0, 0)
            counts.items += head.item_count
            counts.size_bytes += head.size_bytes
        return counts

    def view(self, pin_id: bytes, store: int) -> Kept:
        found = self._kept.get(pin_id, {}).get(store)
        if found is None:
            raise Failure(
                Kind.NOT_FOUND,
                "The snapshot is not whole any more: a process of the server has been started again since. Take it "
                "again.",
            )
        return found

    def keep(self, pin_id: bytes, store: int, view: Kept) -> None:
        """A further one, beside those that were taken."""
        self._kept.setdefault(pin_id, {})[store] = view

    def release(self, pin_id: bytes, stores: Sequence[int] | None = None) -> None:
        """None: all of them."""
        kept = self._kept.get(pin_id, {})
        for store in list(kept) if stores is None else stores:
            view = kept.pop(store, None)
            if view is not None:
                view.release()
        if not kept:
            self._kept.pop(pin_id, None)

    def release_all(self) -> None:
        for pin_id in list(self._kept):
            self.release(pin_id)


@dataclass(slots=True)
class PinStores(Question):
    """Asked while their writers are held, or of what is not written to."""

    run: bytes
    id: bytes
    stores: list[int]

    async def answer(self, here: LocalPlace) -> Counts:
        return await pins_of(here).take(here.account.engine, self.run, self.id, self.stores)


@dataclass(slots=True)
class ReadPinned(Question):
    """The pairs of a pinned store from a key on, as many as one message takes; none: there are no more."""

    id: bytes
    store: int
    low: bytes
    high: bytes

    async def answer(self, here: LocalPlace) -> list[Pair]:
        view = pins_of(here).view(self.id, self.store)
        found: list[Pair] = []
        size_bytes = 0
        for pair in islice(view.scan(self.low, self.high), limits.PINNED_PORTION_ENTRIES):
            found.append(pair)
            size_bytes += len(pair[0]) + len(pair[1])
            if size_bytes >= limits.PINNED_PORTION_BYTES:
                break
        return found


@dataclass(slots=True)
class GetPinned(Question):
    """Values of a pinned store by their keys."""

    id: bytes
    store: int
    keys: list[bytes]

    async def answer(self, here: LocalPlace) -> list[bytes | None]:
        return pins_of(here).view(self.id, self.store).get_many(self.keys)


@dataclass(slots=True)
class ReleasePins(Told):
    id: bytes
    stores: list[int] | None = None  # None: all of them

    def take(self, here: LocalPlace) -> None:
        pins_of(here).release(self.id, self.stores)
