"""What an advice is given for: how much data there will be, what throughput is thought of, which paths the application
knows, and the limits of partitions. Everything that was assumed because it was not given is named, for the report.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from armillary.insight.advice.candidates import HIERARCHICAL, SINGLE, Candidate
from armillary.insight.advice.reading.value_counts import Estimate
from armillary.insight.planning.needs import UTILISATION
from armillary.insight.planning.partition_counts import DEFAULT_LIMITS, PartitionLimits
from armillary.limits import GB, SERVERLESS_PARTITION_RU

HORIZON_DAYS: Final = 730.0
INDEX_SHARE: Final = 0.2  # of the bytes, which the cloud counts as storage


@dataclass(frozen=True, slots=True)
class KnownFigures:
    """What the server of a container knows exactly, beside a sample of its items: it has no sampling error."""

    items: int
    size_bytes: int
    paths: tuple[str, ...] = ()  # of the present key
    keys: int | None = None  # values of it
    largest_bytes: int = 0
    largest_name: str = ""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> KnownFigures:
        """From what `exact_figures` of `insight/item_lines.py` answers."""
        largest = (content["largest"] or [None])[0]
        return cls(
            content["items"],
            content["bytes"],
            tuple(content["paths"]),
            content["keys"],
            largest["bytes"] if largest is not None else 0,
            _name(largest["key"]) if largest is not None else "",
        )

    def is_of(self, candidate: Candidate) -> bool:
        """Whether the values of a candidate are known: it is the present key."""
        is_plain = candidate.kind in (SINGLE, HIERARCHICAL)
        return self.keys is not None and self.size_bytes > 0 and is_plain and candidate.paths == self.paths

    @property
    def distinct(self) -> Estimate:
        keys = float(self.keys or 0)
        return Estimate(keys, keys, keys)

    @property
    def top_share(self) -> Estimate:
        share = min(1.0, self.largest_bytes / self.size_bytes)
        return Estimate(share, share, share)


def _name(key: Any) -> str:
    parts = key if isinstance(key, list) else [key]
    return ", ".join(part if isinstance(part, str) else json.dumps(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Plan:
    size_bytes: float | None = None  # of all data today; None: what was read is all there is
    items: int | None = None  # instead of the size
    growth_bytes_day: float = 0.0
    horizon_days: float = HORIZON_DAYS
    throughput_ru: int | None = None
    is_autoscale: bool = False
    is_serverless: bool = False
    utilisation: float = UTILISATION
    limits: PartitionLimits = DEFAULT_LIMITS
    index_share: float = 0.0
    must: Collection[str] = ()
    never: Collection[str] = ()
    known: Collection[str] = field(default_factory=frozenset)
    presence: float = 0.99
    seed: int = 1
    figures: KnownFigures | None = None  # of a container, known exactly

    def today_bytes(self, read_bytes: float, rows: int) -> float:
        if self.items is not None:
            size = self.items * read_bytes / rows if rows else 0.0
        else:
            size = self.size_bytes if self.size_bytes is not None else self._all_bytes(read_bytes)
        return size * (1.0 + self.index_share)

    def horizon_bytes(self, read_bytes: float, rows: int) -> float:
        return self.today_bytes(read_bytes, rows) + self.growth_bytes_day * self.horizon_days

    def _all_bytes(self, read_bytes: float) -> float:
        return float(self.figures.size_bytes) if self.figures is not None else read_bytes

    def is_sample_of(self, rows: int) -> bool:
        """Whether the rows that were read are a part of the data."""
        if self.figures is not None and rows < self.figures.items:
            return True
        return not self.is_all_data

    @property
    def partition_ru(self) -> float:
        """What one partition carries."""
        return float(SERVERLESS_PARTITION_RU if self.is_serverless else self.limits.throughput_ru)

    @property
    def is_all_data(self) -> bool:
        return self.size_bytes is None and self.items is None

    def assumptions(self, read_bytes: float, rows: int) -> list[str]:
        found = []
        if self.figures is not None:
            found.append(_sampled_text(self.figures, rows))
        elif self.is_all_data:
            found.append(f"the {rows:,} rows that were read are all data there is (--size, --items)")
        if not self.growth_bytes_day:
            found.append("the data does not grow (--growth)")
        else:
            growth = self.growth_bytes_day / GB
            found.append(f"the data grows by {growth:,.2f} GB a day for {self.horizon_days:,.0f} days (--horizon)")
        if self.index_share:
            found.append(f"the index takes {100 * self.index_share:.0f} % of the bytes, as storage of the cloud")
        text = self.limits.text.rstrip(".")
        found.append(text[0].lower() + text[1:])
        found.append(f"the hottest partition may use {100 * self.utilisation:.0f} % of its share (--utilisation)")
        return found


def _sampled_text(figures: KnownFigures, rows: int) -> str:
    known = f"the number of items and their {figures.size_bytes / GB:,.3f} GB are exact"
    if figures.keys is not None:
        known += f", as are the {figures.keys:,} values of the present key and the largest of them"
    if rows >= figures.items:
        return f"all {figures.items:,} items of the container were read; {known}"
    return f"{rows:,} of {figures.items:,} items were read, drawn at random; {known}"
