"""Parses queries by hand-written recursive descent: the clauses are here, expressions in `expressions.py`. It accepts
the whole grammar; names, functions and types are checked by `check.py`.
"""

from __future__ import annotations

from armillary import limits
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.expressions import ExpressionParser, too_deep
from armillary.languages.sql.syntax.lexer import syntax_error, tokens_of


def parse_query(text: str) -> tree.Query:
    parser = Parser(tokens_of(text))
    query = parser.query()
    parser.expect("end")
    return query


def parse_filter(text: str) -> tree.Query:
    """Parse the condition of a patch, `[FROM c] WHERE …`, into a query that selects true for each matching item."""
    parser = Parser(tokens_of(text))
    start = parser.token.start
    sources = parser.sources() if parser.token.kind == "FROM" else ()
    parser.expect("WHERE")
    return _filter(parser, start, sources)


def parse_condition(text: str) -> tree.Query:
    """The same of a condition alone, `c.a = 1`: the item is `c`."""
    parser = Parser(tokens_of(text))
    start = parser.token.start
    return _filter(parser, start, (tree.Source(start, start, tree.Name(start, start, "c"), None, False),))


def _filter(parser: Parser, start: int, sources: tuple[tree.Source, ...]) -> tree.Query:
    where = parser.expression()
    end = parser.expect("end").end
    yes = tree.Item(start, start, tree.Literal(start, start, True), None)
    select = tree.Select(start, start, "VALUE", (yes,), False, None)
    return tree.Query(start, end, select, sources, where, (), (), False, None, None)


class Parser(ExpressionParser):
    def query(self) -> tree.Query:
        start = self.token.start
        select = self._select()
        sources = self.sources() if self.token.kind == "FROM" else ()
        where = self.expression() if self.accept("WHERE") else None
        group_by: tuple[tree.Expression, ...] = ()
        if self.accept("GROUP"):
            self.expect("BY")
            group_by = self.expressions()
        order_by: tuple[tree.Order, ...] = ()
        is_ranked = False
        if self.accept("ORDER"):
            self.expect("BY")
            # RANK is a keyword only here; elsewhere it is a name.
            is_ranked = self.token.text.upper() == "RANK" and self.peek().kind == "name"
            if is_ranked:
                self.advance()
            order_by = self._order_by()
        offset = limit = None
        if self.accept("OFFSET"):
            offset = self._count()
            self.expect("LIMIT")
            limit = self._count()
        return tree.Query(start, self.last_end, select, sources, where, group_by, order_by, is_ranked, offset, limit)

    def sources(self) -> tuple[tree.Source, ...]:
        self.expect("FROM")
        sources = [self._source()]
        while self.accept("JOIN"):
            sources.append(self._source())
        return tuple(sources)

    def _select(self) -> tree.Select:
        start = self.expect("SELECT").start
        is_distinct = self.accept("DISTINCT") is not None
        top = self._count() if self.accept("TOP") else None
        if self.accept("*"):
            return tree.Select(start, self.last_end, "*", (), is_distinct, top)
        if self.accept("VALUE"):
            expression = self.expression()
            item = tree.Item(expression.start, expression.end, expression, None)
            return tree.Select(start, self.last_end, "VALUE", (item,), is_distinct, top)
        items = [self._item()]
        while self.accept(","):
            items.append(self._item())
        return tree.Select(start, self.last_end, "LIST", tuple(items), is_distinct, top)

    def _item(self) -> tree.Item:
        self.count()
        expression = self.expression()
        alias = self._alias()
        return tree.Item(expression.start, self.last_end, expression, alias)

    def _alias(self) -> str | None:
        if self.accept("AS"):
            return self.expect("name").text
        name = self.accept("name")
        return name.text if name else None

    def _source(self) -> tree.Source:
        self.count()
        start = self.token.start
        if self.token.kind == "name" and self.peek().kind == "IN":
            alias = self.expect("name").text
            self.expect("IN")
            expression = self._collection()
            return tree.Source(start, self.last_end, expression, alias, True)
        expression = self._collection()
        name = self._alias()
        return tree.Source(start, self.last_end, expression, name, False)

    def _collection(self) -> tree.Expression:
        token = self.token
        if token.kind == "(" and self.peek().kind == "SELECT":
            return self.atom()
        if token.kind != "name":
            raise syntax_error(token, "the name of a collection, or a subquery in brackets")
        if self.peek().kind == "(":
            return self.atom()
        self.advance()
        path: tree.Expression = tree.Name(token.start, token.end, token.text)
        for _ in range(limits.QUERY_DEPTH_MAX):
            # Only literals: the path of a source must be known at compile time.
            if self.accept("["):
                if self.token.kind not in ("string", "number"):
                    raise syntax_error(self.token, "a name in quotes or a number")
                path = self.bracket(path)
            elif self.token.kind == ".":
                path = self.dot(path)
            else:
                return path
        raise too_deep(self.token)

    def _order_by(self) -> tuple[tree.Order, ...]:
        orders = []
        while True:
            self.count()
            expression = self.expression()
            is_descending = self.accept("DESC") is not None
            has_direction = is_descending or self.accept("ASC") is not None
            orders.append(tree.Order(expression.start, self.last_end, expression, is_descending, has_direction))
            if not self.accept(","):
                return tuple(orders)

    def _count(self) -> tree.Expression:
        """A number or a parameter; signs and expressions are syntax errors."""
        if self.token.kind not in ("number", "parameter"):
            raise syntax_error(self.token, "a number or a parameter")
        return self.atom()
