"""Pages of items (being written)."""
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Any
from armillary.errors import Failure, Kind

@dataclass(slots=True)
class FeedOptions:
    key: Any = None
    range_id: str | None = None
    epk_range: Any = None
    page_items: int = 100
    continuation: str | None = None
    session: Any = None
    read_factor: int = 1
    is_cross_partition_allowed: bool = True

@dataclass(slots=True)
class PageAnswer:
    rows: list[bytes] = field(default_factory=list)
    continuation: str | None = None
    charge_ru: float = 0
    lsns: list[tuple[int, int]] = field(default_factory=list)

async def read_feed(*a: Any) -> PageAnswer:
    raise Failure(Kind.UNSUPPORTED, "being written")
query = read_feed
