"""What requests to a container have cost during a part of a test, from the server's metrics."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from armillary.tools.remote import Server as ControlApi

_METRICS: Final = {
    "requests_total": "requests",
    "charge_request_units_total": "ru",
    "refused_total": "refused",
    "would_be_refused_total": "would_be_refused",
}
_SAMPLE: Final = re.compile(r"^armillary_(\w+)\{(.*)\} (\S+)$", re.MULTILINE)


class Totals(NamedTuple):
    """Of a container, since the server has started."""

    requests: float = 0.0
    ru: float = 0.0
    refused: float = 0.0
    would_be_refused: float = 0.0


class Charges:
    """Filled at the end of the `with` block that counts."""

    def __init__(self) -> None:
        self._counted: Totals | None = None

    def end(self, before: Totals, after: Totals) -> None:
        self._counted = Totals(*(last - first for first, last in zip(before, after, strict=True)))

    @property
    def ru(self) -> float:
        """Request units, to the hundredth."""
        return round(self._totals.ru, 2)

    @property
    def requests(self) -> int:
        """About items; refused ones included."""
        return int(self._totals.requests)

    @property
    def refused(self) -> int:
        """With 429, by budgets that are enforced. Those of fault rules are not counted."""
        return int(self._totals.refused)

    @property
    def would_be_refused(self) -> int:
        """Served, because budgets are only observed."""
        return int(self._totals.would_be_refused)

    @property
    def _totals(self) -> Totals:
        if self._counted is None:
            raise RuntimeError("charges are known after the `with` block that counts them")
        return self._counted

    def __repr__(self) -> str:
        if self._counted is None:
            return "Charges(counting)"
        return f"Charges(ru={self.ru}, requests={self.requests}, refused={self.refused})"


def totals_of(control: ControlApi, database: str, container: str) -> Totals:
    text = (control.get_bytes("metrics") or b"").decode()
    wanted = f'database="{_escaped(database)}",container="{_escaped(container)}"'
    found = {
        _METRICS[name]: float(value)
        for name, labels, value in _SAMPLE.findall(text)
        if labels == wanted and name in _METRICS
    }
    return Totals(**found)


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
