"""Generates the Python functions of a query: FROM, JOIN and WHERE become nested loops with SELECT in the innermost one;
subqueries become generators inside the function that uses them. Expressions are `emit.py`'s part.

A query without JOIN needs no loop: it becomes a predicate and a projection, which scans execute fastest. Each conjunct
of WHERE is tested in the outermost loop that defines all its aliases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from armillary.languages.sql.compiling.constants import Code
from armillary.languages.sql.compiling.emit import Emitter, Variable
from armillary.languages.sql.compiling.emit_context import EmitContext
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.equal_expressions import ExpressionNumbers
from armillary.languages.sql.syntax.paths import rooted_path, source_alias
from armillary.languages.sql.syntax.rewrite import rebuilt
from armillary.languages.sql.syntax.walk import (
    children_of,
    expressions_of,
    is_aggregate,
    is_aggregated,
    names_in,
    nodes_of,
)
from armillary.model.indexes.index_paths import path_text
from armillary.query.aggregates import AGGREGATES

Scope = Mapping[str, Variable]
_ITEM = Variable("d", (), is_item=True)
_ROW_BYTES, _LITERAL_BYTES, _SMALL_BYTES = 16, 100, 100
_UNITS_MIN = 50  # work of a function that is charged by itself; cheaper ones are covered by the charge for each item


class StageCode(NamedTuple):
    """The names of a stage's functions, or None, and its properties for `query/operators.py`."""

    predicate: str | None
    project: str | None
    rows: str | None
    finish: str | None
    makers: tuple[str, ...]
    paths: tuple[str | None, ...]
    is_grouped: bool
    is_distinct: bool
    is_sure: bool  # every item that passes the filter gives a row
    path: str | None  # the index path, if SELECT returns that path alone


def emit_stages(emitting: EmitContext, query: tree.Query) -> tuple[list[str], list[StageCode]]:
    """The source lines of all functions of a query, and the names of the functions of each stage."""
    source = query.sources[0] if query.sources else None
    if source is None or not isinstance(source.expression, tree.Subquery) or not _is_staged(source.expression.query):
        lines, stage = _emit_stage(emitting, query, _ITEM)
        return lines, [stage]
    lines, stages = emit_stages(emitting, source.expression.query)
    more, stage = _emit_stage(emitting, query, Variable("d"))
    return lines + more, [*stages, stage]


def _is_staged(query: tree.Query) -> bool:
    """Whether a subquery in FROM must read all its rows before it returns one."""
    if query.select.is_distinct or is_aggregated(query):
        return True
    first = query.sources[0].expression if query.sources else None
    return isinstance(first, tree.Subquery) and _is_staged(first.query)


def _emit_stage(emitting: EmitContext, query: tree.Query, root: Variable) -> tuple[list[str], StageCode]:
    number = emitting.fresh("")
    grouped = _Grouped(query) if is_aggregated(query) else None
    source = query.sources[0] if query.sources else None
    is_direct = source is None or (
        len(query.sources) == 1
        and not source.is_iterated
        and (isinstance(source.expression, tree.Name) or not root.is_item)
    )
    predicate = project = rows = finish = None
    lines: list[str] = []
    if is_direct:
        alias = source_alias(source) if source is not None else None
        scope = {alias: root} if alias is not None else {}
        if query.where is not None:
            predicate = f"predicate{number}"
            emitter = Emitter(emitting, scope, [query.where], subquery_code)
            lines += _function(f"{predicate}(d)", emitter, f"return {emitter.truth(query.where).source}")
        if grouped is not None or not _is_whole(query, alias):
            project = f"project{number}"
            emitter = Emitter(emitting, scope, grouped.inputs if grouped else _items(query), subquery_code)
            code = grouped.row(emitter) if grouped else _selected(emitter, query, root)
            lines += _function(f"{project}(d)", emitter, f"return {code.source}")
    else:
        rows = f"rows{number}"
        emitter = Emitter(emitting, {}, _roots(query, grouped), subquery_code)
        only = _nest(emitter, query, root, is_top=True)
        if grouped is not None:
            emitter.line(f"yield {grouped.row(emitter).source}")
        else:
            _yield_selected(emitter, query, only, is_top=True)
        lines += _function(f"{rows}(d)", emitter, "return", "yield")
    if grouped is not None:
        finish = f"finish{number}"
        emitter = Emitter(emitting, {}, (), subquery_code)
        lines += _function(f"{finish}(G, R)", emitter, f"return {_selected(emitter, grouped.finished, None).source}")
    makers = grouped.makers if grouped is not None else ()
    is_grouped, is_distinct = bool(query.group_by), query.select.is_distinct
    asked = grouped.arguments if grouped is not None else _items(query) if is_distinct else ()
    paths = _index_paths(emitting, asked, source) if root.is_item else ()
    is_sure = query.select.kind != "VALUE"
    argument_paths = (paths or (None,) * len(makers)) if grouped is not None else ()
    path = paths[0] if grouped is None and is_direct and len(paths) == 1 else None
    stage = StageCode(predicate, project, rows, finish, makers, argument_paths, is_grouped, is_distinct, is_sure, path)
    return lines, stage


def _index_paths(
    emitting: EmitContext, expressions: Sequence[tree.Expression], source: tree.Source | None
) -> tuple[str | None, ...]:
    """The index paths of expressions; see Grouping."""
    paths: list[str | None] = []
    alias = source_alias(source) if source is not None else None
    for argument in expressions:
        place = emitting.constants.place(argument)
        found = rooted_path(argument)
        if place is not None:
            paths.append("" if emitting.constants.kind(place) != "undefined" else None)
        elif found is not None and found[0] == alias and found[1] and all(isinstance(step, str) for step in found[1]):
            paths.append(path_text([step if isinstance(step, str) else None for step in found[1]]))
        else:
            paths.append(None)
    return tuple(paths)


def emit_order(emitting: EmitContext, query: tree.Query, expressions: Sequence[tree.Expression]) -> list[str]:
    """Emit `order(d)`: the ORDER BY values of an item."""
    source = query.sources[0]
    found = rooted_path(source.expression)
    emitter = Emitter(emitting, {}, expressions, subquery_code)
    if isinstance(source.expression, tree.Name) or found is None:
        alias = source_alias(source)
        emitter.scope |= {alias: _ITEM} if alias is not None else {}
    else:
        # `FROM c.a x ORDER BY x.b`: x is the value at the path.
        alias = source_alias(source)
        emitter.scope[found[0]] = _ITEM
        emitter.line(f"v = {emitter.value(source.expression).source}")
        emitter.scope = {alias: Variable("v", found[1])} if alias is not None else {}
    values = "".join([f"{emitter.value(expression).source}, " for expression in expressions])
    return _function("order(d)", emitter, f"return ({values})")


# Clauses.


def _nest(emitter: Emitter, query: tree.Query, root: Variable | None, *, is_top: bool) -> Variable | None:
    """Emit the loops of FROM and JOIN and the tests of WHERE; what is emitted next runs for each row. `root` is the
    value of the first source, None in a subquery over outer aliases. Returns the variable of the last source."""
    waiting = _conjuncts(query)
    variable = None
    for number, source in enumerate(query.sources):
        variable = _open(emitter, source, root if number == 0 else None, is_top=is_top, is_first=number == 0)
        alias = source_alias(source)
        if alias is not None:
            emitter.enter(alias, variable)
        _check(emitter, waiting.pop(number, []))
    _check(emitter, waiting.pop(-1, []))
    return variable


def _check(emitter: Emitter, conditions: Iterable[tree.Expression]) -> None:
    for condition in conditions:
        is_making = makes_values([condition])
        before = emitter.emitting.fresh("m")
        if is_making:
            emitter.line(f"{before} = made()")
        code = emitter.truth(condition)
        if not is_making:
            emitter.line(f"if not {code.source}: {_skip(emitter)}")
            continue
        # Memory of values that were made only for this test is given back.
        name = emitter.emitting.fresh()
        emitter.line(f"{name} = {code.source}")
        emitter.line(f"release({before})")
        emitter.line(f"if not {name}: {_skip(emitter)}")


def makes_values(expressions: Iterable[tree.Expression]) -> bool:
    """Whether evaluating an expression allocates enough memory to be counted."""
    for root in expressions:
        for node in nodes_of(root):
            is_joining = isinstance(node, tree.Binary) and node.operator == "||"
            if is_joining or isinstance(node, (tree.Call, tree.Subquery)):
                return True
    return False


def _conjuncts(query: tree.Query) -> dict[int, list[tree.Expression]]:
    """The conjuncts of WHERE by the source after which they can be tested: the last one whose alias they use."""
    if query.where is None:
        return {}
    where = query.where
    parts = where.operands if isinstance(where, tree.Logic) and where.operator == "AND" else (where,)
    if len(query.sources) <= 1:
        return {len(query.sources) - 1: list(parts)}
    places = {source_alias(source): number for number, source in enumerate(query.sources)}
    found: dict[int, list[tree.Expression]] = {}
    for part in parts:
        numbers = [places[name.name] for name in names_in(part) if name.name in places]
        found.setdefault(max(numbers, default=0), []).append(part)
    return found


def _open(emitter: Emitter, source: tree.Source, root: Variable | None, *, is_top: bool, is_first: bool) -> Variable:
    emitting = emitter.emitting
    expression = source.expression
    path = _source_path(emitter, source, root)
    name = emitting.fresh("v")
    if isinstance(expression, tree.Subquery) and (root is None or root.is_item):
        call = _generator(emitter, expression.query, root if is_first else None)
        _meter(emitter, "1", is_top=is_top and not is_first)
        _loop(emitter, name, f"elements({call})" if source.is_iterated else call)
        return Variable(name)
    if isinstance(expression, tree.Subquery):
        assert root is not None, "the rows of an earlier stage"
        code = Code(root.source)
    elif root is not None and rooted_path(expression) is not None:
        found = rooted_path(expression)
        assert found is not None
        if isinstance(expression, tree.Name) and not source.is_iterated:
            return root
        outer, emitter.scope = emitter.scope, {}
        emitter.enter(found[0], root)
        code = emitter.value(expression)
        emitter.scope = outer | {found[0]: root}  # an alias of the same name shadows it
    else:
        code = emitter.value(expression)
    if not source.is_iterated:
        emitter.line(f"{name} = {code.source}")
        emitter.line(f"if {name} is U: {_skip(emitter)}")
        return Variable(name, path)
    array = emitting.fresh("a")
    emitter.line(f"{array} = {code.source}")
    emitter.line(f"if {array}.__class__ is not list: {_skip(emitter)}")
    units = emitter.loop_units()
    _meter(emitter, f"len({array}), {units}", is_top=is_top)
    _loop(emitter, name, f"{array} if len({array}) <= PACED_MIN else paced({array}, {units})")
    return Variable(name, path)


def _source_path(emitter: Emitter, source: tree.Source, root: Variable | None) -> tuple[str | int | None, ...] | None:
    found = rooted_path(source.expression)
    if found is None:
        return None
    start = root if root is not None else emitter.scope[found[0]]
    if start.path is None:
        return None
    return start.path + found[1] + ((None,) if source.is_iterated else ())


def _meter(emitter: Emitter, tuples: str, *, is_top: bool) -> None:
    emitter.emitting.has_loops = True
    emitter.line(f"if M.join({tuples}): yield PAUSE" if is_top else f"M.spend({tuples})")


def _loop(emitter: Emitter, name: str, iterable: str) -> None:
    emitter.line(f"for {name} in {iterable}:")
    emitter.depth += 1


def _skip(emitter: Emitter) -> str:
    return "continue" if emitter.depth else "return"


# SELECT.


def _items(query: tree.Query) -> list[tree.Expression]:
    return [item.expression for item in query.select.items]


def _is_whole(query: tree.Query, alias: str | None) -> bool:
    """Whether SELECT returns the whole item: SELECT * or SELECT VALUE c."""
    select = query.select
    if select.kind == "*":
        return True
    expression = select.items[0].expression
    return select.kind == "VALUE" and isinstance(expression, tree.Name) and expression.name == alias


def _selected(emitter: Emitter, query: tree.Query, only: Variable | None) -> Code:
    """Code for the row; undefined means no row."""
    select = query.select
    if select.kind == "*":
        assert only is not None
        return Code(only.source)
    if select.kind == "VALUE":
        return emitter.value(select.items[0].expression)
    pairs = tuple(zip(item_names(select), _items(query), strict=True))
    return emitter.made_object(tree.ObjectLiteral(select.start, select.end, pairs))


def _yield_selected(emitter: Emitter, query: tree.Query, only: Variable | None, *, is_top: bool = False) -> None:
    # Rows of the outermost query are serialized at once and their memory is freed; rows of a subquery may be kept.
    before = emitter.emitting.fresh("m") if is_top and makes_values(_items(query)) else None
    if before is not None:
        emitter.line(f"{before} = made()")
    code = _selected(emitter, query, only)
    if query.select.kind == "LIST":
        emitter.line(f"yield {code.source}")
    else:
        name = emitter.emitting.fresh()
        emitter.line(f"{name} = {code.source}")
        emitter.line(f"if {name} is not U: yield {name}")
    if before is not None:
        emitter.line(f"release({before})")


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


class _Grouped:
    """An aggregated query in two parts: the values that each row adds to its group, and the row made of a group."""

    def __init__(self, query: tree.Query) -> None:
        self.keys = query.group_by
        self.arguments: list[tree.Expression] = []
        makers: list[str] = []
        numbers = ExpressionNumbers()
        places = {numbers.number_of(key): place for place, key in reversed(list(enumerate(query.group_by)))}

        def replacing(node: tree.Expression) -> tree.Expression | None:
            if is_aggregate(node):
                assert isinstance(node, tree.Call)
                makers.append(node.name)
                self.arguments.append(node.arguments[0])
                return tree.Slot(node.start, node.end, f"R[{len(makers) - 1}]")
            place = places.get(numbers.number_of(node)) if places else None
            return tree.Slot(node.start, node.end, f"G[{place}]") if place is not None else None

        select = query.select
        names = item_names(select) if select.kind == "LIST" else [None]
        items = tuple(
            tree.Item(item.start, item.end, rebuilt(item.expression, replacing), name)
            for item, name in zip(select.items, names, strict=True)
        )
        self.makers = tuple(makers)
        finished = tree.Select(select.start, select.end, select.kind, items, False, None)
        self.finished = tree.Query(query.start, query.end, finished, (), None, (), (), False, None, None)

    @property
    def inputs(self) -> list[tree.Expression]:
        return [*self.keys, *self.arguments]

    def row(self, emitter: Emitter) -> Code:
        keys = "".join([f"{emitter.value(key).source}, " for key in self.keys])
        values = "".join([f"{emitter.value(argument).source}, " for argument in self.arguments])
        return Code(f"(({keys}), ({values}))")


# Subqueries.


def subquery_code(emitter: Emitter, node: tree.Subquery) -> Code:
    """Code for a subquery in an expression: defines a generator and consumes it."""
    is_making = makes_values(expressions_of(node.query))
    is_empty = "is_empty_after_all" if is_making else "is_empty"
    if node.kind == "ALL":
        return Code(f"{is_empty}({_generator(emitter, node.query, None, is_failing=True)})", 1, "truth")
    call = _generator(emitter, node.query, None)
    match node.kind:
        case "EXISTS":
            return Code(f"(not {is_empty}({call}))", 2, "truth")
        case "ARRAY":
            is_making = is_making or node.query.select.is_distinct
            return Code(f"{'collected' if is_making else 'gathered'}({call}, {_row_bytes(node.query)})", 1, "array")
        case "FIRST":
            return Code(f"next({call}, U)", 1)
        case "LAST":
            return Code(f"last({call})", 1)
    return Code(f"single({call})", 1)


def _generator(outer: Emitter, query: tree.Query, root: Variable | None, *, is_failing: bool = False) -> str:
    """Define a generator of the rows of a subquery, or of the rows that fail its filter. Returns the call of it."""
    emitting = outer.emitting
    name = emitting.fresh("s")
    grouped = _Grouped(query) if is_aggregated(query) else None
    emitter = Emitter(emitting, outer.scope, _roots(query, grouped), subquery_code)
    if is_failing:
        failing = tree.Query(query.start, query.end, query.select, query.sources, None, (), (), False, None, None)
        _nest(emitter, failing, root, is_top=False)
        fails = f"not {emitter.truth(query.where).source}" if query.where is not None else "False"
        emitter.line(f"if {fails}: yield None")
    elif grouped is not None:
        makers = emitting.name(tuple([AGGREGATES[maker] for maker in grouped.makers]))
        groups = emitting.fresh("g")
        emitter.line(f"{groups} = Groups({makers}, is_grouped={bool(query.group_by)})")
        _loop(emitter, "_", "ONCE")
        _nest(emitter, query, root, is_top=False)
        is_making = makes_values(grouped.inputs) and not {"MAKELIST", "MAKESET"} & set(grouped.makers)
        if is_making:
            before = emitting.fresh("m")
            emitter.line(f"{before} = made()")
        emitter.line(f"{groups}.add({grouped.row(emitter).source})")
        if is_making:
            emitter.line(f"release({before})")
        lines = emitter.lines
        emitter.settle()
        emitter = Emitter(emitting, outer.scope, (), subquery_code)
        emitter.lines = lines
        _loop(emitter, "G, R", f"{groups}.results()")
        _yield_selected(emitter, grouped.finished, None)
    else:
        _yield_selected(emitter, query, _nest(emitter, query, root, is_top=False))
    emitter.settle()
    for line in [f"def {name}():", *["    " + line for line in emitter.lines], "    return", "    yield"]:
        outer.line(line)
    return f"distinct({name}())" if query.select.is_distinct and not is_failing else f"{name}()"


def _row_bytes(query: tree.Query) -> int:
    """Estimated memory of the object and array constructors in a row."""
    literals = sum(
        [
            1 + len(children_of(node))
            for root in _items(query)
            for node in nodes_of(root)
            if isinstance(node, (tree.ObjectLiteral, tree.ArrayLiteral))
        ]
    )
    if query.select.kind == "LIST":
        literals += 1 + len(query.select.items)
    return _ROW_BYTES + _LITERAL_BYTES * literals + (_SMALL_BYTES if makes_values(_items(query)) else 0)


def _roots(query: tree.Query, grouped: _Grouped | None) -> list[tree.Expression]:
    """The expressions that are evaluated inside the loops of a query."""
    if grouped is None:
        return list(expressions_of(query))
    return [*grouped.inputs, *([query.where] if query.where is not None else [])]


def _function(signature: str, emitter: Emitter, *ending: str) -> list[str]:
    begin = ["    M.begin()"] if emitter.emitting.has_loops and signature.endswith("(d)") else []
    units = emitter.settle()
    if units >= _UNITS_MIN:
        begin.append(f"    spend({units})")
    return [f"def {signature}:", *begin, *["    " + line for line in [*emitter.lines, *ending]]]
