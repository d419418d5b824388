"""Semantic checks of a parsed query, before it is compiled: names are defined, functions exist and have the right
number of arguments, aggregates, GROUP BY and ORDER BY are used where they are allowed, and nothing unsupported is used.
Errors name the offending part and its place in the text. ORDER BY RANK is checked by `order_by_rank.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.function_table import ANY_NUMBER, FUNCTIONS
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.equal_expressions import ExpressionNumbers
from armillary.languages.sql.syntax.lexer import query_error, unplaced_error
from armillary.languages.sql.syntax.order_by_rank import TEXT, VECTOR, check_ranked, is_ranked
from armillary.languages.sql.syntax.paths import Scope, item_path, rooted_path, source_alias, source_path
from armillary.languages.sql.syntax.render import text_of
from armillary.languages.sql.syntax.walk import children_of, expressions_of, is_aggregate, is_aggregated, nodes_of
from armillary.model.values import Value

_SCORES = ("_FULLTEXTSCORE", "_VECTORSCORE")
_UNORDERABLE = "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path."


@dataclass(frozen=True, slots=True)
class Checked:
    query: tree.Query
    parameters: tuple[str, ...]  # names in the order of their first use
    user_functions: tuple[str, ...]


def check_query(query: tree.Query) -> Checked:
    checker = _Checker()
    checker.query(query, {}, is_outermost=True, is_subquery=False)
    return Checked(query, tuple(checker.parameters), tuple(checker.user_functions))


class _Checker:
    def __init__(self) -> None:
        self.parameters: dict[str, None] = {}
        self.user_functions: list[str] = []

    def query(self, query: tree.Query, outer: Scope, *, is_outermost: bool, is_subquery: bool) -> None:
        """`is_outermost`: the first name in FROM is the container, because no other name is visible there."""
        if is_subquery:
            _check_subquery(query)
        scope = self._sources(query, outer, is_outermost)
        own = {alias for source in query.sources if (alias := source_alias(source)) is not None}
        _check_select(query)
        for item in query.select.items:
            self._expression(item.expression, scope, allows_aggregates=True)
        if query.where is not None:
            self._expression(query.where, scope, clause="WHERE")
        for key in query.group_by:
            self._expression(key, scope, clause="GROUP BY")
        for count, clause in ((query.select.top, "TOP"), (query.offset, "OFFSET"), (query.limit, "LIMIT")):
            if isinstance(count, tree.Parameter):
                self.parameters[count.name] = None
            elif isinstance(count, tree.Literal):
                check_count(count, count.value, clause)
        if is_aggregated(query):
            _check_grouped(query, own)
        self._orders(query, scope)

    # FROM and JOIN.

    def _sources(self, query: tree.Query, outer: Scope, is_outermost: bool) -> Scope:
        if len(query.sources) > limits.QUERY_JOINS_MAX + 1:
            first = query.sources[limits.QUERY_JOINS_MAX + 1]
            message = f"The query has more than {limits.QUERY_JOINS_MAX} JOINs."
            raise query_error("SC2020", message, first.start, first.end)
        scope = dict(outer)
        own: set[str] = set()
        for number, source in enumerate(query.sources):
            is_first = is_outermost and number == 0
            expression = source.expression
            if isinstance(expression, tree.Subquery):
                self.query(expression.query, scope, is_outermost=is_first, is_subquery=True)
            elif rooted_path(expression) is None or not is_first:
                self._expression(expression, scope, clause="FROM")
            alias = source_alias(source)
            if alias is None:
                continue
            if alias in own:
                message = f"The input set name or alias '{alias}' is specified more than once in the FROM clause."
                raise query_error("SC2021", message, *_alias_place(source, alias))
            own.add(alias)
            scope[alias] = source_path(source, scope, is_container=is_first)
        return scope

    # Expressions.

    def _expression(
        self, root: tree.Expression, scope: Scope, *, clause: str = "", allows_aggregates: bool = False
    ) -> None:
        for node in nodes_of(root):
            if isinstance(node, tree.Name):
                if node.name not in scope:
                    message = f"Identifier '{node.name}' could not be resolved."
                    raise query_error("SC2001", message, node.start, node.end)
            elif isinstance(node, tree.Parameter):
                self.parameters[node.name] = None
            elif isinstance(node, tree.Call):
                self._call(node, clause, allows_aggregates)
            elif isinstance(node, tree.Subquery):
                self.query(node.query, scope, is_outermost=False, is_subquery=True)
            elif isinstance(node, tree.Like) and node.escape is not None and len(node.escape) != 1:
                message = f"The ESCAPE of LIKE must be a single character, not '{node.escape[:40]}'."
                raise query_error("SC1001", message, node.start, node.end)

    def _call(self, call: tree.Call, clause: str, allows_aggregates: bool) -> None:
        if call.is_user_defined:
            self.user_functions.append(call.name)
            if len(self.user_functions) > limits.QUERY_USER_FUNCTIONS_MAX:
                message = f"The query calls more than {limits.QUERY_USER_FUNCTIONS_MAX} user-defined functions."
                raise query_error("SC2006", message, call.start, call.end)
            return
        if is_aggregate(call):
            if not allows_aggregates:
                message = f"An aggregate may not appear in the {clause} clause."
                raise query_error("SC2104", message, call.start, call.end)
            _check_arguments(call, 1, 1)
            inner = [node for argument in call.arguments for node in nodes_of(argument)]
            if any(is_aggregate(node) or isinstance(node, tree.Subquery) for node in inner):
                message = "Cannot perform an aggregate function on an expression containing an aggregate or a subquery."
                raise query_error("SC2101", message, call.start, call.end)
            return
        function = FUNCTIONS.get(call.name)
        if function is not None:
            _check_arguments(call, function.arguments_min, function.arguments_max)
            if call.name == VECTOR:
                _check_vector_options(call)
        elif call.name == "FULLTEXTSCORE":
            message = "The FullTextScore function is only allowed in the ORDER BY RANK clause."
            raise query_error("SC2240", message, call.start, call.end)
        else:
            message = f"'{call.name[:100]}' is not a recognized built-in function name."
            raise query_error("SC2005", message, call.start, call.name_end)

    # ORDER BY.

    def _orders(self, query: tree.Query, scope: Scope) -> None:
        if not query.order_by:
            return
        first = query.order_by[0]
        if query.group_by:
            message = "'ORDER BY' is not supported together with 'GROUP BY'."
            raise query_error("SC2105", message, first.start, query.order_by[-1].end)
        if is_ranked(query):
            self._scores(query, scope)
            return
        for order in query.order_by:
            self._expression(order.expression, scope, clause="ORDER BY")
            if any(isinstance(node, tree.Call) and node.name in _SCORES for node in nodes_of(order.expression)):
                continue  # in the component queries of a hybrid-search plan
            path = item_path(order.expression, scope)
            if not path or None in path or not isinstance(path[0], str):
                raise unplaced_error(2206, _UNORDERABLE)

    def _scores(self, query: tree.Query, scope: Scope) -> None:
        for part in check_ranked(query, scope):
            # FullTextScore exists in ORDER BY RANK only, so its arguments are checked; VectorDistance is checked as a
            # call.
            is_text = isinstance(part, tree.Call) and part.name == TEXT
            for each in children_of(part) if is_text else (part,):
                self._expression(each, scope, clause="ORDER BY")
        if is_aggregated(query):
            raise _ungrouped(query.order_by[0].expression, "ORDER BY clause")


def _check_vector_options(call: tree.Call) -> None:
    options = call.arguments[3] if len(call.arguments) > 3 else None
    if not isinstance(options, tree.ObjectLiteral):
        return
    for name, value in options.pairs:
        if name == "searchListSizeMultiplier" and isinstance(value, tree.Literal):
            number = value.value
            if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= 100:
                message = "The searchListSizeMultiplier of VectorDistance must be an integer from 1 to 100."
                raise query_error("SC2213", message, value.start, value.end)


def _check_subquery(query: tree.Query) -> None:
    if query.is_ranked:
        message = "'ORDER BY RANK' is not supported in subqueries."
        raise query_error("SC2228", message, query.order_by[0].start, query.order_by[-1].end)
    if query.order_by:
        message = "'ORDER BY' is not supported in subqueries."
        raise query_error("SC2202", message, query.order_by[0].start, query.order_by[-1].end)
    if query.select.top is not None:
        message = "'TOP' is not supported in subqueries."
        raise query_error("SC2203", message, query.select.top.start, query.select.top.end)
    if query.offset is not None and query.limit is not None:
        message = "'OFFSET LIMIT' clause is not supported in subqueries."
        raise query_error("SC2204", message, query.offset.start, query.limit.end)


def _check_select(query: tree.Query) -> None:
    select = query.select
    if select.kind == "*":
        if query.group_by:
            raise query_error("SC2041", "'SELECT *' is not allowed with GROUP BY.", select.start, select.end)
        if not query.sources:
            message = "'SELECT *' is not valid if FROM clause is omitted."
            raise query_error("SC2040", message, select.start, select.end)
        if len(query.sources) > 1:
            message = "'SELECT *' is only valid with a single input set."
            raise query_error("SC2040", message, select.start, select.end)
    if select.top is not None and query.offset is not None and query.limit is not None:
        message = "'TOP' cannot be used together with 'OFFSET LIMIT'."
        raise query_error("SC2065", message, query.offset.start, query.limit.end)


def check_count(place: tree.Node, value: Value, clause: str) -> int:
    """Check the number of TOP, OFFSET or LIMIT, a literal or the value of a parameter."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        message = f"The count value provided for a {clause} clause must be an integer."
        raise query_error("SC2060", message, place.start, place.end)
    if value > limits.QUERY_COUNT_MAX:
        code = {"LIMIT": "SC2061", "OFFSET": "SC2062"}.get(clause, "SC2060")
        message = f"The {clause} count value exceeds the maximum allowed value."
        raise query_error(code, message, place.start, place.end)
    return value


def _check_arguments(call: tree.Call, least: int, most: int) -> None:
    if least <= len(call.arguments) <= most:
        return
    wanted = str(least) if least == most else f"{least} to {most}"
    if most == ANY_NUMBER:
        wanted = f"at least {least}"
    message = f"The {call.name} function requires {wanted} argument(s)."
    raise query_error("SC2050", message, call.start, call.end)


def _check_grouped(query: tree.Query, own: set[str]) -> None:
    """With GROUP BY, SELECT may use group keys, aggregates and constants only."""
    numbers = ExpressionNumbers()
    keys = {numbers.number_of(key) for key in query.group_by}
    kinds = {key.__class__ for key in query.group_by}
    pending = [item.expression for item in reversed(query.select.items)]
    while pending:
        node = pending.pop()
        if is_aggregate(node) or (node.__class__ in kinds and numbers.number_of(node) in keys):
            continue
        if isinstance(node, tree.Subquery):
            for name in _outer_names(node.query, frozenset()):
                if name.name in own:
                    raise _ungrouped(name, "select list")
        elif isinstance(node, (tree.Name, tree.Member, tree.Index)):
            found = rooted_path(node)
            if found is not None and found[0] in own and not _has_key_inside(node, keys, numbers):
                raise _ungrouped(node, "select list")
            if found is not None:
                continue
        pending.extend(children_of(node))


def _outer_names(query: tree.Query, bound: frozenset[str]) -> Iterator[tree.Name]:
    """The names in a subquery that are defined outside it. In `FROM c.a c` the first c is one of them."""
    for source in query.sources:
        yield from _outer_names_in(source.expression, bound)
        alias = source_alias(source)
        bound |= {alias} if alias is not None else set()
    sources = {id(source.expression) for source in query.sources}
    for expression in expressions_of(query):
        if id(expression) not in sources:
            yield from _outer_names_in(expression, bound)


def _outer_names_in(root: tree.Expression, bound: frozenset[str]) -> Iterator[tree.Name]:
    for node in nodes_of(root):
        if isinstance(node, tree.Name) and node.name not in bound:
            yield node
        elif isinstance(node, tree.Subquery):
            yield from _outer_names(node.query, bound)


def _has_key_inside(node: tree.Expression, keys: set[int], numbers: ExpressionNumbers) -> bool:
    """Whether a path extends a group key: c.a.b with GROUP BY c.a."""
    while isinstance(node, (tree.Member, tree.Index)):
        node = node.source
        if numbers.number_of(node) in keys:
            return True
    return False


def _ungrouped(node: tree.Expression, where: str) -> Failure:
    message = (
        f"Property reference '{text_of(node)}' is invalid in the {where} because it is not contained in either an "
        "aggregate function or the GROUP BY clause."
    )
    return query_error("SC2102", message, node.start, node.end)


def _alias_place(source: tree.Source, alias: str) -> tuple[int, int]:
    if source.is_iterated:
        return source.start, source.start + len(alias)
    return source.end - len(alias), source.end


def not_yet(what: str) -> Failure:
    return Failure(Kind.UNSUPPORTED, f"{what} is not supported yet.")
