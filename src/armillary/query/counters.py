"""What the work of a page comes to: counted while it is done, charged when it is answered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """The work of one page, for its charge and its metrics."""

    seeks: int = 0
    precise_scans: int = 0
    items_loaded: int = 0
    items_missed: int = 0  # of these, how many gave no row
    bytes_loaded: int = 0
    joined_tuples: int = 0
    sorted_rows: int = 0
    user_calls: int = 0
    is_full_scan: bool = False

    def add(self, other: Counters) -> None:
        self.seeks += other.seeks
        self.precise_scans += other.precise_scans
        self.items_loaded += other.items_loaded
        self.items_missed += other.items_missed
        self.bytes_loaded += other.bytes_loaded
        self.joined_tuples += other.joined_tuples
        self.sorted_rows += other.sorted_rows
        self.user_calls += other.user_calls
        self.is_full_scan = self.is_full_scan or other.is_full_scan

    def load(self, payload: bytes) -> None:
        self.items_loaded += 1
        self.bytes_loaded += len(payload)
