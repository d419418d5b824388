"""The predicates that filters are compiled to: predicates of a value, from the operators on a field, and predicates of
a document.

A predicate of a document also gives the array element that made it hold, for the positional `$` of updates and
projections; negations give none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.languages.mongo import paths
from armillary.model.bson.bson_values import MISSING, Document, key_set
from armillary.work import spend

_MANY = 64

Test = Callable[[Any], bool]
Holds = Callable[[Document], bool]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A test of one value; at a path it holds if it holds for any value there."""

    test: Test
    unwinds: bool = True  # whether the elements of an array at the end of the path are tested too
    element: Callable[[Any], int | None] | None = None  # the index of the element that meets the test


@dataclass(frozen=True, slots=True)
class Not:
    part: ValuePredicate


@dataclass(frozen=True, slots=True)
class Both:
    parts: tuple[ValuePredicate, ...]
    values: Sequence[Any] = ()  # the values, if each part is equality with one of them
    key: Callable[[Any], Any] | None = None  # comparison key for these values


ValuePredicate = Leaf | Not | Both


def of_value(predicate: ValuePredicate) -> Test:
    """The predicate as a test of a value without a path, for $elemMatch: elements of arrays are not tested."""
    match predicate:
        case Leaf():
            return predicate.test
        case Not():
            inner = of_value(predicate.part)
            return lambda value: not inner(value)
    tests = [of_value(part) for part in predicate.parts]
    return tests[0] if len(tests) == 1 else (lambda value: all(test(value) for test in tests))


class Node:
    """A predicate of documents."""

    __slots__ = ("holds",)

    def __init__(self, holds: Holds) -> None:
        self.holds = holds

    def position(self, document: Document, array: str) -> int | None:
        """The index of the element that made it hold; of the array `array`, if the predicate is about several."""
        return None


class AtPath(Node):
    __slots__ = ("_leaf", "_parts", "path")

    def __init__(self, path: str, leaf: Leaf) -> None:
        super().__init__(paths.predicate(path, leaf.test, unwinds=leaf.unwinds))
        self.path = path
        self._parts = paths.split(path)
        self._leaf = leaf

    def position(self, document: Document, array: str) -> int | None:
        leaf = self._leaf
        found = paths.position(document, self._parts, leaf.test, unwinds=leaf.unwinds)
        if found is None and leaf.element is not None:
            value: Any = document
            for part in self._parts:
                if type(value) is not dict:
                    return None
                value = value.get(part)
            return leaf.element(value)
        return found


class AllOf(Node):
    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(_all([node.holds for node in nodes]))
        self._nodes = nodes

    def position(self, document: Document, array: str) -> int | None:
        found: int | None = None
        for node in self._nodes:
            here = node.position(document, array)
            if here is not None:
                if isinstance(node, AtPath) and _is_about(node.path, array):
                    return here
                found = here
        return found


class AnyOf(Node):
    """`$or`. As in MongoDB it gives an element only if all its parts are about the same field, as with `$in`."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(_any([node.holds for node in nodes]))
        is_one_field = len({node.path if isinstance(node, AtPath) else id(node) for node in nodes}) == 1
        self._nodes = nodes if is_one_field else ()

    def position(self, document: Document, array: str) -> int | None:
        return next((node.position(document, array) for node in self._nodes if node.holds(document)), None)


class HasAll(Node):
    """`$all` with many values: the values at the path are visited once and compared by hash."""

    __slots__ = ("_parts", "_path")

    def __init__(self, path: str, values: Sequence[Any], parts: Sequence[Leaf], key: Callable[[Any], Any]) -> None:
        self._path, self._parts = path, parts
        wanted = key_set(values, key)

        def holds(document: Document) -> bool:
            missing = set(wanted)

            def note(value: Any) -> bool:
                missing.discard(key(None if value is MISSING else value))
                return not missing

            return paths.predicate(path, note)(document)

        super().__init__(holds)

    def position(self, document: Document, array: str) -> int | None:
        return AllOf([AtPath(self._path, part) for part in self._parts]).position(document, array)


def negated(node: Node) -> Node:
    holds = node.holds
    return Node(lambda document: not holds(document))


def at_path(path: str, predicate: ValuePredicate) -> Node:
    match predicate:
        case Leaf():
            return AtPath(path, predicate)
        case Not():
            return negated(at_path(path, predicate.part))
        case Both(values=[*values]) if predicate.key is not None:
            return HasAll(path, values, [part for part in predicate.parts if isinstance(part, Leaf)], predicate.key)
    return all_of([at_path(path, part) for part in predicate.parts])


def all_of(nodes: Sequence[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else AllOf(nodes)


def _is_about(path: str, array: str) -> bool:
    return path == array or path.startswith(array + ".")


def _all(parts: Sequence[Holds]) -> Holds:
    if not parts:
        return lambda _document: True
    if len(parts) == 2:
        first, second = parts
        return lambda document: first(document) and second(document)

    if len(parts) > _MANY:
        return lambda document: _decided(parts, document, ends_with=False)

    def holds(document: Document) -> bool:
        return all(part(document) for part in parts)

    return holds


def _decided(parts: Sequence[Holds], document: Document, *, ends_with: bool) -> bool:
    """`_all` and `_any` for very many parts, metered."""
    for place, part in enumerate(parts):
        if place % _MANY == 0:
            spend(4 * _MANY)
        if part(document) is ends_with:
            return ends_with
    return not ends_with


def _any(parts: Sequence[Holds]) -> Holds:
    if len(parts) > _MANY:
        return lambda document: _decided(parts, document, ends_with=True)

    def holds(document: Document) -> bool:
        return any(part(document) for part in parts)

    return holds
