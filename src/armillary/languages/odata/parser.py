"""Parses a $filter text to a syntax tree: comparisons of a property with a constant, joined by and, or and not. `and`
binds tighter than `or`; the operand of `not` is in brackets, or one property.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.languages.odata.lexer import Literal, Token, filter_error, tokens_of

_FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_KEYWORDS = frozenset([*_FLIPPED, "and", "or", "not"])


@dataclass(frozen=True, slots=True)
class Comparison:
    """A property compared with a constant."""

    property: str
    operator: str  # eq ne lt le gt ge, with the property on the left
    literal: Literal


@dataclass(frozen=True, slots=True)
class Flag:
    """A property used as a condition by itself: true if its value is true."""

    property: str


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Expression, ...]


Expression: TypeAlias = Comparison | Flag | Not | And | Or


def parse_filter(text: str) -> Expression:
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokens_of(text)
        self._place = 0
        self._depth = 0

    def whole(self) -> Expression:
        expression = self._either()
        if self._next.kind != "end":
            raise filter_error(f"nothing can follow here, but {self._next.text[:40]!r} does", self._next.at)
        return expression

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        token = self._tokens[self._place]
        self._place += 1
        return token

    def _takes(self, text: str) -> bool:
        """Consume the next token if it is this word or bracket. Returns whether it was."""
        token = self._next
        if token.kind in ("word", "bracket") and token.text == text:
            self._place += 1
            return True
        return False

    def _either(self) -> Expression:
        operands = [self._both()]
        while self._takes("or"):
            operands.append(self._both())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _both(self) -> Expression:
        operands = [self._unary()]
        while self._takes("and"):
            operands.append(self._unary())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _unary(self) -> Expression:
        self._depth += 1
        if self._depth > limits.QUERY_DEPTH_MAX:
            raise filter_error(f"it nests deeper than {limits.QUERY_DEPTH_MAX} levels", self._next.at)
        if self._takes("not"):
            expression: Expression = Not(self._unary())
        elif self._takes("("):
            expression = self._either()
            if not self._takes(")"):
                raise filter_error("a bracket is not closed", self._next.at)
        else:
            expression = self._comparison()
        self._depth -= 1
        return expression

    def _comparison(self) -> Expression:
        left, at = self._operand(), self._next.at
        operator = self._next.text if self._next.kind == "word" else ""
        if operator not in _FLIPPED:
            if isinstance(left, str):
                return Flag(left)
            raise filter_error("a comparison is expected", at)
        self._take()
        right = self._operand()
        if isinstance(left, str) and isinstance(right, Literal):
            return Comparison(left, operator, right)
        if isinstance(left, Literal) and isinstance(right, str):
            return Comparison(right, _FLIPPED[operator], left)
        raise filter_error("one side of a comparison must be a property, the other one a constant", at)

    def _operand(self) -> str | Literal:
        token = self._take()
        if token.literal is not None:
            return token.literal
        if token.kind == "word" and token.text not in _KEYWORDS:
            if self._next.text == "(" and self._next.kind == "bracket":
                raise Failure(
                    Kind.UNSUPPORTED,
                    "The requested operation is not implemented on the specified resource: functions such as "
                    f"{token.text[:40]}() are not part of the filters of tables. Texts that begin with 'ab' are "
                    "written Name ge 'ab' and Name lt 'ac'.",
                )
            return token.text
        what = f"not {token.text[:40]!r}" if token.kind != "end" else "and the filter ends"
        raise filter_error(f"a property or a constant is expected, {what}", token.at)
