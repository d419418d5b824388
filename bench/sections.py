"""The result of a section of the benchmark that has its own servers and tables: lines to print, targets with the values
reached, and all figures. `run.py` lists the sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Say = Callable[[str], None]


class Aim(NamedTuple):
    text: str
    found: float | None
    wanted: float
    is_most: bool = False  # at most; else at least

    @property
    def is_reached(self) -> bool:
        return self.found is not None and (self.found <= self.wanted if self.is_most else self.found >= self.wanted)

    def line(self) -> str:
        verdict = "not measured" if self.found is None else "PASS" if self.is_reached else "miss"
        found = "" if self.found is None else f"{self.found:.2f}"
        return f"  {verdict:<12} {self.text:<76} {'≤' if self.is_most else '≥'} {self.wanted:g}: {found}"


class Section(Protocol):
    def lines(self) -> Iterable[str]: ...

    def aims(self) -> Iterable[Aim]: ...

    def to_json(self) -> dict[str, Any]: ...


class Measure(Protocol):
    def __call__(self, directory: Path, *, is_quick: bool, say: Say) -> Section: ...


def row(name: str, cells: list[str]) -> str:
    return f"  {name:<64}" + "".join(f"{cell:>10}" for cell in cells)
