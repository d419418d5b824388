"""COUNT, SUM, AVG, MIN, MAX, COUNTIF, MAKELIST, MAKESET, and the groups that they are computed in. Undefined values are
ignored by all of them; what else is refused or mixed is each one's own rule.

The state of every aggregate is a plain value, so that a long computation can be put into a continuation and taken up
again, and so that partial results of several partitions can be put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model.encoding import encode_value
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, Value, as_double, compare, weight
from armillary.work import make, spend

_GROUP_UNITS = 20  # of work for the state or the row of a group
_NUMBERS: frozenset[Any] = frozenset([int, float])
_DEEP: frozenset[Any] = frozenset([list, dict])


class Aggregate(Protocol):
    @property
    def size_bytes(self) -> int:
        """Of values that it holds, of which there may be many; 0: it holds one or two."""

    def add(self, value: Any) -> None: ...

    def result(self) -> Value: ...

    def state(self) -> Value:
        """All that it has seen: `merge(state)` into another one, or into a new one to go on later."""

    def merge(self, state: Any) -> None: ...


AggregateMaker: TypeAlias = Callable[[], Aggregate]


class Count:
    __slots__ = ("_count",)
    size_bytes = 0

    def __init__(self) -> None:
        self._count = 0

    def add(self, value: Any) -> None:
        if value is not UNDEFINED:
            self._count += 1

    def result(self) -> Value:
        return self._count

    def state(self) -> Value:
        return self._count

    def merge(self, state: Any) -> None:
        self._count += state


class CountIf(Count):
    __slots__ = ()

    def add(self, value: Any) -> None:
        if value is True:
            self._count += 1


class Sum:
    """The sum of numbers; undefined as soon as anything else is among them. The sum of nothing is 0."""

    __slots__ = ("_count", "_is_spoilt", "_sum")
    size_bytes = 0

    def __init__(self) -> None:
        self._sum: int | float = 0
        self._count = 0
        self._is_spoilt = False

    def add(self, value: Any) -> None:
        if value.__class__ in _NUMBERS:
            self._sum += as_double(value)
            self._count += 1
        elif value is not UNDEFINED:
            self._is_spoilt = True

    def result(self) -> Value:
        return UNDEFINED if self._is_spoilt else _whole(self._sum)

    def state(self) -> Value:
        return [self._sum, self._count, self._is_spoilt]

    def merge(self, state: Any) -> None:
        total, count, is_spoilt = state
        self._sum += total
        self._count += count
        self._is_spoilt = self._is_spoilt or is_spoilt


class Average(Sum):
    __slots__ = ()

    def result(self) -> Value:
        return UNDEFINED if self._is_spoilt or not self._count else _whole(self._sum / self._count)


class _Extreme:
    """The least or greatest by the order of types and values; undefined when an array or an object is among them."""

    __slots__ = ("_best", "_is_spoilt")
    size_bytes = 0
    _sign = 1

    def __init__(self) -> None:
        self._best: Any = UNDEFINED
        self._is_spoilt = False

    def add(self, value: Any) -> None:
        if value is UNDEFINED:
            return
        if value.__class__ in _DEEP:
            self._is_spoilt = True
        elif self._best is UNDEFINED or compare(value, self._best) == self._sign:
            self._best = value

    def result(self) -> Value:
        return UNDEFINED if self._is_spoilt else self._best

    def state(self) -> Value:
        return [self._best, self._is_spoilt]

    def merge(self, state: Any) -> None:
        best, is_spoilt = state
        self.add(best)
        self._is_spoilt = self._is_spoilt or is_spoilt


class Min(_Extreme):
    __slots__ = ()
    _sign = -1


class Max(_Extreme):
    __slots__ = ()
    _sign = 1


class MakeList:
    __slots__ = ("_values", "size_bytes")

    def __init__(self) -> None:
        self._values: list[Any] = []
        self.size_bytes = 0

    def add(self, value: Any) -> None:
        if value is not UNDEFINED:
            self.size_bytes += weight(value)
            if len(self._values) >= limits.QUERY_COLLECTED_MAX or self.size_bytes > limits.QUERY_HELD_BYTES_MAX:
                raise too_many("MAKELIST collects", limits.QUERY_COLLECTED_MAX, "values")
            self._values.append(value)

    def result(self) -> Value:
        return self._values

    def state(self) -> Value:
        return self._values

    def merge(self, state: Any) -> None:
        for value in state:
            self.add(value)


class MakeSet(MakeList):
    __slots__ = ("_seen",)

    def __init__(self) -> None:
        super().__init__()
        self._seen = Seen()

    def add(self, value: Any) -> None:
        if value is not UNDEFINED and self._seen.is_new(value):
            super().add(value)


AGGREGATES: dict[str, AggregateMaker] = {
    "AVG": Average,
    "COUNT": Count,
    "COUNTIF": CountIf,
    "MAKELIST": MakeList,
    "MAKESET": MakeSet,
    "MAX": Max,
    "MIN": Min,
    "SUM": Sum,
}


class Groups:
    """Rows put into groups by deep equality of their keys, each with its own aggregates. Undefined is a key of its
    own. Without keys there is one group, also when there is no row."""

    def __init__(self, makers: Sequence[AggregateMaker], *, is_grouped: bool) -> None:
        self._makers = makers
        self._groups: dict[bytes, tuple[tuple[Any, ...], list[Aggregate]]] = {}
        self._size_bytes = 0
        self._only: list[Aggregate] | None = None
        if not is_grouped:
            self._only = self._group(b"", ())

    def add(self, row: tuple[tuple[Any, ...], tuple[Any, ...]]) -> None:
        keys, values = row
        aggregates = self._only
        if aggregates is None:
            encoded = b"".join(map(encode_value, keys))
            found = self._groups.get(encoded)
            aggregates = found[1] if found is not None else self._group(encoded, keys)
        for aggregate, value in zip(aggregates, values, strict=True):
            aggregate.add(value)

    def _group(self, encoded: bytes, keys: tuple[Any, ...]) -> list[Aggregate]:
        self._size_bytes += len(encoded)
        if len(self._groups) >= limits.QUERY_GROUPS_MAX or self._size_bytes > limits.QUERY_HELD_BYTES_MAX:
            raise too_many("GROUP BY makes", limits.QUERY_GROUPS_MAX, "groups")
        aggregates = [make() for make in self._makers]
        self._groups[encoded] = (keys, aggregates)
        return aggregates

    def results(self) -> Iterator[tuple[tuple[Any, ...], list[Value]]]:
        """The keys and the aggregates' values of each group, in the order of their first rows."""
        for keys, aggregates in self._groups.values():
            spend(_GROUP_UNITS)
            yield keys, [aggregate.result() for aggregate in aggregates]

    @property
    def is_small(self) -> bool:
        """Whether the state may fit a continuation, told without making it."""
        most = limits.QUERY_STATE_BYTES_MAX
        if self._size_bytes > most or len(self._groups) > most:
            return False
        return sum([each.size_bytes for _, aggregates in self._groups.values() for each in aggregates]) <= most

    def state(self) -> Value:
        states: list[Any] = []
        for keys, aggregates in self._groups.values():
            spend(_GROUP_UNITS)
            states.append([list(keys), [each.state() for each in aggregates]])
        return states

    def merge(self, state: Any) -> None:
        """Add what other groups have seen, as their `state` says; new groups come behind those that are here."""
        for keys, states in state:
            spend(_GROUP_UNITS)
            encoded = b"".join(map(encode_value, keys))
            found = self._groups.get(encoded)
            aggregates = found[1] if found is not None else self._group(encoded, tuple(keys))
            for aggregate, each in zip(aggregates, states, strict=True):
                aggregate.merge(each)


class Seen:
    """Which values were there before, by deep equality."""

    __slots__ = ("_encoded", "_size_bytes")

    def __init__(self) -> None:
        self._encoded: set[bytes] = set()
        self._size_bytes = 0

    def is_new(self, value: Value) -> bool:
        encoded = encode_value(value)
        if encoded in self._encoded:
            return False
        make(len(encoded))
        self._size_bytes += len(encoded)
        if len(self._encoded) >= limits.QUERY_DISTINCT_MAX or self._size_bytes > limits.QUERY_HELD_BYTES_MAX:
            raise too_many("DISTINCT finds", limits.QUERY_DISTINCT_MAX, "values")
        self._encoded.add(encoded)
        return True


def too_many(what: str, count_max: int, things: str) -> Failure:
    return Failure(
        Kind.BAD_REQUEST,
        f"{what} more than {count_max} {things} or {limits.QUERY_HELD_BYTES_MAX // limits.MB} MB at once. "
        "Filter more, or ask for one partition key at a time.",
    )


def _whole(number: float) -> int | float:
    """Whole results are integers, as a reader of JSON expects, while doubles hold them exactly."""
    if -EXACT_INT_MAX <= number <= EXACT_INT_MAX and number == int(number):
        return int(number)
    return number
