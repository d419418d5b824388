"""Smaller limits for one test: the fixture `with_limits`, the only way in which tests change `armillary.limits`.

    async def test_the_sweep_goes_in_portions(with_limits: WithLimits) -> None:
        with_limits(SWEEP_ITEMS_MAX=10)

The limits are restored when the test ends, or earlier by `with_limits.restore()`. Refused are names that do not exist,
values of another type, and limits that a module copied when it was imported, on which a change has no effect. Where a
limit is a setting or an argument, tests hand that in instead. Processes that a test starts have the product's limits.
"""

from __future__ import annotations

import sys

import pytest

from armillary import cluster_limits, foresight_limits, history_limits, limits


class WithLimits:
    """with_limits(NAME=value, ...), as often as the test needs. Made by the fixture in tests/conftest.py."""

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        self._looked_for: set[str] = set()  # once for each name: a test may change a limit for each of many queries

    def __call__(self, **values: float) -> None:
        for name, value in values.items():
            present = vars(limits).get(name) if name.isupper() else None
            assert present is not None, f"armillary.limits has no {name}"
            assert type(value) is type(present), f"{name} is {present!r}: {value!r} is of another type"
            if name not in self._looked_for:
                copies = copies_of(name)
                assert not copies, f"{copies} imported {name} by its name: change them to read limits.{name}"
                self._looked_for.add(name)
            self._patch.setattr(limits, name, value)

    def restore(self) -> None:
        self._patch.undo()


def copies_of(name: str) -> list[str]:
    """The loaded modules that have a limit under its own name, beside the table itself."""
    ours = [
        each
        for path, each in sys.modules.items()
        if path.startswith("armillary.") and each not in (limits, cluster_limits, foresight_limits, history_limits)
    ]
    return sorted(each.__name__ for each in ours if name in vars(each))
