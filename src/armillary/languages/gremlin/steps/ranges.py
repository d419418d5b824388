"""limit(), range(), skip(), tail() and sample(), on the whole stream or on one list."""

from __future__ import annotations

from collections import deque
from typing import Any

from armillary.languages.gremlin.by_modulators import IDENTITY, OneBy
from armillary.languages.gremlin.errors import compilation
from armillary.languages.gremlin.pipeline import Builder, Flow, GatheringStep, PlainStep, Scope, Step, after, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.tokens import Scope as ScopeToken
from armillary.languages.gremlin.traversers import MISSING, Batch
from armillary.languages.gremlin.values.comparing import map_key
from armillary.languages.gremlin.values.elements import Entry, Path, pairs
from armillary.languages.gremlin.values.typed_values import Set


class RangeStep(Step):
    """limit(n), range(low, high), skip(n): traversers from `low` up to, but not including, `high`."""

    def __init__(self, name: str, low: int, high: int) -> None:
        if low > high and high != -1:
            raise compilation(f"Not a legal range: [{low}, {high}].")
        self.name = name
        self.low = max(low, 0)
        self.high = high  # -1: open

    def describe(self) -> str:
        return f"{self.name}({self.low},{self.high})"

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        state: list[int] = scope.state(self, lambda: [0])
        low, high = self.low, self.high

        async def pull() -> Batch:
            while high == -1 or state[0] < high:
                batch = await source()
                if not batch:
                    return []
                found: Batch = []
                for each in batch:
                    before = state[0]
                    if high != -1 and before >= high:
                        break
                    after = before + each.bulk
                    state[0] = after
                    kept = (after if high == -1 else min(after, high)) - max(before, low)
                    if kept > 0:
                        each.bulk = kept
                        found.append(each)
                if found:
                    return found
            return []

        return pull


class LocalRangeStep(PlainStep):
    """The same on one list, map or path. limit(), range() and skip() give a single element without a list around it."""

    def __init__(self, name: str, low: int, high: int) -> None:
        if low > high and high != -1:
            raise compilation(f"Not a legal range: [{low}, {high}].")
        self.name = name
        self.low = low
        self.high = high

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            value = self._part(each.value)
            if value is not MISSING:
                found.append(each.to(value))
        return found

    def bounds(self, size: int) -> tuple[int, int]:
        return self.low, size if self.high == -1 else min(self.high, size)

    def _part(self, value: Any) -> Any:
        if isinstance(value, dict):
            entries = list(pairs(value))
            low, high = self.bounds(len(entries))
            return {map_key(key): each for key, each in entries[low:high]}
        if isinstance(value, Path):
            value = value.objects
        if not isinstance(value, list):
            return value
        low, high = self.bounds(len(value))
        part = value[low:high]
        if self._is_single():
            return part[0] if part else MISSING
        return Set(part) if isinstance(value, Set) else part

    def _is_single(self) -> bool:
        return self.high != -1 and self.high - self.low == 1


class LocalTailStep(LocalRangeStep):
    def __init__(self, count: int) -> None:
        super().__init__("tail", 0, count)

    def bounds(self, size: int) -> tuple[int, int]:
        return max(0, size - self.high), size


def _count(arguments: Arguments) -> int:
    count = arguments.count()
    if count < 0 and arguments.step != "range":
        raise compilation(f"Not a legal range: {arguments.step}({count}).")
    return count


@builds("limit", "skip", "range")
def _range(builder: Builder, arguments: Arguments) -> Step:
    step = LocalRangeStep if arguments.scope() is ScopeToken.local else RangeStep
    if arguments.step == "range":
        low, high = _count(arguments), _count(arguments)
        if low < 0 or high < -1:
            raise compilation(f"Not a legal range: [{low}, {high}].")
        return step("range", low, high)
    count = _count(arguments)
    return step("limit", 0, count) if arguments.step == "limit" else step("skip", count, -1)


class TailStep(GatheringStep):
    name = "tail"

    def __init__(self, count: int) -> None:
        self.count = count

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        async def make() -> Batch:
            last: deque[Any] = deque()
            total = 0
            while batch := await source():
                for each in batch:
                    last.append(each)
                    total += each.bulk
                    while last and total - last[0].bulk >= self.count:
                        total -= last.popleft().bulk
                await run.breathe()
            if total > self.count and last:
                last[0].bulk -= total - self.count
            return list(last)

        return after(make)


@builds("tail")
def _tail(builder: Builder, arguments: Arguments) -> Step:
    scope = arguments.scope()
    count = _count(arguments) if len(arguments) else 1
    return LocalTailStep(count) if scope is ScopeToken.local else TailStep(count)


class SampleStep(OneBy, GatheringStep):
    """sample(n): a random choice without repetition, weighted by by()."""

    name = "sample"

    def __init__(self, count: int) -> None:
        self.count = count

    async def gathered(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        by = self.by or IDENTITY
        await by.prepare(batch, run)
        weighted: list[tuple[float, Any]] = []
        for each in batch:
            weight: Any = 1.0
            if self.by is not None:
                weight = by.read(each.value, run) if by.is_plain else await by.value(each, run)
                if weight is MISSING:
                    continue
            weighted.append((float(weight) if isinstance(weight, int | float) else 1.0, each))
        found: Batch = []
        while weighted and sum(each.bulk for each in found) < self.count:
            total = sum(weight * each.bulk for weight, each in weighted)
            throw = run.random() * total
            chosen = len(weighted) - 1
            for at, (weight, each) in enumerate(weighted):
                throw -= weight * each.bulk
                if throw < 0:
                    chosen = at
                    break
            weight, each = weighted[chosen]
            found.append(each.copy(1))
            if each.bulk > 1:
                each.bulk -= 1
            else:
                del weighted[chosen]
        return found


class LocalSampleStep(PlainStep):
    name = "sample"

    def __init__(self, count: int) -> None:
        self.count = count

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            value = each.value
            if isinstance(value, dict):
                entries = self._some([Entry(key, one) for key, one in pairs(value)], run)
                found.append(each.to({map_key(key): one for key, one in entries}))
            else:
                found.append(each.to(self._some(value, run) if isinstance(value, list) else value))
        return found

    def _some(self, values: list[Any], run: Run) -> list[Any]:
        left = list(values)
        if len(left) <= self.count:
            return left
        found: list[Any] = []
        while len(found) < self.count:
            found.append(left.pop(run.random_below(len(left))))
        return found


@builds("sample")
def _sample(builder: Builder, arguments: Arguments) -> Step:
    scope = arguments.scope()
    count = _count(arguments)
    return LocalSampleStep(count) if scope is ScopeToken.local else SampleStep(count)
