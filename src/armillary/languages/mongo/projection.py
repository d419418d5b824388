"""Projections of `find`: fields included or excluded, `$slice`, `$elemMatch`, the positional `$`, computed fields,
scores.

Included fields stay in the document's order; computed ones follow in the order of the projection. The `$project` stage
uses this module too, without `$`, `$slice` and `$elemMatch`, which only `find` has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.compiling import check_path, compile_over_documents, is_operator
from armillary.languages.mongo.filters.matching import Matcher, compile_filter
from armillary.languages.mongo.filters.value_types import truth, whole_number
from armillary.languages.mongo.paths import Parts, split, with_value
from armillary.model.bson.bson_values import MISSING, Document, is_number, shell_text
from armillary.work import spend

Projection = Callable[[Document], Document]

_COLLISION, _UNKNOWN_EXPRESSION, _NO_MATCH = 31249, 31325, 51246
_INCLUDE, _EXCLUDE, _COMPUTE, _SLICE, _ELEMENT, _META, _POSITION = range(7)
_SCORES: Final = ("searchScore", "vectorSearchScore")
_METADATA: Final = (
    "textScore",
    "randVal",
    "recordId",
    "sortKey",
    "indexKey",
    "geoNearDistance",
    "geoNearPoint",
    *_SCORES,
)


@dataclass(slots=True)
class _Tree:
    """The paths of a projection as a tree of field names; None at the end of a path."""

    children: dict[str, _Tree | None] = field(default_factory=dict)
    has_computed: bool = False  # a computed field is set below, even if the value here is not a document

    def add(self, parts: Parts, *, is_whole: bool = True) -> None:
        tree = self
        for part in parts[:-1]:
            below = tree.children.setdefault(part, _Tree())
            assert below is not None, "paths do not collide"
            below.has_computed |= not is_whole
            tree = below
        if is_whole:
            tree.children[parts[-1]] = None


def compile_projection(
    given: Any, context: Context, matcher: Matcher | None = None, *, is_stage: bool = False
) -> Projection:
    """A function that makes the projected document, which shares unchanged values with the original."""
    if type(given) is not dict:
        raise refusal(14, "The projection must be an object.")
    entries: list[tuple[int, str, Any]] = []
    _read(given, "", entries)
    _check_collisions([path for _, path, _ in entries])
    kinds = {kind for kind, _, _ in entries}
    if _POSITION in kinds and _ELEMENT in kinds:
        raise refusal(31255, "Cannot specify positional operator and $elemMatch.")
    keeps = _keeps(entries, is_stage)
    tree = _Tree()
    before: list[Projection] = []  # applied before fields are included or excluded
    computed: list[tuple[Parts, Callable[[Document], Any]]] = []
    keeps_id = True
    for kind, path, value in entries:
        parts = split(path)
        if path == "_id" and kind in (_INCLUDE, _EXCLUDE):
            keeps_id = kind == _INCLUDE
            continue
        if kind in (_INCLUDE, _EXCLUDE, _POSITION) or (kind == _SLICE and keeps):
            tree.add(parts)
        if kind == _POSITION:
            before.append(_positional(parts, matcher))
        elif kind == _SLICE:
            before.append(_slice(parts, value))
        elif kind == _ELEMENT:
            if not keeps:
                tree.add(parts)
            computed.append((parts, _element(path, value, context)))
        elif kind == _META:
            computed.append((parts, _meta(value, context, matcher)))
        elif kind == _COMPUTE:
            if keeps:
                tree.add(parts, is_whole=False)
            computed.append((parts, _compute(value, context)))
    if keeps == keeps_id and not any(parts[0] == "_id" for parts, _ in computed) and "_id" not in tree.children:
        tree.children["_id"] = None
    return _composed(_included if keeps else _excluded, tree, before, computed)


def _composed(
    take: Callable[[Document, _Tree], Document],
    tree: _Tree,
    before: list[Projection],
    computed: list[tuple[Parts, Callable[[Document], Any]]],
) -> Projection:
    if not before and not computed:
        return lambda document: take(document, tree)

    def project(document: Document) -> Document:
        changed = document
        for change in before:
            changed = change(changed)
        answer = take(changed, tree)
        for parts, evaluate in computed:
            value = evaluate(document)
            if value is not MISSING or len(parts) > 1:
                answer = with_value(answer, parts, value)
        return answer

    return project


# Reading.


def _read(given: Document, prefix: str, entries: list[tuple[int, str, Any]]) -> None:
    for name, value in given.items():
        path = prefix + name
        is_flag = type(value) is bool or is_number(value)
        if path.endswith(".$"):
            path = path.removesuffix(".$")
            if not is_flag:
                if type(value) is dict:
                    raise refusal(31271, "positional projection cannot be used with an expression or sub object")
                raise refusal(31308, "positional projection cannot be used with a literal")
            if not truth(value):
                raise refusal(31395, "positional projection cannot be used with exclusion")
            if any(kind == _POSITION for kind, _, _ in entries):
                raise refusal(31276, "Cannot specify more than one positional projection per query.")
            entries.append((_POSITION, path, value))
        elif ".$." in path:
            raise refusal(31394, "As of 4.4, it's illegal to specify positional operator in the middle of a path.")
        elif type(value) is dict:
            _read_object(path, value, entries)
        elif is_flag:
            entries.append((_INCLUDE if truth(value) else _EXCLUDE, path, value))
        else:
            entries.append((_COMPUTE, path, value))
        check_path(path)


def _read_object(path: str, value: Document, entries: list[tuple[int, str, Any]]) -> None:
    if not value:
        raise refusal(51270, f"An empty sub-projection is not a valid value. Found empty object at path {path}")
    operator = next(iter(value))
    operand = value[operator]
    if not operator.startswith("$"):
        _read(value, path + ".", entries)
    elif operator == "$slice" and _is_slice(operand):
        entries.append((_SLICE, path, operand))
    elif operator == "$elemMatch":
        if "." in path:
            raise refusal(31275, "Cannot use $elemMatch projection on a nested field.")
        entries.append((_ELEMENT, path, operand))
    elif operator == "$meta":
        entries.append((_META, path, operand))
    else:
        entries.append((_COMPUTE, path, value))


def _is_slice(operand: Any) -> bool:
    """Whether `$slice` is that of `find`, with one or two numbers. With an array first it is the aggregation
    expression.
    """
    if type(operand) is not list:
        return True
    return len(operand) < 2 or (len(operand) == 2 and is_number(operand[0]))


def _check_collisions(given: list[str]) -> None:
    taken: dict[str, bool] = {}  # by path: whether the path ends there
    for path in given:
        parts = split(path)
        for size in range(1, len(parts)):
            if taken.setdefault(".".join(parts[:size]), False):
                raise refusal(_COLLISION, f"Path collision at {path} remaining portion {'.'.join(parts[size:])}")
        if path in taken:
            raise refusal(_COLLISION + 1, f"Path collision at {path}")
        taken[path] = True


def _keeps(entries: list[tuple[int, str, Any]], is_stage: bool) -> bool:
    """Whether the projection includes fields or excludes them. One that does neither keeps the whole document, except
    that `$meta` counts as an included field in a stage.
    """
    decided: bool | None = None
    for kind, path, _ in entries:
        if kind in (_SLICE, _META, _ELEMENT) or (path == "_id" and kind in (_INCLUDE, _EXCLUDE)):
            continue
        keeps = kind != _EXCLUDE
        if decided is None:
            decided = keeps
        elif decided and not keeps:
            raise refusal(31254, f"Cannot do exclusion on field {path} in inclusion projection")
        elif keeps and not decided:
            if kind == _INCLUDE:
                raise refusal(31253, f"Cannot do inclusion on field {path} in exclusion projection")
            raise refusal(31252, "Cannot use expression other than $meta in exclusion projection")
    if decided is None:
        return any(
            kind == _ELEMENT or (kind == _META and is_stage) or (kind == _INCLUDE and path == "_id")
            for kind, path, _ in entries
        )
    return decided


# Fields.


def _included(document: Document, tree: _Tree) -> Document:
    children = tree.children
    answer: Document = {}
    spend(2 + len(document))
    for name, value in document.items():
        if name in children:
            below = children[name]
            kept = value if below is None else _included_value(value, below)
            if kept is not MISSING:
                answer[name] = kept
    return answer


def _included_value(value: Any, tree: _Tree) -> Any:
    if type(value) is dict:
        return _included(value, tree)
    if type(value) is list:
        spend(3 * len(value))
        kept = [_included_value(each, tree) for each in value]
        return [each for each in kept if each is not MISSING]
    return {} if tree.has_computed else MISSING


def _excluded(document: Document, tree: _Tree) -> Document:
    children = tree.children
    answer: Document = {}
    spend(2 + len(document))
    for name, value in document.items():
        if name not in children:
            answer[name] = value
        else:
            below = children[name]
            if below is not None:
                answer[name] = _excluded_value(value, below)
    return answer


def _excluded_value(value: Any, tree: _Tree) -> Any:
    if type(value) is dict:
        return _excluded(value, tree)
    return [_excluded_value(each, tree) for each in value] if type(value) is list else value


# Arrays.


def _changed(value: Any, parts: Parts, change: Callable[[list[Any]], list[Any]], *, is_first: bool) -> Any:
    """The value with an array on a path changed: the first on the way, or those at its end."""
    if type(value) is list:
        if is_first or not parts:
            return change(value)
        # Only one level of arrays: arrays inside arrays are not changed.
        return [_changed(each, parts, change, is_first=is_first) if type(each) is dict else each for each in value]
    if parts and type(value) is dict and parts[0] in value:
        return {**value, parts[0]: _changed(value[parts[0]], parts[1:], change, is_first=is_first)}
    return value


def _positional(parts: Parts, matcher: Matcher | None) -> Projection:
    array = ".".join(parts)

    def cut(document: Document) -> Document:
        def chosen(elements: list[Any]) -> list[Any]:
            index = None if matcher is None else matcher.first_match(document, array)
            if index is not None and index >= len(elements):
                raise refusal(
                    51247,
                    "Executor error during find command :: caused by :: positional operator '.$' element mismatch",
                )
            if index is None:
                raise refusal(
                    _NO_MATCH,
                    "Executor error during find command :: caused by :: positional operator '.$' couldn't find a "
                    "matching element in the array",
                )
            return [elements[index]]

        answer: Document = _changed(document, parts, chosen, is_first=True)
        return answer

    return cut


def _slice(parts: Parts, operand: Any) -> Projection:
    given = operand if type(operand) is list else [operand]
    if not 1 <= len(given) <= 2 or (type(operand) is list and len(given) == 1):
        raise refusal(28667, f"$slice takes a number or two of them, not {shell_text(operand)}")
    numbers = [whole_number(each) for each in given]
    if any(number is None for number in numbers):
        raise refusal(28667, f"First argument to $slice must be a number, but it is {shell_text(operand)}")
    first, count = numbers[0] or 0, (numbers[1] or 0) if len(numbers) == 2 else None
    if count is not None and count <= 0:
        raise refusal(28724, f"First argument to $slice must be an array, unless a positive limit follows: {count}")

    def sliced(elements: list[Any]) -> list[Any]:
        if count is None:
            return elements[:first] if first >= 0 else elements[first:]
        start = first if first >= 0 else max(0, len(elements) + first)
        return elements[start : start + count]

    def cut(document: Document) -> Document:
        answer: Document = _changed(document, parts, sliced, is_first=False)
        return answer

    return cut


def _element(name: str, operand: Any, context: Context) -> Callable[[Document], Any]:
    if type(operand) is not dict:
        raise refusal(31274, f"elemMatch: Invalid argument, object required, but got {shell_text(operand)}")
    matcher = compile_filter({name: {"$elemMatch": operand}}, context)

    def first(document: Document) -> Any:
        value = document.get(name)
        if type(value) is not list:
            return MISSING
        index = matcher.first_match({name: value})
        return MISSING if index is None else [value[index]]

    return first


# Computed fields.


def _compute(spec: Any, context: Context) -> Callable[[Document], Any]:
    if type(spec) is dict and not is_operator(name := next(iter(spec))):
        raise refusal(_UNKNOWN_EXPRESSION, f"Unknown expression {name}")
    return compile_over_documents(spec, context)


def _meta(operand: Any, context: Context, matcher: Matcher | None) -> Callable[[Document], Any]:
    if type(operand) is not str:
        raise refusal(17307, "$meta only supports string arguments")
    if operand not in _METADATA:
        raise refusal(17308, f"Unsupported argument to $meta: {shell_text(operand)}")
    if operand == "textScore" and matcher is not None and matcher.text is not None:
        return matcher.text.score
    if operand == "textScore" or operand in _SCORES:
        return compile_over_documents({"$meta": operand}, context)
    if operand in ("geoNearDistance", "geoNearPoint"):
        if matcher is None or matcher.near is None:
            raise refusal(40218, f"query requires {operand} metadata, but it is not available")
        nearest, place = matcher.near.nearest, 0 if operand == "geoNearDistance" else 1
        return lambda document: MISSING if (found := nearest(document)) is None else found[place]
    raise refusal(115, f"$meta: {operand} is not supported.")
