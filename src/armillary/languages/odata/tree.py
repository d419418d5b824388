"""The syntax tree of a $filter: comparisons of a property with a constant, joined by and, or and not. `parser.py` makes
it; `filters.py` and `compile.py` read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from armillary.model import edm


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant and its EDM type number. Numbers of all types are compared by value."""

    kind: int
    value: bool | int | float | str | bytes  # a time as ticks, a guid as text

    @property
    def is_number(self) -> bool:
        return self.kind in (edm.INT32, edm.INT64, edm.DOUBLE)


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
