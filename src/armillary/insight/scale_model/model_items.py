"""The items of a scale model: as large as the workload says and with as many index terms, which of them are there, and
keys that are drawn by their shares."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import accumulate
from typing import Any, Final

from armillary.account import overview
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.errors import bad_request
from armillary.insight.planning.distributions import KeyShares
from armillary.insight.scale_model.small_account import SmallAccount, key_paths
from armillary.model import charges
from armillary.model.key_values import Key

GROUP: Final = "batch"  # the property that fan-out queries filter by: as many items share its value as they return
_PADDING: Final = "unindexed"
_MEASURED: Final = 999_999_999  # the number of the item that is measured, which no other has

ModelKey = tuple[Any, ...]  # the values of all levels of a partition key


class ItemForm:
    """How items are made so that each has a given stored size and number of index terms."""

    def __init__(self, levels: int, properties: int, padding_bytes: int, rows: int) -> None:
        self._names = [path[1:] for path in key_paths(levels)]
        self._properties = properties
        self._padding = "x" * padding_bytes
        self._rows = rows

    @classmethod
    async def measured(cls, small: SmallAccount, key: ModelKey, size_bytes: int, terms: int, rows: int) -> ItemForm:
        """Found by storing a first item and taking its measure."""
        form = cls(len(key), 0, 0, rows)
        _, bare_terms = await form._measure(small, key)
        if terms < bare_terms:
            raise bad_request(f"Items of the scale model have at least {bare_terms} index terms: id, key and a group.")
        form._properties = terms - bare_terms
        own_bytes, own_terms = await form._measure(small, key)
        if size_bytes < own_bytes:
            raise bad_request(
                f"An item with {terms} index terms has at least {own_bytes} bytes as it is stored, not {size_bytes}."
            )
        assert own_terms == terms, "each property is one index term"
        form._padding = "x" * (size_bytes - own_bytes)
        return form

    def document(self, key: ModelKey, number: int) -> dict[str, Any]:
        """Item `number` of all. Its values have the same length whatever the number."""
        values = {f"p{index:02d}": f"{number:09d}" for index in range(self._properties)}
        return {
            "id": f"{number:09d}",
            **dict(zip(self._names, key, strict=True)),
            GROUP: f"{number // self._rows:09d}",
            **values,
            _PADDING: {"text": self._padding},
        }

    def group_of(self, number: int) -> str:
        """What fan-out queries filter by."""
        return f"{number // self._rows:09d}"

    def changed(self, key: ModelKey, number: int, changed_values: int, change: int) -> dict[str, Any]:
        """An item with other values in some of its properties."""
        document = self.document(key, number)
        names = [GROUP, *(f"p{index:02d}" for index in range(self._properties))][:changed_values]
        return document | dict.fromkeys(names, f"{change:09d}")

    async def _measure(self, small: SmallAccount, key: ModelKey) -> tuple[int, int]:
        """Bytes and index terms of one item, which is deleted again."""
        container, options = small.container, ItemOptions(key=Key(key))
        before_bytes = _stored_bytes(small)
        document = self.document(key, _MEASURED)
        answer = await items.create(container, document, options, small.clock)
        size_bytes = _stored_bytes(small) - before_bytes
        await items.delete(container, document["id"], options)
        return size_bytes, round((answer.charge_ru - charges.write_ru(size_bytes)) / charges.TERM_RU)


def _stored_bytes(small: SmallAccount) -> int:
    return sum(each.size_bytes for each in overview.partition_figures(small.container))


class Population:
    """Which items are there, by key: so that reads and changes find one."""

    def __init__(self, dice: random.Random, ttl_s: float) -> None:
        """`ttl_s`: how long items live; 0: until they are deleted."""
        self._dice = dice
        self._ttl_s = ttl_s
        self._items: dict[ModelKey, list[tuple[int, float]]] = {}  # number and time of birth, the oldest first
        self._made = 0
        self.stored = 0  # the numbers below it belong to items that were stored, but for a few

    def number(self) -> int:
        """Of a new item."""
        self._made += 1
        return self._made - 1

    def add(self, key: ModelKey, number: int, now_s: float) -> None:
        self._items.setdefault(key, []).append((number, now_s))
        self.stored = number + 1

    def one_of(self, key: ModelKey, now_s: float) -> int | None:
        """An item of a key; None: it has none."""
        found = self._items.get(key)
        if found and self._ttl_s and found[0][1] + self._ttl_s <= now_s:
            found = self._items[key] = [each for each in found if each[1] + self._ttl_s > now_s]
        return self._dice.choice(found)[0] if found else None


class KeyDraws:
    """Draws values of the first level of a partition key by their shares; those of further levels evenly."""

    def __init__(self, shares: KeyShares, dice: random.Random, levels_below: int = 0, second_level: int = 1) -> None:
        """`second_level`: how many values the further levels have together below each of the first."""
        self._shares = shares
        self._dice = dice
        self._sums = list(accumulate(share for _, share in shares.named))
        self._levels_below = levels_below
        self.second_level = second_level

    def draw(self) -> ModelKey:
        dart = self._dice.random()
        index = bisect_right(self._sums, dart)
        if index < len(self._sums):
            value = self._shares.named[index][0]
        elif self._shares.rest_count:
            value = f"k{self._rank_of_rest()}"
        else:
            value = self._shares.named[-1][0]  # the shares add up to a little less than 1
        if not self._levels_below:
            return (value,)
        below = f"v{self._dice.randrange(self.second_level)}"
        return (value, *[below] * self._levels_below)

    def _rank_of_rest(self) -> int:
        """One of the many keys that are not known one by one."""
        first, last = len(self._shares.named) + 1, self._shares.count
        exponent = self._shares.zipf.exponent if self._shares.zipf is not None else 0.0
        dart = self._dice.random()
        if exponent == 1.0:
            return min(last, int(first * ((last + 1) / first) ** dart))
        low, high = float(first) ** (1 - exponent), float(last + 1) ** (1 - exponent)
        return min(last, int((low + dart * (high - low)) ** (1 / (1 - exponent))))
