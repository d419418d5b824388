"""What of a large test `make test` runs, and what only `make soak` does: some seeds, cells or inputs of many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Amount = Callable[[int], int]  # of the inputs that a random test has: the fixture `amount`


def first(count: int, values: Iterable[Any]) -> list[Any]:
    """Values of parametrize: the first `count` are for every run, the others have the mark `soak`."""
    return [
        value if place < count else pytest.param(value, marks=pytest.mark.soak) for place, value in enumerate(values)
    ]
