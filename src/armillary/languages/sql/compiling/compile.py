"""Compiles query texts to Python functions over documents: parse, check, emit Python source, compile it, and cache the
result by text.

`compile_query(text)` returns a CompiledQuery; `.bind(parameters)` returns what one execution needs: the condition for
the index, the filter and the projection. Parameters are bound at execution, so one compiled variant serves all values
of the same types. Choosing an access path is `query/access/access_path.py`'s part, executing and paging
`query/execution.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from armillary import limits
from armillary.errors import bad_request
from armillary.languages.sql.compiling import runtime
from armillary.languages.sql.compiling.blocks import StageCode, emit_order, emit_stages
from armillary.languages.sql.compiling.constants import Constants, kind_of
from armillary.languages.sql.compiling.emit_context import EmitContext
from armillary.languages.sql.compiling.index_conditions import KnownPaths, filter_of
from armillary.languages.sql.compiling.query_recipes import Computed as Computed
from armillary.languages.sql.compiling.query_recipes import QueryOrigin, QueryRecipe, QuerySource, TextKind
from armillary.languages.sql.compiling.score_ranking import ScoreRanking
from armillary.languages.sql.library.context import Context, detached_context
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.check import Checked, check_count, check_query, not_yet
from armillary.languages.sql.syntax.expressions import too_many_operators
from armillary.languages.sql.syntax.lexer import query_error
from armillary.languages.sql.syntax.order_by_rank import Component, components_of, is_ranked
from armillary.languages.sql.syntax.paths import has_container, item_path, scope_of
from armillary.languages.sql.syntax.rewrite import with_computed
from armillary.languages.sql.syntax.walk import is_aggregated
from armillary.model.indexes.index_paths import path_text
from armillary.model.values import UNDEFINED, Value
from armillary.query.aggregates import AGGREGATES
from armillary.query.compiled_cache import CompiledCache
from armillary.query.conditions import Condition
from armillary.query.operators import evaluate
from armillary.query.selection import Grouping, Meter, Ordering, OrderKey, Selection, Stage
from armillary.work import spend

_A = TypeVar("_A")
_R = TypeVar("_R")

Predicate = Callable[[Any], Any]  # truthy exactly when the item is kept
Projection = Callable[[Any], Value]

# Work units for each character: of a text that is checked, of a text whose filter is translated to index conditions,
# and of source that Python compiles.
_CHECK_UNITS, _FILTER_UNITS, _SOURCE_UNITS = 1, 2, 4
_LONG = 2_048  # characters; shorter texts are not charged for

_ENVELOPE = (None, "orderByItems", "payload")  # aliases of the columns in a client's query for one partition

_NAMESPACE: dict[str, Any] = {
    name: value for name, value in vars(runtime).items() if not name.startswith("_") and name != "annotations"
} | {"U": UNDEFINED}


class UserFunctions(Protocol):
    """The user-defined functions of a container, called by queries and implemented by `scripts/functions.py`."""

    def check_function(self, name: str) -> None:
        """Called for each function that a query uses, before it runs. Raises a Failure if it does not exist."""

    async def ready(self) -> None:
        """Prepare for calls; awaited before the query runs."""

    def call_function(self, name: str, arguments: Sequence[Value]) -> Value:
        """Call a function. Raises a Failure if it does not exist, throws, or exceeds its time limit."""


class Run(Meter):
    """One execution of a query, as generated code sees it: counts the calls, rows and memory."""

    __slots__ = ("_functions",)

    def __init__(self, functions: UserFunctions | None, names: Iterable[str]) -> None:
        super().__init__()
        self._functions = functions
        for name in names:
            if functions is None:
                raise not_yet(f"The user-defined function udf.{name}")
            functions.check_function(name)

    def call_user_function(self, name: str, arguments: Sequence[Value]) -> Value:
        assert self._functions is not None, "the constructor refuses such queries"
        if any(argument is UNDEFINED for argument in arguments):
            return UNDEFINED
        self.user_calls += 1
        return self._functions.call_function(name, arguments)


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query with its parameters: everything that one execution needs."""

    selection: Selection
    has_source: bool  # False: the query reads nothing from the container
    query: tree.Query  # as executed
    original: tree.Query  # as written, for plans: computed properties are not replaced
    parameters: Mapping[str, Value]
    context: Context
    text_without_filter: str | None = None  # of a client's query for one partition; its continuations are bound to it

    @property
    def condition(self) -> Condition:
        return self.selection.condition

    @property
    def predicate(self) -> Predicate | None:
        return self.selection.stages[0].predicate

    @property
    def project(self) -> Projection | None:
        return self.selection.stages[0].project

    def evaluate_over(self, documents: Iterable[dict[str, Any]]) -> list[Value]:
        """The rows over documents in memory: for queries of databases, containers, offers and other resources."""
        return evaluate(self.selection, documents if self.has_source else [{}])


@dataclass(frozen=True, slots=True)
class _Variant:
    bind: Callable[[list[Value], Context, Run], tuple[Any, ...]]
    literals: list[Value]
    stages: list[StageCode]


class CompiledQuery:
    def __init__(self, checked: Checked, computed: Mapping[str, tree.Query], source: QuerySource) -> None:
        text = source.text
        self.source = source
        self.query = _without_idle_order(with_computed(checked.query, computed))
        self.original = checked.query
        self.parameters = checked.parameters
        self.has_source = has_container(self.query)
        self._user_functions = checked.user_functions
        self._text_without_filter = _text_without_filter(text, self.original)
        self._order_keys = _order_keys(self.query)
        self._components: tuple[Component, ...] = ()
        if is_ranked(self.query):
            self._components = components_of(self.query, scope_of(self.query, {}, is_outermost=True))
        self._variants: dict[tuple[str, ...], _Variant] = {}
        self._paths = KnownPaths()
        self._size = len(text) if len(text) > _LONG else 0

    @property
    def calls_functions(self) -> bool:
        """Whether it calls user-defined functions."""
        return bool(self._user_functions)

    def bind(
        self,
        parameters: Mapping[str, Value],
        context: Context | None = None,
        functions: UserFunctions | None = None,
    ) -> BoundQuery:
        values = self._values(parameters)
        kinds = tuple([kind_of(value) for value in values])
        variant = self._variants.get(kinds)
        if variant is None:
            if len(self._variants) >= limits.QUERY_VARIANTS_MAX:
                self._variants.clear()
            variant = self._variants[kinds] = _guarded(self._compile, kinds)
        run = Run(functions, self._user_functions)
        context = context or detached_context()
        made = variant.bind(values + variant.literals, context, run)
        order, *functions_made = made
        stages = [_stage(code, functions_made[4 * place : 4 * place + 4]) for place, code in enumerate(variant.stages)]
        is_planar = context.is_planar
        spend(self._size * _FILTER_UNITS)
        condition, is_exact = _guarded(
            lambda given: filter_of(self.query, given, self._paths, is_planar=is_planar), parameters
        )
        skip, take = self._counts(parameters)
        selection = Selection(
            condition,
            tuple(stages),
            Ordering(self._order_keys, order) if order is not None and not self._components else None,
            self._ranking(order, parameters, context) if self._components else None,
            skip,
            take,
            is_exact,
            run,
            origin=QueryOrigin(self.source, parameters, context),
        )
        return BoundQuery(
            selection, self.has_source, self.query, self.original, parameters, context, self._text_without_filter
        )

    def _ranking(self, read: Any, parameters: Mapping[str, Value], context: Context) -> ScoreRanking:
        call = self.query.order_by[0].expression
        assert isinstance(call, tree.Call)
        return ScoreRanking(call, self._components, read, parameters, context)

    def _counts(self, parameters: Mapping[str, Value]) -> tuple[int, int | None]:
        """How many rows to skip, and how many to return; None: all."""
        query = self.query
        if query.select.top is not None:
            return 0, _count(query.select.top, "TOP", parameters)
        if query.offset is None or query.limit is None:
            return 0, None
        return _count(query.offset, "OFFSET", parameters), _count(query.limit, "LIMIT", parameters)

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
        emitting = EmitContext(constants, namespace)
        functions, stages = emit_stages(emitting, self.query)
        order = "None"
        if self.query.order_by:
            keys = [component.subject for component in self._components]
            functions += emit_order(emitting, self.query, keys or [each.expression for each in self.query.order_by])
            order = "order"
        made = [order]
        for stage in stages:
            made += [str(name) for name in (stage.predicate, stage.project, stage.rows, stage.finish)]
        used = [f"c{place} = C[{place}]" for place in sorted(constants.used)]
        lines = [*used, *emitting.preamble, *functions, f"return ({', '.join(made)})"]
        source = "def bind(C, x, M):\n" + "".join([f"    {line}\n" for line in lines])
        if len(source) > limits.QUERY_SOURCE_CHARACTERS_MAX:
            raise too_many_operators(self.query.start, self.query.end)
        spend(len(source) * _SOURCE_UNITS)
        exec(compile(source, "<query>", "exec"), namespace)  # noqa: S102 (of our own making: names and places only)
        return _Variant(namespace["bind"], constants.literals, stages)


def _stage(code: StageCode, functions: list[Any]) -> Stage:
    predicate, project, rows, finish = functions
    grouping = None
    if finish is not None:
        grouping = Grouping(tuple([AGGREGATES[name] for name in code.makers]), code.is_grouped, finish, code.paths)
    return Stage(predicate, project, rows, grouping, code.is_distinct, code.is_sure, code.path)


def _without_idle_order(query: tree.Query) -> tree.Query:
    """Drop ORDER BY from an aggregated query, where it has no effect. The service accepts it there."""
    return replace(query, order_by=()) if query.order_by and is_aggregated(query) else query


def _text_without_filter(text: str, query: tree.Query) -> str | None:
    """The text of a query that a client sends to one partition of an ordered query, without its WHERE; None for any
    other query. Such queries select order keys and payload (`planning/partition_queries.py`). A client that resumes
    from its own continuation sends another filter in the same query, so the partition's continuations are bound to the
    text without the filter (`query/continuation_token.py`): a position in the order does not depend on the filter."""
    if query.where is None or not query.order_by or tuple(item.alias for item in query.select.items) != _ENVELOPE:
        return None
    return text[: query.where.start].rstrip("( ") + " " + text[query.order_by[0].start :]


def _order_keys(query: tree.Query) -> tuple[OrderKey, ...]:
    if not query.order_by:
        return ()
    scope = scope_of(query, {}, is_outermost=True)
    keys = []
    for order in query.order_by:
        path = item_path(order.expression, scope)
        # The index does not tell elements of an array apart (`query/access/ordered_access.py`).
        steps = [step if isinstance(step, str) else None for step in path or ()]
        keys.append(OrderKey(path_text(steps) if steps else None, order.is_descending))
    return tuple(keys)


def _count(node: tree.Expression, clause: str, parameters: Mapping[str, Value]) -> int:
    if isinstance(node, tree.Parameter):
        return check_count(node, parameters[node.name], clause)
    assert isinstance(node, tree.Literal) and isinstance(node.value, (int, float)), "the checker let nothing else pass"
    return int(node.value)


def _guarded(fn: Callable[[_A], _R], argument: _A) -> _R:
    """Refuse queries that exceed Python's recursion limit or its compiler's limits. The parser's depth limit counts
    brackets, not nodes, and does not know how deep the stack of the caller is; and Python does not compile a hundred
    nested functions."""
    try:
        return fn(argument)
    except (RecursionError, SyntaxError, MemoryError):
        message = "The query nests too many expressions; simplify it."
        raise query_error("SC1001", message, 0, 0) from None


class _Cache:
    """An LRU cache of compiled queries by text and computed properties, bounded by number and by total length of
    texts."""

    def __init__(self, name: str, kind: TextKind) -> None:
        self._kind = kind
        size_max = limits.QUERY_CACHE_CHARACTERS
        self._kept: CompiledCache[tuple[str, Computed], CompiledQuery] = CompiledCache(name, size_max=size_max)

    def get(self, text: str, computed: Computed) -> CompiledQuery:
        key = (text, computed)
        found = self._kept.get(key)
        if found is not None:
            return found
        compiled = _guarded(self._compile, key)
        self._kept.keep(key, compiled, len(text))
        return compiled

    def _compile(self, key: tuple[str, Computed]) -> CompiledQuery:
        source = QuerySource(*key, self._kind)
        definitions = source.definitions()
        parsed = source.parsed()
        spend(len(source.text) * _CHECK_UNITS)
        return CompiledQuery(check_query(parsed), definitions, source)


_queries = _Cache("sql-queries", TextKind.QUERY)
_filters = _Cache("sql-filters", TextKind.FILTER)
_conditions = _Cache("sql-conditions", TextKind.CONDITION)


def compile_query(text: str, computed: Computed = ()) -> CompiledQuery:
    """`computed`: the computed properties of the container; the meaning of a text depends on them."""
    _check_text(text)
    return _queries.get(text, computed)


def compile_filter(text: str) -> CompiledQuery:
    """Compile the condition of a patch, `FROM c WHERE …`. Only the predicate of the bound query is used."""
    _check_text(text)
    compiled = _filters.get(text, ())
    sources = compiled.query.sources
    if len(sources) > 1 or any(each.is_iterated or not isinstance(each.expression, tree.Name) for each in sources):
        raise bad_request("A condition is written FROM c WHERE …; it takes no JOIN and nothing but the item in FROM.")
    return compiled


def compile_condition(text: str) -> CompiledQuery:
    """Compile a condition on an item, `c.a = 1`. Only the predicate of the bound query is used."""
    _check_text(text)
    return _conditions.get(text, ())


def compile_recipe(recipe: QueryRecipe) -> CompiledQuery:
    """The query that a selection of another process was compiled from."""
    source = recipe.source
    match source.kind:
        case TextKind.QUERY:
            return compile_query(source.text, source.computed)
        case TextKind.FILTER:
            return compile_filter(source.text)
        case TextKind.CONDITION:
            return compile_condition(source.text)


def parse_parameters(given: Any) -> dict[str, Value]:
    """Parse the `parameters` of a query request, `[{"name": "@p", "value": …}]`; absent, null and [] are the same."""
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
        # The JavaScript client omits a value that is undefined.
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
        spend(sum(map(len, level)))  # type: ignore[arg-type]
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)  # type: ignore[union-attr]
            if child.__class__ in (list, dict)
        ]
        if not level:
            return
    raise bad_request(f"The parameter '{name}' nests more than {limits.QUERY_PARAMETER_DEPTH_MAX} levels.")
