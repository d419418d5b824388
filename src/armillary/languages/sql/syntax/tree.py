"""The abstract syntax tree of a query: made by the parser, read by the checker, the compiler and the planner. Every
node has its place in the text (`start`, `end`, in characters, end exclusive), for error messages. The nodes cover the
whole language; unsupported features are refused by `check.py`.

Nodes are immutable by convention. They are not frozen dataclasses, because creating those takes twice as long, which
would add a third to the time of parsing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from armillary.model.values import Value


@dataclass(slots=True, eq=False)
class Node:
    start: int
    end: int


@dataclass(slots=True, eq=False)
class Literal(Node):
    value: Value


@dataclass(slots=True, eq=False)
class Parameter(Node):
    name: str  # with its @


@dataclass(slots=True, eq=False)
class Name(Node):
    """A reference to an alias of the FROM clause."""

    name: str


@dataclass(slots=True, eq=False)
class Member(Node):
    """`source.name` or `source["name"]`."""

    source: Expression
    name: str


@dataclass(slots=True, eq=False)
class Index(Node):
    """`source[index]` with anything but a string literal: a position, a parameter, an expression."""

    source: Expression
    index: Expression


@dataclass(slots=True, eq=False)
class Unary(Node):
    operator: str  # - + ~ NOT
    operand: Expression


@dataclass(slots=True, eq=False)
class Binary(Node):
    """Arithmetic, bitwise, concatenation and comparison. Left-associative; chains may be thousands long."""

    operator: str
    left: Expression
    right: Expression


@dataclass(slots=True, eq=False)
class Logic(Node):
    """AND, OR and ??; a chain of operands is one node."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(slots=True, eq=False)
class In(Node):
    needle: Expression
    values: tuple[Expression, ...]
    is_negated: bool


@dataclass(slots=True, eq=False)
class Between(Node):
    operand: Expression
    low: Expression
    high: Expression
    is_negated: bool


@dataclass(slots=True, eq=False)
class Like(Node):
    operand: Expression
    pattern: Expression
    escape: str | None
    is_negated: bool


@dataclass(slots=True, eq=False)
class Conditional(Node):
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(slots=True, eq=False)
class ArrayLiteral(Node):
    elements: tuple[Expression, ...]


@dataclass(slots=True, eq=False)
class ObjectLiteral(Node):
    pairs: tuple[tuple[str, Expression], ...]


@dataclass(slots=True, eq=False)
class Call(Node):
    name: str  # upper case for built-in functions, as written for user-defined ones
    arguments: tuple[Expression, ...]
    is_user_defined: bool
    name_end: int


@dataclass(slots=True, eq=False)
class Subquery(Node):
    kind: str  # "" (scalar), EXISTS, ARRAY, ALL, FIRST, LAST
    query: Query


@dataclass(slots=True, eq=False)
class Slot(Node):
    """A variable of the compiled code that replaces an expression whose value was computed before, e.g. a group key."""

    source: str  # in the compiled code


Expression: TypeAlias = (
    Literal
    | Parameter
    | Name
    | Member
    | Index
    | Unary
    | Binary
    | Logic
    | In
    | Between
    | Like
    | Conditional
    | ArrayLiteral
    | ObjectLiteral
    | Call
    | Subquery
    | Slot
)


@dataclass(slots=True, eq=False)
class Item(Node):
    """One entry of a SELECT list."""

    expression: Expression
    alias: str | None


@dataclass(slots=True, eq=False)
class Select(Node):
    kind: str  # "*", "VALUE" or "LIST"
    items: tuple[Item, ...]
    is_distinct: bool
    top: Expression | None


@dataclass(slots=True, eq=False)
class Source(Node):
    """One source of FROM or JOIN: the container (a Name), a path in it, a subquery or a call. With `is_iterated` it
    stands for the elements of an array (`alias IN source`)."""

    expression: Expression
    alias: str | None
    is_iterated: bool


@dataclass(slots=True, eq=False)
class Order(Node):
    expression: Expression
    is_descending: bool
    has_direction: bool = False  # ASC or DESC is written


@dataclass(slots=True, eq=False)
class Query(Node):
    select: Select
    sources: tuple[Source, ...]  # FROM, then each JOIN; empty without FROM
    where: Expression | None
    group_by: tuple[Expression, ...]
    order_by: tuple[Order, ...]
    is_ranked: bool  # ORDER BY RANK
    offset: Expression | None
    limit: Expression | None
