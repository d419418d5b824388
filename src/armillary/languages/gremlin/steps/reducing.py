"""Steps that reduce their input to one value: count(), sum(), min(), max(), mean(), fold(), on the whole stream or on
one list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from armillary.languages.gremlin.errors import execution
from armillary.languages.gremlin.pipeline import Builder, Flow, PlainStep, Scope, Step, after, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.tokens import Operator
from armillary.languages.gremlin.syntax.tokens import Scope as ScopeToken
from armillary.languages.gremlin.traversers import NO_SACK, Batch
from armillary.languages.gremlin.values import numbers
from armillary.languages.gremlin.values.comparing import compare, is_nan, kind_of, shown
from armillary.languages.gremlin.values.elements import Path, Tree
from armillary.languages.gremlin.values.typed_values import BigInt, Float32, Long, Set
from armillary.work import made, release, spend


class ReducingStep(Step):
    """Reduces all of the input to one value; gives nothing if there is no value."""

    is_barrier = True
    keeps = False  # whether the value holds the input, whose memory is counted then

    def initial(self) -> Any:
        raise NotImplementedError

    def add(self, state: Any, batch: Batch, run: Run) -> Any:
        raise NotImplementedError

    def result(self, state: Any) -> tuple[Any, ...]:
        """The value, if there is one."""
        return (state,)

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        async def make() -> Batch:
            state = self.initial()
            before_bytes = made()
            while batch := await source():
                spend(3 * len(batch))
                state = self.add(state, batch, run)
                if not self.keeps:
                    release(before_bytes)
                await run.breathe()
            found = []
            for value in self.result(state):
                traverser = run.start(value)
                traverser.sack = run.sack_initial if run.sack_initial is not NO_SACK else NO_SACK
                found.append(traverser)
            return found

        return after(make)


class CountStep(ReducingStep):
    name = "count"

    def initial(self) -> Any:
        return 0

    def add(self, state: Any, batch: Batch, run: Run) -> Any:
        return state + sum(each.bulk for each in batch)

    def result(self, state: Any) -> tuple[Any, ...]:
        return (Long(state),)


_NULL: Final = object()  # only nulls so far


class NumberStep(ReducingStep):
    """sum, min, max, mean."""

    def __init__(self, name: str) -> None:
        self.name = name

    def initial(self) -> Any:
        return None

    def add(self, state: Any, batch: Batch, run: Run) -> Any:
        name = self.name
        for each in batch:
            value = each.value
            if value is None:
                state = _NULL if state is None else state
                continue
            if state is _NULL:
                state = None
            if name in ("sum", "mean"):
                if state is None:
                    state = numbers.Total()
                state.add(value, each.bulk, f"{name}()")
            elif state is None:
                _comparable(value, name)
                state = value
            else:
                state = numbers.lesser(state, value) if name == "min" else numbers.greater(state, value)
        return state

    def result(self, state: Any) -> tuple[Any, ...]:
        if state is None or state is _NULL:
            return () if state is None else (None,)
        if isinstance(state, numbers.Total):
            return (state.mean if self.name == "mean" else _widened(state.result),)
        return (state,)


def _widened(number: Any) -> Any:
    """The sum over the stream is at least a long or a double, because values are multiplied by bulks."""
    if isinstance(number, int):
        return number if isinstance(number, BigInt) else Long(number)
    return float(number) if isinstance(number, Float32) else number


def _comparable(value: Any, name: str) -> None:
    if compare(value, value) is None and not is_nan(value):
        raise execution(f"{name}() cannot compare {kind_of(value)} {shown(value):.60}.")


class FoldStep(ReducingStep):
    name = "fold"
    keeps = True

    def __init__(self, seed: Any = None, operation: Callable[[Any, Any], Any] | None = None) -> None:
        self.seed = seed
        self.operation = operation

    def initial(self) -> Any:
        return list(self.seed or ()) if self.operation is None else self.seed

    def add(self, state: Any, batch: Batch, run: Run) -> Any:
        if self.operation is None:
            run.hold_elements(batch)
        for each in batch:
            if self.operation is None:
                run.hold(each.bulk - 1)
                if each.bulk == 1:
                    state.append(each.value)
                else:
                    state.extend([each.value] * each.bulk)
            else:
                for _ in range(each.bulk):
                    spend(10)
                    state = self.operation(state, each.value)
        return state


@builds("fold")
def _fold(builder: Builder, arguments: Arguments) -> Step:
    if not len(arguments):
        return FoldStep()
    seed = arguments.take()
    operator = arguments.token(Operator)
    if operator is Operator.addAll and isinstance(seed, list) and not isinstance(seed, Set):
        return FoldStep(seed)  # addAll to a list appends every value as one member
    return FoldStep(seed, numbers.OPERATIONS[operator])


class LocalNumberStep(PlainStep):
    """count(local), sum(local) and the others: on the list of one traverser."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        for each in batch:
            if self.name == "count":
                found.append(each.to(Long(size_of(each.value))))
                continue
            values = values_in(each.value)
            if values is None:
                # The sum, minimum, maximum and mean of a single number are the number.
                values = [each.value]
            spend(8 * len(values))
            result = _LOCAL[self.name](values)
            if result is not None or (values and self.name in ("min", "max", "sum", "mean") and None in values):
                found.append(each.to(result))
        return found


def size_of(value: Any) -> int:
    if isinstance(value, list | dict):
        return len(value)
    if isinstance(value, Path):
        return len(value.objects)
    if isinstance(value, Tree):
        return len(value.branches)
    return 1


def values_in(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, Path):
        return value.objects
    return None


def _each_once(values: Iterable[Any]) -> Iterable[tuple[Any, int]]:
    return ((value, 1) for value in values)


def _extreme(choose: Callable[[Any, Any], Any], name: str) -> Callable[[list[Any]], Any]:
    def find(values: list[Any]) -> Any:
        result: Any = None
        for value in values:
            if value is None:
                continue
            _comparable(value, name)
            result = value if result is None else choose(result, value)
        return result

    return find


_LOCAL: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "sum": lambda values: numbers.total(_each_once(values)).result,
    "mean": lambda values: numbers.total(_each_once(values), "mean()").mean,
    "min": _extreme(numbers.lesser, "min"),
    "max": _extreme(numbers.greater, "max"),
}


@builds("count", "sum", "min", "max", "mean")
def _reduce(builder: Builder, arguments: Arguments) -> Step:
    if arguments.scope() is ScopeToken.local:
        return LocalNumberStep(arguments.step)
    return CountStep() if arguments.step == "count" else NumberStep(arguments.step)
