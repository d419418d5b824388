"""Query text to functions over documents: parse, check, emit Python source, compile it, and keep it by text.

`compile_query(text)` gives a CompiledQuery; `.bind(parameters)` gives what one execution needs: the condition that an
index can use, the filter and the projection. Parameters are values of the run, not of the source: one compiled form
serves all values of the same types. Reading items and paging are `query/operators.py`'s part.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from armillary import limits
from armillary.errors import bad_request
from armillary.languages.sql import runtime, tree
from armillary.languages.sql.check import Checked, check_query
from armillary.languages.sql.constants import Code, Constants, kind_of
from armillary.languages.sql.emit import Emitter
from armillary.languages.sql.filters import FilterReader
from armillary.languages.sql.lexer import query_error
from armillary.languages.sql.library.context import Context, detached_context
from armillary.languages.sql.parser import parse_filter, parse_query
from armillary.model.values import UNDEFINED, Value
from armillary.query.conditions import ALL, Condition

_A = TypeVar("_A")
_R = TypeVar("_R")

Predicate = Callable[[Any], Any]  # truthy exactly when the item is kept
Projection = Callable[[Any], Value]

_NAMESPACE: dict[str, Any] = {
    name: value for name, value in vars(runtime).items() if not name.startswith("_") and name != "annotations"
} | {"U": UNDEFINED}


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query with its parameters: everything that one execution needs."""

    condition: Condition
    predicate: Predicate | None  # None: every item is kept
    project: Projection | None  # None: SELECT *, the item as it is
    has_source: bool  # False: no FROM, exactly one row, whatever is stored

    def evaluate_over(self, documents: Iterable[dict[str, Any]]) -> list[Value]:
        """The rows over plain documents: how databases, containers, offers and the like are queried."""
        if not self.has_source:
            documents = [{}]
        predicate, project = self.predicate, self.project
        kept = documents if predicate is None else [document for document in documents if predicate(document)]
        if project is None:
            return list(kept)
        return [row for document in kept if (row := project(document)) is not UNDEFINED]


@dataclass(frozen=True, slots=True)
class _Variant:
    bind: Callable[[list[Value], Context], tuple[Predicate | None, Projection | None]]
    literals: list[Value]


class CompiledQuery:
    def __init__(self, checked: Checked) -> None:
        self.query = checked.query
        self.parameters = checked.parameters
        self._alias = checked.alias
        self._variants: dict[tuple[str, ...], _Variant] = {}

    def bind(self, parameters: Mapping[str, Value], context: Context | None = None) -> BoundQuery:
        values = self._values(parameters)
        kinds = tuple([kind_of(value) for value in values])
        variant = self._variants.get(kinds)
        if variant is None:
            if len(self._variants) >= limits.QUERY_VARIANTS_MAX:
                self._variants.clear()
            variant = self._variants[kinds] = _guarded(self._compile, kinds)
        predicate, project = variant.bind(values + variant.literals, context or detached_context())
        return BoundQuery(_guarded(self.condition, parameters), predicate, project, self._alias is not None)

    def condition(self, parameters: Mapping[str, Value]) -> Condition:
        where = self.query.where
        return ALL if where is None or self._alias is None else FilterReader(parameters).condition(where)

    def _values(self, parameters: Mapping[str, Value]) -> list[Value]:
        try:
            return [parameters[name] for name in self.parameters]
        except KeyError as missing:
            name = missing.args[0]
            message = f"Identifier '{name}' could not be resolved: the query uses this parameter but none is given."
            raise query_error("SC2001", message, 0, 0) from None

    def _compile(self, kinds: tuple[str, ...]) -> _Variant:
        constants = Constants(self.parameters, kinds)
        namespace = dict(_NAMESPACE)
        preamble: list[str] = []
        functions: list[str] = []
        where = self.query.where
        if where is not None:
            emitter = Emitter(constants, namespace, [where])
            functions += _function("predicate", emitter, emitter.truth(where))
            preamble += emitter.preamble
        items = self.query.select.items
        if items and not self._is_whole():
            emitter = Emitter(constants, namespace, [item.expression for item in items])
            functions += _function("project", emitter, self._row(emitter))
            preamble += emitter.preamble
        used = [f"c{place} = C[{place}]" for place in sorted(constants.used)]
        lines = ["predicate = project = None", *used, *preamble, *functions, "return predicate, project"]
        source = "def bind(C, x):\n" + "".join([f"    {line}\n" for line in lines])
        exec(compile(source, "<query>", "exec"), namespace)  # noqa: S102 (of our own making: names and places only)
        return _Variant(namespace["bind"], constants.literals)

    def _is_whole(self) -> bool:
        """SELECT VALUE c is SELECT *."""
        select = self.query.select
        return select.kind == "VALUE" and isinstance(select.items[0].expression, tree.Name)

    def _row(self, emitter: Emitter) -> Code:
        select = self.query.select
        if select.kind == "VALUE":
            return emitter.value(select.items[0].expression)
        start, end = select.start, select.end
        pairs = tuple(zip(item_names(select), [item.expression for item in select.items], strict=True))
        return emitter.made_object(tree.ObjectLiteral(start, end, pairs))


def item_names(select: tree.Select) -> list[str]:
    """The property names of a SELECT list: the alias, else the last step of a path, else $1, $2, …"""
    names: list[str] = []
    unnamed = 0
    for item in select.items:
        expression = item.expression
        if item.alias is not None:
            names.append(item.alias)
        elif isinstance(expression, (tree.Member, tree.Name)):
            names.append(expression.name)
        else:
            unnamed += 1
            names.append(f"${unnamed}")
    return names


def _function(name: str, emitter: Emitter, result: Code) -> list[str]:
    return [f"def {name}(d):", *[f"    {line}" for line in emitter.statements], f"    return {result.source}"]


def _guarded(fn: Callable[[_A], _R], argument: _A) -> _R:
    """The depth limit bounds the recursion per bracket, not per node inside it, nor does it know how deep the caller
    already is. What still does not fit is refused like everything too deep; Python's frames unwind cleanly."""
    try:
        return fn(argument)
    except RecursionError:
        message = "The query nests too many expressions; simplify it."
        raise query_error("SC1001", message, 0, 0) from None


class _Cache:
    """Compiled queries by text, the least recently used forgotten first; bounded by number and by length of text."""

    def __init__(self, parse: Callable[[str], tree.Query]) -> None:
        self._parse = parse
        self._kept: OrderedDict[str, CompiledQuery] = OrderedDict()
        self._characters = 0

    def get(self, text: str) -> CompiledQuery:
        found = self._kept.get(text)
        if found is not None:
            self._kept.move_to_end(text)
            return found
        compiled = _guarded(self._compile, text)
        self._kept[text] = compiled
        self._characters += len(text)
        while len(self._kept) > limits.QUERY_CACHE_ENTRIES or self._characters > limits.QUERY_CACHE_CHARACTERS:
            oldest, _ = self._kept.popitem(last=False)
            self._characters -= len(oldest)
        return compiled

    def _compile(self, text: str) -> CompiledQuery:
        return CompiledQuery(check_query(self._parse(text)))


_queries = _Cache(parse_query)
_filters = _Cache(parse_filter)


def compile_query(text: str) -> CompiledQuery:
    _check_text(text)
    return _queries.get(text)


def compile_filter(text: str) -> CompiledQuery:
    """The condition of a patch: `FROM c WHERE …`. Its bound form has a predicate and no use for a projection."""
    _check_text(text)
    return _filters.get(text)


def parse_parameters(given: Any) -> dict[str, Value]:
    """The `parameters` of a query request, `[{"name": "@p", "value": …}]`; absent, null and empty are the same."""
    if given is None:
        return {}
    if not isinstance(given, list):
        raise bad_request("The parameters of a query must be an array of objects with a name and a value.")
    parameters: dict[str, Value] = {}
    for entry in given:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name.startswith("@"):
            raise bad_request("Each parameter of a query must be an object with a name that begins with '@'.")
        unknown = entry.keys() - {"name", "value"}
        if unknown:
            raise bad_request(f"The parameter '{name}' has the unknown property '{min(unknown)}'.")
        if name in parameters:
            raise bad_request(f"The parameter '{name}' is given more than once.")
        # JavaScript leaves out a value that is undefined.
        value = entry.get("value", UNDEFINED)
        if value.__class__ in (list, dict):
            _check_depth(name, value)
        parameters[name] = value
    return parameters


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise bad_request("The query must be a string.")
    if len(text) > limits.QUERY_TEXT_BYTES_MAX or (
        len(text) * 4 > limits.QUERY_TEXT_BYTES_MAX
        and len(text.encode("utf-8", "surrogatepass")) > limits.QUERY_TEXT_BYTES_MAX
    ):
        raise bad_request(f"The query text is longer than {limits.QUERY_TEXT_BYTES_MAX} bytes.")


def _check_depth(name: str, value: Value) -> None:
    level = [value]
    for _ in range(limits.QUERY_PARAMETER_DEPTH_MAX):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)  # type: ignore[union-attr]
            if child.__class__ in (list, dict)
        ]
        if not level:
            return
    raise bad_request(f"The parameter '{name}' nests more than {limits.QUERY_PARAMETER_DEPTH_MAX} levels.")
