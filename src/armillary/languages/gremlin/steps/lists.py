"""The list steps of TinkerPop 3.7: combine(), merge(), difference(), disjunct(), intersect(), product(), conjoin()."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary import limits
from armillary.languages.gremlin.errors import compilation, execution, too_much
from armillary.languages.gremlin.pipeline import Builder, Pipeline, PlainStep, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.traversers import Batch
from armillary.languages.gremlin.values.comparing import identity, kind_of, map_key, shown, text_of, unique
from armillary.languages.gremlin.values.elements import Path, pairs
from armillary.work import make, spend


def _values_of(value: Any) -> list[Any] | None:
    if isinstance(value, Path):
        return value.objects
    return value if isinstance(value, list) else None


def _incoming(value: Any, step: str) -> list[Any]:
    found = _values_of(value)
    if found is None:
        if value is None:
            raise execution(f"Incoming traverser for {step} step can't be null.")
        raise execution(
            f"{step} step can only take an array or an Iterable type for incoming traversers, "
            f"encountered {kind_of(value)}."
        )
    return found


class ListStep(WaitingStep):
    """A step that combines the incoming list with another list."""

    def __init__(self, name: str, other: Any) -> None:
        self.name = name
        self.other = other

    def children(self) -> Iterable[Pipeline]:
        return (self.other,) if isinstance(self.other, Pipeline) else ()

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found = []
        for each in batch:
            other = self.other
            if isinstance(other, Pipeline):
                first = await other.first(each, run)
                other = first.value if first is not None else None
            found.append(each.to(self._of(each.value, other)))
        return found

    def _of(self, value: Any, other: Any) -> Any:
        name = self.name
        if name == "merge" and isinstance(value, dict):
            if not isinstance(other, dict):
                raise execution(
                    f"merge step expected provided argument to evaluate to a Map, encountered {kind_of(other)}."
                )
            return {**value, **{map_key(key): each for key, each in pairs(other)}}
        mine = _incoming(value, name)
        others = _values_of(other)
        if others is None:
            raise self._refusal(other)
        size = len(mine) * len(others) if name == "product" else len(mine) + len(others)
        if size > limits.GREMLIN_LIST_MAX:
            raise too_much(f"A list has at most {limits.GREMLIN_LIST_MAX} values.")
        make(8 * size if name != "product" else 80 * size)
        spend(size // 4)
        if name == "combine":
            return [*mine, *others]
        if name == "merge":
            return unique([*mine, *others])
        if name == "product":
            made: list[Any] = []
            for one in mine:
                spend(len(others))
                made += [[one, another] for another in others]
            return made
        theirs = {identity(each) for each in others}
        if name == "difference":
            return unique(each for each in mine if identity(each) not in theirs)
        if name == "intersect":
            return unique(each for each in mine if identity(each) in theirs)
        ours = {identity(each) for each in mine}
        return unique(
            [each for each in mine if identity(each) not in theirs]
            + [each for each in others if identity(each) not in ours]
        )

    def _refusal(self, other: Any) -> Exception:
        if not isinstance(self.other, Pipeline):
            return execution(f"{self.name} step type mismatch: expected argument to be Iterable but got Map.")
        met = "not null" if other is None else f"encountered {kind_of(other)}"
        return execution(f"traversal argument for {self.name} step must yield an iterable type, {met}.")


@builds("combine", "merge", "difference", "disjunct", "intersect", "product")
def _list(builder: Builder, arguments: Arguments) -> Step:
    value = arguments.take()
    if isinstance(value, Traversal):
        return ListStep(arguments.step, builder.pipeline(value))
    if value is None:
        raise compilation(f"Argument provided for {arguments.step} step can't be null.")
    if not isinstance(value, list | dict):
        raise compilation(
            f"{arguments.step} step can only take an array or an Iterable as an argument, encountered {shown(value)}."
        )
    return ListStep(arguments.step, value)


class ConjoinStep(PlainStep):
    name = "conjoin"

    def __init__(self, separator: str) -> None:
        self.separator = separator

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found = []
        for each in batch:
            spend(6 * len(_incoming(each.value, "conjoin")))
            texts = [text_of(one) for one in _incoming(each.value, "conjoin") if one is not None]
            if sum(map(len, texts)) + len(self.separator) * len(texts) > limits.GREMLIN_TEXT_CHARACTERS_MAX:
                raise too_much(f"A text has at most {limits.GREMLIN_TEXT_CHARACTERS_MAX} characters.")
            make(sum(map(len, texts)) + len(self.separator) * len(texts))
            found.append(each.to(self.separator.join(texts)))
        return found


@builds("conjoin")
def _conjoin(builder: Builder, arguments: Arguments) -> Step:
    return ConjoinStep(arguments.text())
