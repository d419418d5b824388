"""Parses expressions by precedence climbing. The clauses around them are in `parser.py`.

Chains of one operator are read in a loop, and AND, OR and ?? chains become one flat node, so that a thousand terms need
no recursion; nesting is counted and limited. `NOT` binds like the other unary operators and `||` weaker than `=`, as in
the published grammar.
"""

from __future__ import annotations

from armillary import limits
from armillary.errors import Failure
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.lexer import Token, number_value, query_error, syntax_error
from armillary.model.values import UNDEFINED
from armillary.work import spend

_COALESCE, _OR, _AND, _PREDICATE, _CONCAT = 1, 2, 3, 4, 5
POWERS = {
    "??": _COALESCE,
    "OR": _OR,
    "AND": _AND,
    "BETWEEN": _PREDICATE,
    "IN": _PREDICATE,
    "LIKE": _PREDICATE,
    "NOT": _PREDICATE,
    "||": _CONCAT,
    "|": 6,
    "^": 7,
    "&": 8,
    "=": 9,
    "!=": 9,
    "<": 10,
    "<=": 10,
    ">": 10,
    ">=": 10,
    "<<": 11,
    ">>": 11,
    ">>>": 11,
    "+": 12,
    "-": 12,
    "*": 13,
    "/": 13,
    "%": 13,
}
_UNARY = frozenset(["-", "+", "~", "NOT"])
_WORDS = {"true": True, "false": False, "null": None, "undefined": UNDEFINED}
_CONSTANTS = frozenset(["string", "number"])
_LIST_SYMBOLS = frozenset([",", ")", "]", "}"])
_SUBQUERY_NAMES = frozenset(["ALL", "FIRST", "LAST"])
_VALUES = (tree.Literal, tree.Parameter)
_ATOMS = frozenset([tree.Literal, tree.Parameter, tree.Name, tree.Member, tree.Index])
# Cost of compiling a construct, as a multiple of a plain operator.
_PREDICATE_WEIGHT, _SUBQUERY_WEIGHT = 3, 6
_COUNTED, _TOKEN_UNITS = 64, 30  # tokens between two charges to the work budget, and the work for one


_EXPECTED = {"name": "a name", "end": "an operator, a clause or the end of the query"}


class ExpressionParser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._operators = 0
        self._nesting = 0
        self.token = tokens[0]
        self.last_end = 0  # end of the previous token

    # Tokens.

    def advance(self) -> Token:
        token = self.token
        self.last_end = token.end
        if token.kind != "end":
            self._at += 1
            if not self._at % _COUNTED:
                spend(_COUNTED * _TOKEN_UNITS)
            self.token = self._tokens[self._at]
        return token

    def accept(self, kind: str) -> Token | None:
        return self.advance() if self.token.kind == kind else None

    def expect(self, kind: str) -> Token:
        if self.token.kind != kind:
            raise syntax_error(self.token, _EXPECTED.get(kind, f"'{kind}'"))
        return self.advance()

    def peek(self, distance: int = 1) -> Token:
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    # Expressions.

    def query(self) -> tree.Query:
        raise NotImplementedError  # subqueries are parsed by the subclass, which knows the clauses

    def expressions(self) -> tuple[tree.Expression, ...]:
        found = [self._listed()]
        while self.token.kind == ",":
            self.advance()
            found.append(self._listed())
        return tuple(found)

    def _listed(self) -> tree.Expression:
        """An expression in a list, with a fast path for constants: lists of thousands of them are common."""
        token = self.token
        if token.kind in _CONSTANTS and self._tokens[self._at + 1].kind in _LIST_SYMBOLS:
            self.advance()
            value = token.text if token.kind == "string" else number_value(token)
            return tree.Literal(token.start, token.end, value)
        found = self.expression()
        if found.__class__ not in _VALUES:
            self.count()
        return found

    def count(self, weight: int = 1) -> None:
        """Count a construct against the limit on operators, so that a query that is too large is refused before it is
        read completely. `path = constant` is not counted: thousands of them are compiled to one lookup."""
        self._operators += weight
        if self._operators > limits.QUERY_OPERATORS_MAX:
            raise too_many_operators(self.token.start, self.token.end)

    def expression(self) -> tree.Expression:
        condition = self._climb(_COALESCE)
        if self.token.kind != "?":
            return condition
        self.advance()
        self.count()
        then = self.expression()
        self.expect(":")
        # The else branch is right-recursive; the depth limit bounds it.
        self._deepen()
        otherwise = self.expression()
        self._depth -= 1
        return tree.Conditional(condition.start, otherwise.end, condition, then, otherwise)

    def _deepen(self) -> None:
        self._depth += 1
        if self._depth > limits.QUERY_DEPTH_MAX:
            raise too_deep(self.token)

    def _climb(self, power_min: int) -> tree.Expression:
        self._deepen()
        left = self._operand()
        power_max = 99
        while True:
            operator = self.token.kind
            power = POWERS.get(operator, 0)
            if power < power_min or power > power_max:
                break
            if power == _PREDICATE:
                if operator == "NOT" and self.peek().kind not in ("BETWEEN", "IN", "LIKE"):
                    break
                left = self._predicate(left)
                power_max = _AND  # predicates do not chain: a IN (1) IN (true) is a syntax error
            elif power < _PREDICATE:
                operands = [left]
                while self.token.kind == operator:
                    self.advance()
                    operand = self._climb(power + 1)
                    if operand.__class__ in _ATOMS:
                        self.count()
                    operands.append(operand)
                left = tree.Logic(left.start, operands[-1].end, operator, tuple(operands))
                power_max = power
            else:
                self.advance()
                right = self._climb(power + 1)
                kinds = {left.__class__, right.__class__}
                if operator != "=" or not kinds <= _ATOMS or kinds.isdisjoint(_VALUES):
                    self.count()
                left = tree.Binary(left.start, right.end, operator, left, right)
        self._depth -= 1
        return left

    def _predicate(self, left: tree.Expression) -> tree.Expression:
        is_negated = self.accept("NOT") is not None
        kind = self.advance().kind
        self.count(_PREDICATE_WEIGHT)
        if kind == "BETWEEN":
            low = self._climb(_CONCAT)
            self.expect("AND")
            high = self._climb(_CONCAT)
            return tree.Between(left.start, high.end, left, low, high, is_negated)
        if kind == "IN":
            self.expect("(")
            values = self.expressions()
            end = self.expect(")").end
            return tree.In(left.start, end, left, values, is_negated)
        pattern = self._climb(_CONCAT)
        escape = self.expect("string").text if self.accept("ESCAPE") else None
        return tree.Like(left.start, self.last_end, left, pattern, escape, is_negated)

    def _operand(self) -> tree.Expression:
        operators: list[Token] = []
        while self.token.kind in _UNARY:
            self._deepen()
            self.count()
            operators.append(self.advance())
        operand = self.atom()
        # No item is nested deeper, and some passes over a path take quadratic time.
        for _ in range(limits.QUERY_DEPTH_MAX):
            kind = self.token.kind
            if kind == ".":
                operand = self.dot(operand)
            elif kind == "[":
                self.advance()
                operand = self.bracket(operand)
            else:
                break
        else:
            raise too_deep(self.token)
        for operator in reversed(operators):
            operand = _unary(operator, operand)
        self._depth -= len(operators)
        return operand

    def dot(self, source: tree.Expression) -> tree.Expression:
        self.expect(".")
        name = self.expect("name")
        return tree.Member(source.start, name.end, source, name.text)

    def bracket(self, source: tree.Expression) -> tree.Expression:
        """Parse what follows `source[`."""
        index = self.expression()
        end = self.expect("]").end
        if isinstance(index, tree.Literal) and isinstance(index.value, str):
            return tree.Member(source.start, end, source, index.value)
        return tree.Index(source.start, end, source, index)

    def atom(self) -> tree.Expression:
        token = self.token
        kind = token.kind
        if kind == "name":
            if self.peek().kind != "(":
                self.advance()
                return tree.Name(token.start, token.end, token.text)
            upper = token.text.upper()
            if upper in _SUBQUERY_NAMES and self.peek(2).kind == "SELECT":
                return self._subquery(upper)
            return self._call()
        if kind == "parameter":
            self.advance()
            return tree.Parameter(token.start, token.end, token.text)
        if kind == "string":
            self.advance()
            return tree.Literal(token.start, token.end, token.text)
        if kind == "number":
            self.advance()
            return tree.Literal(token.start, token.end, number_value(token))
        if kind in _WORDS:
            self.advance()
            return tree.Literal(token.start, token.end, _WORDS[kind])
        if kind == "(":
            if self.peek().kind == "SELECT":
                return self._subquery("")
            self.advance()
            inner = self.expression()
            self.expect(")")
            return inner
        if kind == "[":
            return self._array()
        if kind == "{":
            return self._object()
        if kind in ("LEFT", "RIGHT"):
            return self._call()
        if kind in ("EXISTS", "ARRAY"):
            return self._subquery(kind)
        if kind == "udf":
            return self._call()
        raise syntax_error(token, "an expression")

    def _call(self) -> tree.Call:
        start = self.token.start
        is_user_defined = self.accept("udf") is not None
        if is_user_defined:
            self.expect(".")
            name = self.expect("name")
        else:
            name = self.advance()
        self.count()
        self.expect("(")
        arguments = () if self.token.kind == ")" else self.expressions()
        end = self.expect(")").end
        text = name.text if is_user_defined else name.text.upper()
        return tree.Call(start, end, text, arguments, is_user_defined, name.end)

    def _subquery(self, kind: str) -> tree.Subquery:
        start = self.token.start
        if kind:
            self.advance()
        self.expect("(")
        self._deepen()
        self._nesting += 1
        self.count(_SUBQUERY_WEIGHT)
        if self._nesting > limits.QUERY_NESTING_MAX:
            message = f"The query nests more than {limits.QUERY_NESTING_MAX} subqueries; simplify it."
            raise query_error("SC1001", message, self.token.start, self.token.end)
        query = self.query()
        self._nesting -= 1
        self._depth -= 1
        end = self.expect(")").end
        return tree.Subquery(start, end, kind, query)

    def _array(self) -> tree.ArrayLiteral:
        start = self.expect("[").start
        elements = () if self.token.kind == "]" else self.expressions()
        end = self.expect("]").end
        return tree.ArrayLiteral(start, end, elements)

    def _object(self) -> tree.ObjectLiteral:
        start = self.expect("{").start
        pairs: list[tuple[str, tree.Expression]] = []
        while self.token.kind != "}":
            if pairs:
                self.expect(",")
            if self.token.kind not in ("name", "string"):
                raise syntax_error(self.token, "the name of a property")
            name = self.advance().text
            self.expect(":")
            pairs.append((name, self._listed()))
        end = self.expect("}").end
        return tree.ObjectLiteral(start, end, tuple(pairs))


def too_deep(token: Token) -> Failure:
    message = f"The query nests more than {limits.QUERY_DEPTH_MAX} expressions; simplify it."
    return query_error("SC1001", message, token.start, token.end)


def too_many_operators(start: int, end: int) -> Failure:
    message = f"The query has too many operators, more than {limits.QUERY_OPERATORS_MAX}; simplify it."
    return query_error("SC1001", message, start, end)


def _unary(operator: Token, operand: tree.Expression) -> tree.Expression:
    value = operand.value if isinstance(operand, tree.Literal) else None
    if operator.kind == "-" and isinstance(value, (int, float)) and not isinstance(value, bool):
        # A signed number is a literal, so that index conditions and plans recognize it. (2**63 does not fit a 64-bit
        # integer, but its negative has.)
        negative = int(-value) if value == 2**63 else -value
        return tree.Literal(operator.start, operand.end, negative)
    return tree.Unary(operator.start, operand.end, operator.kind, operand)
