"""Plays a workload on a small account: writes without a budget between two looks, and seconds of requests under the
budget at a look, each second's number drawn by the seed.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member, Verb
from armillary.account.queries import item_pages
from armillary.account.visits import visits
from armillary.account.visits.page_walk import FeedOptions
from armillary.account.visits.write_visits import WriteItem
from armillary.errors import Failure, Kind
from armillary.insight.planning.distributions import KeyValue
from armillary.insight.planning.placement import prefix_bounds
from armillary.insight.scale_model.model_items import GROUP, ItemForm, KeyDraws, ModelKey, Population
from armillary.insight.scale_model.small_account import SmallAccount
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.key_values import Key
from armillary.model.patch import parse_patch

# Queries by the levels of the key that they pin (`small_account.key_paths`), and by the property `model_items.GROUP`.
_PINNED: Final = {
    1: "SELECT TOP @rows * FROM c WHERE c.key = @key",
    2: "SELECT TOP @rows * FROM c WHERE c.key = @key AND c.key2 = @key2",
    3: "SELECT TOP @rows * FROM c WHERE c.key = @key AND c.key2 = @key2 AND c.key3 = @key3",
}
_FANNED: Final = "SELECT * FROM c WHERE c.batch = @group"
_SETTLE_EVERY: Final = 20  # items; splits are at once, beside months between two looks
_EXACT_MAX: Final = 500.0  # of a mean, whose exponential must not vanish


@dataclass(frozen=True, slots=True)
class PlayedOperation:
    kind: str  # as in a workload
    rate: float  # requests a second
    keys: KeyDraws
    form: ItemForm
    pinned_levels: int = 0  # of queries: how many levels of the partition key their filter pins
    rows: int = 1  # of queries: how many they return
    creates: int = 1  # of batches
    existing: float = 1.0  # of upserts: the share that replaces
    changed_values: int = 1

    def times(self, factor: float) -> PlayedOperation:
        return replace(self, rate=self.rate * factor)

    def at(self, keys: KeyDraws) -> PlayedOperation:
        return replace(self, keys=keys)


Action = Callable[[ModelKey, PlayedOperation], Awaitable[float]]
Writer = tuple[float, KeyDraws, ItemForm]  # the weight of one kind of new items, their keys and their form


@dataclass(slots=True)
class Tally:
    """Of one kind of operation: requests to partitions. A query that visits several is as many."""

    asked: Counter[int] = field(default_factory=Counter)  # by partition
    answered: Counter[int] = field(default_factory=Counter)  # likewise; refusals because of a full key are answers
    charged_ru: dict[int, float] = field(default_factory=dict)  # likewise
    full: int = 0  # 403/1014
    keys: Counter[KeyValue] = field(default_factory=Counter)  # requests by the first level of their key

    def mean_ru(self, partition: int) -> float:
        """What a request to a partition costs: where keys are full, less than elsewhere."""
        if answered := self.answered[partition]:
            return self.charged_ru[partition] / answered
        answered = self.answered.total()
        return sum(self.charged_ru.values()) / answered if answered else 0.0


@dataclass(slots=True)
class Seen:
    """What became of the requests of some seconds."""

    tallies: list[Tally]  # by operation
    # Of each second, by operation and partition: requests, and how many of them were refused (429).
    by_second: list[dict[tuple[int, int], list[int]]] = field(default_factory=list)

    @property
    def demand_ru(self) -> float:
        """A second: what all requests would have cost, those that were refused as much as their like."""
        whole = sum(count * each.mean_ru(place) for each in self.tallies for place, count in each.asked.items())
        return whole / len(self.by_second)

    @property
    def refused_share(self) -> SeenShare:
        """Of the demand."""
        return self._share_of(None)

    @property
    def worst_refused_share(self) -> SeenShare:
        """That of the partition that refuses the most of what it is asked for."""
        partitions = {partition for second in self.by_second for _, partition in second}
        return max((self._share_of(each) for each in sorted(partitions)), default=SeenShare(0.0, 0.0))

    def _share_of(self, partition: int | None) -> SeenShare:
        """Of one partition, or of all. Requests of one second share its fate, so chance is judged by the seconds."""
        asked_ru, refused_ru = [], []
        for second in self.by_second:
            asked = refused = 0.0
            for (operation, place), counts in second.items():
                if partition is None or place == partition:
                    mean_ru = self.tallies[operation].mean_ru(place)
                    asked += counts[0] * mean_ru
                    refused += counts[1] * mean_ru
            asked_ru.append(asked)
            refused_ru.append(refused)
        whole = sum(asked_ru)
        if not whole:
            return SeenShare(0.0, 0.0)
        share = sum(refused_ru) / whole
        squares = sum((each - share * asked) ** 2 for each, asked in zip(refused_ru, asked_ru, strict=True))
        return SeenShare(share, math.sqrt(squares) / whole)


class SeenShare(NamedTuple):
    share: float
    error: float  # one standard error


class _Counting:
    """Counts the requests of one operation in the present second."""

    def __init__(self, index: int, seen: Seen) -> None:
        self._index = index
        self.tally = seen.tallies[index]
        self._second = seen.by_second[-1]

    def ask(self, range_id: int) -> None:
        self.tally.asked[range_id] += 1
        self._second.setdefault((self._index, range_id), [0, 0])[0] += 1

    def answer(self, charge_ru: float, range_id: int) -> None:
        charged = self.tally.charged_ru
        self.tally.answered[range_id] += 1
        charged[range_id] = charged.get(range_id, 0.0) + charge_ru

    def refuse(self, failure: Failure, range_id: int) -> None:
        if failure.kind is Kind.THROTTLED:
            self._second[self._index, range_id][1] += 1
        elif failure.kind in (Kind.KEY_FULL, Kind.NOT_FOUND):
            self.tally.full += failure.kind is Kind.KEY_FULL
            self.answer(failure.charge_ru or 0.0, range_id)
        else:
            raise failure


class Player:
    def __init__(self, small: SmallAccount, seed: int, *, ttl_s: float = 0.0) -> None:
        self._small = small
        self._dice = random.Random(f"requests {seed}")
        self._population = Population(random.Random(f"items {seed}"), ttl_s)
        self.written: Counter[KeyValue] = Counter()  # items that grow the container, by the first level of their key
        self.full = 0  # of them, refused with 403/1014
        self._actions: dict[str, Action] = {
            "create": self._create,
            "read": self._read,
            "upsert": self._upsert,
            "replace": self._replace,
            "patch": self._patch,
            "delete": self._delete,
            "batch": self._batch,
        }

    async def fill(self, count: int, writers: Sequence[Writer]) -> None:
        """Store so many items without a budget, with splits as they come."""
        if not count:
            return
        weights = [each[0] for each in writers]
        for number in range(count):
            _, keys, form = self._dice.choices(writers, weights)[0]
            key = keys.draw()
            self.written[key[0]] += 1
            try:
                await self._store(key, form)
            except Failure as failure:
                if failure.kind is not Kind.KEY_FULL:
                    raise
                self.full += 1
            if number % _SETTLE_EVERY == 0:
                await self._small.settle()
        await self._small.settle()

    async def _store(self, key: ModelKey, form: ItemForm) -> None:
        number = self._population.number()
        await items.create(self._small.container, form.document(key, number), _at(key), self._small.clock)
        self._population.add(key, number, self._small.clock.now_s())

    async def play(self, seconds: int, operations: Sequence[PlayedOperation]) -> Seen:
        """Requests under the budget, in random order; none is tried again. Items that they store are taken away at
        once: the seconds of a look are nothing beside the months between two of them."""
        await self._small.enforce(is_on=True)
        seen = Seen([Tally() for _ in operations])
        for _ in range(seconds):
            seen.by_second.append({})
            todo = [
                index for index, operation in enumerate(operations) for _ in range(poisson(operation.rate, self._dice))
            ]
            self._dice.shuffle(todo)
            for index in todo:
                await self._request(operations[index], _Counting(index, seen))
            await self._small.pass_s(1.0)
        await self._small.enforce(is_on=False)
        await self._small.settle()
        return seen

    async def _request(self, operation: PlayedOperation, counting: _Counting) -> None:
        key = operation.keys.draw()
        counting.tally.keys[key[0]] += 1
        if operation.kind == "query":
            await self._query(key, operation, counting)
            return
        container = self._small.container
        range_id = container.partition_for(container.effective_key(Key(key))).range.id
        counting.ask(range_id)
        try:
            counting.answer(await self._actions[operation.kind](key, operation), range_id)
        except Failure as failure:
            counting.refuse(failure, range_id)

    # Operations. Each returns its charge.

    async def _create(self, key: ModelKey, operation: PlayedOperation) -> float:
        number = self._population.number()
        document = operation.form.document(key, number)
        answer = await items.create(self._small.container, document, _at(key), self._small.clock)
        await self._take_away(key, number)
        return answer.charge_ru

    async def _read(self, key: ModelKey, operation: PlayedOperation) -> float:
        return (await items.read(self._small.container, self._id_in(key), _at(key))).charge_ru

    async def _upsert(self, key: ModelKey, operation: PlayedOperation) -> float:
        if self._dice.random() >= operation.existing:
            return await self._create(key, operation)
        return await self._replace(key, operation)

    async def _replace(self, key: ModelKey, operation: PlayedOperation) -> float:
        number = self._population.one_of(key, self._small.clock.now_s())
        if number is None:
            return await self._read(key, operation)
        document = operation.form.changed(key, number, operation.changed_values, self._dice.randrange(10**9))
        return (await items.upsert(self._small.container, document, _at(key), self._small.clock)).charge_ru

    async def _patch(self, key: ModelKey, operation: PlayedOperation) -> float:
        change = {"op": "set", "path": f"/{GROUP}", "value": f"{self._dice.randrange(10**9):09d}"}
        patch = parse_patch({"operations": [change]})
        return (await items.patch(self._small.container, self._id_in(key), patch, _at(key))).charge_ru

    async def _delete(self, key: ModelKey, operation: PlayedOperation) -> float:
        """Of an item that was put there for it, so that as many are stored afterwards."""
        number = self._population.number()
        container = self._small.container
        member = Member(Verb.CREATE, document=operation.form.document(key, number))
        creating = items.operation_of(container, member, Key(key), self._small.clock)
        await visits.run_uncounted(container, WriteItem(creating.epk, creating))
        try:
            return (await items.delete(container, _id(number), _at(key))).charge_ru
        except Failure:
            await self._take_away(key, number)
            raise

    async def _batch(self, key: ModelKey, operation: PlayedOperation) -> float:
        numbers = [self._population.number() for _ in range(operation.creates)]
        members = [Member(Verb.CREATE, document=operation.form.document(key, number)) for number in numbers]
        answer = await items.batch(self._small.container, Key(key), members, _at(key), self._small.clock)
        for number in numbers:
            await self._take_away(key, number)
        return answer.charge_ru

    async def _take_away(self, key: ModelKey, number: int) -> None:
        """Without a charge."""
        container = self._small.container
        member = Member(Verb.DELETE, item_id=_id(number))
        operation = items.operation_of(container, member, Key(key), self._small.clock)
        await visits.run_uncounted(container, WriteItem(operation.epk, operation))

    async def _query(self, key: ModelKey, operation: PlayedOperation, counting: _Counting) -> None:
        container = self._small.container
        pinned = key[: operation.pinned_levels]
        if pinned:
            low, high = prefix_bounds(pinned)
            ranges = [each.id for each in container.map.ranges if each.low < high and low < each.high]
            names = ("@key", "@key2", "@key3")[: len(pinned)]
            text, parameters = _PINNED[len(pinned)], {**dict(zip(names, pinned, strict=True)), "@rows": operation.rows}
        else:
            ranges = [each.id for each in container.map.ranges]
            number = self._dice.randrange(max(1, self._population.stored))
            text, parameters = _FANNED, {"@group": operation.form.group_of(number)}
        for range_id in ranges:
            bound = compile_query(text, ()).bind(parameters, container.query_context(), None)
            counting.ask(range_id)
            options = FeedOptions(range_id=str(range_id))
            try:
                page = await item_pages.query(self._small.account, container, bound, b"", options)
            except Failure as failure:
                counting.refuse(failure, range_id)
            else:
                counting.answer(page.charge_ru, range_id)

    def _id_in(self, key: ModelKey) -> str:
        return _id(self._population.one_of(key, self._small.clock.now_s()))


def _id(number: int | None) -> str:
    """Of an item; one that does not exist has an id as well."""
    return f"{number:09d}" if number is not None else "none"


def _at(key: ModelKey) -> ItemOptions:
    return ItemOptions(key=Key(key))


def poisson(mean: float, dice: random.Random) -> int:
    """How many of independent requests come in a second."""
    if mean > _EXACT_MAX:
        return max(0, round(dice.gauss(mean, math.sqrt(mean))))
    product, count = dice.random(), 0
    while product > math.exp(-mean):
        product *= dice.random()
        count += 1
    return count
