"""order() and dedup(), on the whole stream or on one list."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from operator import itemgetter
from typing import Any

from armillary.languages.gremlin.by_modulators import IDENTITY, By, ManyBys, make_by
from armillary.languages.gremlin.pipeline import (
    LABELLED_PATH,
    Builder,
    GatheringStep,
    Pipeline,
    Scope,
    Step,
    WaitingStep,
    builds,
)
from armillary.languages.gremlin.run import Run, vertex_key
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.select_and_where import scope_value
from armillary.languages.gremlin.syntax.tokens import Order
from armillary.languages.gremlin.syntax.tokens import Scope as ScopeToken
from armillary.languages.gremlin.traversers import MISSING, Batch, Traverser
from armillary.languages.gremlin.values.comparing import identity, map_key, order_key, unique
from armillary.languages.gremlin.values.elements import Edge, Entry, Path, Vertex, pairs
from armillary.languages.gremlin.values.typed_values import Set
from armillary.work import sorted_values, spend

Sorting = list[tuple[By, Order]]
_FIRST = itemgetter(0)


def _add_order(sorting: Sorting, arguments: Arguments, builder: Builder) -> None:
    if arguments.is_next(Order):
        sorting.append((IDENTITY, arguments.token(Order)))
        arguments.end()
        return
    by = make_by(arguments, builder)
    order = arguments.token(Order) if len(arguments) else Order.asc
    arguments.end()
    sorting.append((by, order))


async def _sorted(items: list[tuple[list[Any], Any]], sorting: Sorting, run: Run) -> list[Any]:
    """Sorts stably by each key, the last key first."""
    orders = [order for _, order in sorting] or [Order.asc]
    for at in range(len(orders) - 1, -1, -1):
        if orders[at] is Order.shuffle:
            spend(10 * len(items))
            items = [item for _, item in sorted_values([(run.random(), item) for item in items], _FIRST)]
        else:
            items = sorted_values(items, _key_at(at), is_reversed=orders[at] is Order.desc)
    return [item for _, item in items]


def _key_at(place: int) -> Callable[[tuple[list[Any], Any]], Any]:
    return lambda item: item[0][place]


async def _keys(sorting: Sorting, value: Any, traverser: Traverser, run: Run) -> list[Any] | None:
    keys = []
    spend(15)
    for by, _ in sorting or [(IDENTITY, Order.asc)]:
        found = await by.of(value, traverser, run)
        if found is MISSING:
            return None
        keys.append(order_key(found))
    return keys


class Ordering(Step):
    """One by() of order(): a key and a direction."""

    name = "order"

    def __init__(self) -> None:
        self.sorting: Sorting = []

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name != "by":
            super().modulate(name, arguments, builder)
        _add_order(self.sorting, arguments, builder)

    def children(self) -> Iterable[Pipeline]:
        return [by.pipeline for by, _ in self.sorting if by.pipeline is not None]


class OrderStep(Ordering, GatheringStep):
    async def gathered(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        for by, _ in self.sorting:
            await by.prepare(batch, run)
        items: list[tuple[list[Any], Any]] = []
        plain = all(by.is_plain for by, _ in self.sorting)
        for each in batch:
            spend(20)
            keys: list[Any] | None
            if plain:
                found = [by.read(each.value, run) for by, _ in self.sorting] or [each.value]
                keys = None if MISSING in [key for key in found if key is MISSING] else list(map(order_key, found))
            else:
                await run.breathe()
                keys = await _keys(self.sorting, each.value, each, run)
            if keys is not None:
                items.append((keys, each))
        return await _sorted(items, self.sorting, run)


class OrderLocalStep(Ordering, WaitingStep):
    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            value = each.value
            if isinstance(value, list):
                result = await self._ordered(value, each, run)
                found.append(each.to(result))
            elif isinstance(value, dict):
                entries = [Entry(key, one) for key, one in pairs(value)]
                found.append(each.to({map_key(key): one for key, one in await self._ordered(entries, each, run)}))
            else:
                found.append(each.to(value))
        return found

    async def _ordered(self, values: list[Any], traverser: Traverser, run: Run) -> list[Any]:
        items: list[tuple[list[Any], Any]] = []
        for value in values:
            keys = await _keys(self.sorting, value, traverser, run)
            if keys is not None:
                items.append((keys, value))
        return await _sorted(items, self.sorting, run)


@builds("order")
def _order(builder: Builder, arguments: Arguments) -> Step:
    return OrderLocalStep() if arguments.scope() is ScopeToken.local else OrderStep()


def _dedup_key(value: Any) -> Hashable:
    if type(value) is Vertex:
        return (vertex_key(value),)
    return value if type(value) is Edge else identity(value)


class DedupStep(ManyBys, WaitingStep):
    """dedup(), dedup('a', 'b')."""

    name = "dedup"

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names = names
        if names:
            self.needs_path = LABELLED_PATH

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        seen: set[Hashable] = scope.state(self, set[Hashable])
        if not self.names:
            await self.bys.prepare(batch, run)
        found: Batch = []
        before = len(seen)
        for each in batch:
            spend(5)
            key: Any
            if self.names:
                key = await self._labelled_key(each, run)
            else:
                by = self.bys.at(0)
                value = by.read(each.value, run) if by.is_plain else await by.value(each, run)
                if value is MISSING:
                    continue
                key = _dedup_key(value)
            if key is MISSING or key in seen:
                continue
            seen.add(key)
            each.bulk = 1
            found.append(each)
        run.hold(len(seen) - before)
        return found

    async def _labelled_key(self, traverser: Traverser, run: Run) -> Any:
        keys = []
        for at, name in enumerate(self.names):
            value = await scope_value(traverser, name, run)
            if value is MISSING:
                return MISSING
            found = await self.bys.at(at).of(value, traverser, run)
            if found is MISSING:
                return MISSING
            keys.append(identity(found))
        return tuple(keys)


class DedupLocalStep(WaitingStep):
    name = "dedup"

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names  # entries of the maps in a list

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(self._of(each.value)) for each in batch]

    def _of(self, value: Any) -> Any:
        values = value.objects if isinstance(value, Path) else value
        if not isinstance(values, list):
            return value
        if not self.names:
            return unique(values)
        found: dict[Hashable, Any] = {}
        for each in values:
            chosen = [each.get(name) for name in self.names] if isinstance(each, dict) else [each]
            found.setdefault(identity(chosen), each)
        return Set(found.values())


@builds("dedup")
def _dedup(builder: Builder, arguments: Arguments) -> Step:
    scope = arguments.scope()
    names = arguments.texts()
    if scope is ScopeToken.local:
        return DedupLocalStep(names)
    return DedupStep(names)
