"""Accumulators of groups, buckets, windows and arrays, and of the `distinct` command: small objects that take values
one by one and give a result. Those that grow count their memory. Parsing their operators is
`accumulator_operators.py`'s part.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import count
from typing import Any, Protocol

from bson.decimal128 import Decimal128
from bson.int64 import Int64

from armillary.languages.mongo.collation import Collation, key_function
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expressions.numbers import (
    CONTEXT,
    INT,
    LONG,
    RANKS,
    as_double,
    decimal128,
    double_sum,
    exact_decimal,
    integer,
    is_nullish,
)
from armillary.languages.mongo.expressions.objects import merge_objects
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import split, values_at
from armillary.languages.mongo.sort_keys import Descending
from armillary.model.bson.bson_values import MISSING, Document, Key
from armillary.work import sorted_values, spend

KeyOf = Callable[[Any], Any]


class Accumulator(Protocol):
    def add(self, value: Any) -> None: ...

    def result(self) -> Any: ...


# Numbers.


class Sum:
    """A sum: exact for whole numbers, compensated for doubles, in decimal arithmetic for decimals."""

    __slots__ = ("_decimal", "_high", "_is_long", "_low", "_special", "_whole", "has_double")

    def __init__(self) -> None:
        self._whole = 0
        self._is_long = self.has_double = False
        self._high = self._low = self._special = 0.0
        self._decimal: Decimal | None = None

    def add(self, value: Any) -> None:
        kind = type(value)
        if kind is int:
            self._whole += value
        elif kind is float:
            self.has_double = True
            if math.isfinite(value):
                total = self._high + value
                back = total - self._high
                self._low += (self._high - (total - back)) + (value - back)
                self._high = total
            else:
                self._special += value
        elif kind is Int64:
            self._whole += int(value)
            self._is_long = True
        elif kind is Decimal128:
            number = value.to_decimal()
            self._decimal = (
                CONTEXT.add(Decimal(0), number) if self._decimal is None else CONTEXT.add(self._decimal, number)
            )

    def result(self) -> Any:
        if self._decimal is not None:
            total = CONTEXT.add(self._decimal, Decimal(self._whole))
            for part in (self._high, self._low, self._special):
                if part:
                    total = CONTEXT.add(total, exact_decimal(part))
            return decimal128(total)
        if self.has_double:
            if self._special or math.isinf(self._high):
                return self._special or self._high
            return double_sum((self._whole, self._high, self._low))
        return integer(self._whole, LONG if self._is_long else INT)


class Average:
    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self._sum = Sum()
        self._count = 0

    def add(self, value: Any) -> None:
        if type(value) in RANKS:
            self._sum.add(value)
            self._count += 1

    def result(self) -> Any:
        if not self._count:
            return None
        total = self._sum.result()
        if type(total) is Decimal128:
            return decimal128(CONTEXT.divide(total.to_decimal(), Decimal(self._count)))
        return float(total) / self._count


class Deviation:
    """Standard deviation, of the whole population or estimated from a sample."""

    __slots__ = ("_count", "_is_sample", "_mean", "_squares")

    def __init__(self, is_sample: bool) -> None:
        self._is_sample = is_sample
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def add(self, value: Any) -> None:
        if type(value) in RANKS:
            number = as_double(value)
            self._count += 1
            apart = number - self._mean
            self._mean += apart / self._count
            self._squares += apart * (number - self._mean)

    def result(self) -> Any:
        count = self._count - self._is_sample
        return None if count <= 0 else math.sqrt(self._squares / count)


class Percentiles:
    """Percentiles: each is one of the values taken, as a double."""

    def __init__(self, ranks: list[float], is_single: bool, budget: Budget) -> None:
        self._ranks, self._is_single, self._budget = ranks, is_single, budget
        self._numbers: list[float] = []

    def add(self, value: Any) -> None:
        if type(value) in RANKS:
            number = as_double(value)
            if not math.isnan(number):
                self._numbers.append(number)
                self._budget.take(32)

    def result(self) -> Any:
        numbers = sorted_values(self._numbers)
        found = [self._at(numbers, rank) for rank in self._ranks]
        return found[0] if self._is_single else found

    @staticmethod
    def _at(numbers: list[float], rank: float) -> float | None:
        if not numbers:
            return None
        return numbers[max(0, min(len(numbers), math.ceil(len(numbers) * rank)) - 1)]


# Any values.


class Extreme:
    """The minimum or maximum; null and missing are ignored."""

    __slots__ = ("_best", "_is_greatest", "_key", "_value")

    def __init__(self, key: KeyOf, is_greatest: bool) -> None:
        self._key, self._is_greatest = key, is_greatest
        self._best: Any = None
        self._value: Any = None

    def add(self, value: Any) -> None:
        if value is None or value is MISSING:
            return
        key = self._key(value)
        if self._best is None or (key > self._best if self._is_greatest else key < self._best):
            self._best, self._value = key, value

    def result(self) -> Any:
        return self._value


class First:
    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: Any = self

    def add(self, value: Any) -> None:
        if self._value is self:
            self._value = value

    def result(self) -> Any:
        return None if self._value is self or self._value is MISSING else self._value


class Last:
    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: Any = None

    def add(self, value: Any) -> None:
        self._value = value

    def result(self) -> Any:
        return None if self._value is MISSING else self._value


class Push:
    __slots__ = ("_budget", "_values")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        if value is not MISSING:
            self._budget.take_value(value)
            self._values.append(value)

    def result(self) -> Any:
        spend(len(self._values) // 64)
        return list(self._values)


class AddToSet:
    __slots__ = ("_budget", "_key", "_values")

    def __init__(self, key: KeyOf, budget: Budget) -> None:
        self._key, self._budget = key, budget
        self._values: dict[Any, Any] = {}

    def add(self, value: Any) -> None:
        if value is MISSING:
            return
        key = self._key(value)
        if key not in self._values:
            self._budget.take_value(value)
            self._values[key] = value

    def result(self) -> Any:
        return list(self._values.values())


class Merge:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._merged: dict[str, Any] = {}

    def add(self, value: Any) -> None:
        if type(value) is dict:
            self._budget.take_value(value)
            self._merged.update(value)
        elif not is_nullish(value):
            merge_objects(value)

    def result(self) -> Any:
        return dict(self._merged)


class FirstN:
    def __init__(self, most: int, budget: Budget) -> None:
        self._most, self._budget = most, budget
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        if len(self._values) < self._most:
            self._budget.take_value(value)
            self._values.append(None if value is MISSING else value)

    def result(self) -> Any:
        return list(self._values)


class LastN:
    def __init__(self, most: int, budget: Budget) -> None:
        self._most, self._budget = most, budget
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        self._values.append(None if value is MISSING else value)
        if len(self._values) <= self._most:
            self._budget.take_value(value)
        elif len(self._values) > 2 * self._most:
            del self._values[: -self._most]

    def result(self) -> Any:
        return self._values[-self._most :]


class Ordered:
    """The first or last n values in an order; equal keys keep the order of input. Takes pairs of key and value."""

    def __init__(self, most: int, is_last: bool, is_single: bool, budget: Budget) -> None:
        self._most, self._is_last, self._is_single, self._budget = most, is_last, is_single, budget
        self._kept: list[_Entry] = []  # a heap with the entry to drop next at its top
        self._numbers = count()

    def add(self, value: Any) -> None:
        key, output = value
        spend(10)
        numbered = (key, next(self._numbers))
        entry = _Entry(numbered if self._is_last else Descending(numbered), output)
        if len(self._kept) < self._most:
            self._budget.take_value(output)
            heapq.heappush(self._kept, entry)
        elif self._kept[0] < entry:
            heapq.heapreplace(self._kept, entry)

    def result(self) -> Any:
        entries = sorted_values(self._kept, is_reversed=not self._is_last)
        found = [None if entry.output is MISSING else entry.output for entry in entries]
        if self._is_single:
            return found[0] if found else None
        return found


class _Entry:
    """Compared by its key only, since outputs may not be comparable."""

    __slots__ = ("key", "output")

    def __init__(self, key: Any, output: Any) -> None:
        self.key, self.output = key, output

    def __lt__(self, other: _Entry) -> bool:
        return bool(self.key < other.key)


class ExtremeN:
    """The n smallest or greatest values; null and missing are ignored."""

    def __init__(self, key: KeyOf, most: int, is_greatest: bool, budget: Budget) -> None:
        self._key, self._is_greatest = key, is_greatest
        self._kept = Ordered(most, False, False, budget)

    def add(self, value: Any) -> None:
        if not is_nullish(value):
            key = self._key(value)
            self._kept.add((Descending(key) if self._is_greatest else key, value))

    def result(self) -> Any:
        return self._kept.result()


# The distinct command.


class DistinctValues:
    """The `distinct` command: the different values at a path, with arrays counted by their elements and equal numbers
    once. Fed document by document.
    """

    def __init__(self, path: str, collation: Collation | None = None) -> None:
        if not path or "\0" in path:
            raise refusal(40352, "FieldPath cannot be constructed with empty string")
        self._parts = split(path)
        self._key = key_function(collation)
        self._values: dict[Key, Any] = {}
        self._ranks: dict[Key, Key] = {}
        self._budget = Budget("distinct")

    def add(self, document: Document, rank: Key | None = None) -> None:
        """Of equal values the first is kept, or the one of the document with the lowest rank."""
        for value in values_at(document, self._parts):
            spend(8)
            key = self._key(value)
            if key not in self._values:
                self._budget.take_value(value)
            elif rank is None or self._ranks[key] <= rank:
                continue
            self._values[key] = value
            if rank is not None:
                self._ranks[key] = rank

    @property
    def values(self) -> list[Any]:
        """Sorted."""
        return [self._values[key] for key in sorted_values(self._values)]


def distinct_values(documents: Iterable[Document], path: str, collation: Collation | None = None) -> list[Any]:
    distinct = DistinctValues(path, collation)
    for document in documents:
        distinct.add(document)
    return distinct.values
