"""Settings of the MongoDB door: those that the server is started with, what the holder of a key may do, and the
profiler's level in each database.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from armillary import limits


@dataclass(frozen=True, slots=True)
class MongoSettings:
    version: str = "7.0"
    needs_authentication: bool = True
    advertised_host: str | None = None
    has_test_commands: bool = False
    transaction_s: float = limits.MONGO_TRANSACTION_SECONDS
    throughput_ru: int = limits.THROUGHPUT_MIN_RU  # of new collections that name no throughput


class Grant(IntEnum):
    """What a client may do; each grant includes those before it."""

    NOTHING = 0
    READ = 1
    WRITE = 2


class ProfilingLevel(NamedTuple):
    level: int = 0  # 0: off, 1: slow commands, 2: all commands
    slow_ms: int = 100
    sample_rate: float = 1.0


class ProfilingLevels:
    """The profiler's level in each database. Lost when the server stops, as with MongoDB."""

    def __init__(self) -> None:
        self.levels: dict[str, ProfilingLevel] = {}
        self.is_on = False

    def of(self, database: str) -> ProfilingLevel:
        return self.levels.get(database, ProfilingLevel())

    def set(self, database: str, level: ProfilingLevel) -> None:
        self.levels[database] = level
        self.is_on = any(each.level for each in self.levels.values())
