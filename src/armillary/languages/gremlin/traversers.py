"""Traversers: a value on its way through the steps, with its bulk (the number of equal traversers), path, sack and loop
counters.

Paths are linked from the last object to the first, so that traversers share their common prefix.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.languages.gremlin.values.elements import Path

MISSING: Final = object()  # no value: of a label, a key or a by()
NO_SACK: Final = object()


class Place:
    """An object of a path with its labels, linked to the one before."""

    __slots__ = ("before", "labels", "value")

    def __init__(self, before: Place | None, value: Any, labels: tuple[str, ...]) -> None:
        self.before = before
        self.value = value
        self.labels = labels

    def places(self) -> list[Place]:
        """From the first to the last."""
        found = []
        place: Place | None = self
        while place is not None:
            found.append(place)
            place = place.before
        found.reverse()
        return found


class Traverser:
    """A traverser whose path holds labelled objects only."""

    __slots__ = ("bulk", "loops", "path", "sack", "value")

    def __init__(
        self,
        value: Any,
        bulk: int = 1,
        path: Place | None = None,
        loops: tuple[tuple[str, int], ...] = (),
        sack: Any = NO_SACK,
    ) -> None:
        self.value = value
        self.bulk = bulk
        self.path = path
        self.loops = loops  # names and counts of the repeat() steps around it, innermost last
        self.sack = sack

    def to(self, value: Any) -> Traverser:
        """A new traverser that has moved on to a value."""
        return Traverser(value, self.bulk, self.path, self.loops, self.sack)

    def copy(self, bulk: int | None = None) -> Traverser:
        return type(self)(self.value, self.bulk if bulk is None else bulk, self.path, self.loops, self.sack)

    def with_value(self, value: Any) -> Traverser:
        """The same traverser with another value; its path does not change."""
        return type(self)(value, self.bulk, self.path, self.loops, self.sack)

    def label(self, labels: tuple[str, ...]) -> None:
        last = self.path
        if last is not None and last.value is self.value:
            new = tuple(label for label in labels if label not in last.labels)
            self.path = Place(last.before, last.value, last.labels + new)
        else:
            self.path = Place(last, self.value, labels)

    def labelled(self, name: str) -> list[Any]:
        """All objects of the path with a label, oldest first."""
        found = []
        place = self.path
        while place is not None:
            if name in place.labels:
                found.append(place.value)
            place = place.before
        found.reverse()
        return found

    def last_labelled(self, name: str) -> Any:
        place = self.path
        while place is not None:
            if name in place.labels:
                return place.value
            place = place.before
        return MISSING

    def first_labelled(self, name: str) -> Any:
        found = MISSING
        place = self.path
        while place is not None:
            if name in place.labels:
                found = place.value
            place = place.before
        return found

    def whole_path(self) -> Path:
        places = self.path.places() if self.path is not None else []
        return Path([place.value for place in places], [place.labels for place in places])


class PathTraverser(Traverser):
    """A traverser whose path holds every object."""

    __slots__ = ()

    def to(self, value: Any) -> PathTraverser:
        return PathTraverser(value, self.bulk, Place(self.path, value, ()), self.loops, self.sack)

    def label(self, labels: tuple[str, ...]) -> None:
        last = self.path
        if last is None:
            self.path = Place(None, self.value, labels)
            return
        new = tuple(label for label in labels if label not in last.labels)
        self.path = Place(last.before, last.value, last.labels + new)


Batch = list[Traverser]
