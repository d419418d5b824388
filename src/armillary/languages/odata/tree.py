"""What a filter says, as a tree: comparisons of a property with a constant, joined by and, or and not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from armillary.model import edm


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant and its type: an EDM type number. All numbers are compared as numbers, whatever their type."""

    kind: int
    value: bool | int | float | str | bytes  # of a time, its ticks; of a guid, its text

    @property
    def is_number(self) -> bool:
        return self.kind in (edm.INT32, edm.INT64, edm.DOUBLE)


@dataclass(frozen=True, slots=True)
class Comparison:
    property: str
    operator: str  # eq ne lt le gt ge, with the property on the left
    literal: Literal


@dataclass(frozen=True, slots=True)
class Flag:
    """A property that stands alone: its truth."""

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
