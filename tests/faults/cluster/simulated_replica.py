"""The disk of a node in a simulation: a database in memory whose crash loses a random part of what was not synced."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary.storage.directory import DataDirectory
from armillary.storage.memory import SortedMap
from armillary.storage.overlay import Layer, Pair
from armillary.storage.rocks_database import Database, KeptState, Version


class Disk:
    """What is left of a node when its process dies."""

    def __init__(self) -> None:
        self.synced = SortedMap()
        self.unsynced: list[Layer] = []
        self.is_stalled = False  # writes are refused, as by a compaction that is behind

    def crash(self, dice: random.Random) -> None:
        """Everything synced stays, and a beginning of the rest."""
        for layer in self.unsynced[: dice.randint(0, len(self.unsynced))]:
            self.synced.apply(layer)
        self.unsynced = []


class SimulatedDirectory(DataDirectory):
    def __init__(self) -> None:
        self.is_full = False
        self.engine_path, self.load_path = Path("rocks"), Path("load")  # type: ignore[misc]

    def free_bytes(self) -> int:
        return 0 if self.is_full else 1 << 40

    def release(self) -> None:
        return


class SimulatedDatabase(Database):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._map = SortedMap()
        self._map.copy_from(disk.synced)
        for layer in disk.unsynced:
            self._map.apply(layer)

    def get(self, key: bytes) -> bytes | None:
        return self._map.get(key)

    def scan(self, low: bytes, high: bytes, reverse: bool, skip: int) -> Iterator[Pair]:
        return ((key[skip:], value) for key, value in self._map.scan(low, high, reverse))

    def batch(self, layer: Layer) -> Any:
        copy = Layer()
        copy.absorb(layer)
        return copy

    def write(self, batch: Any) -> None:
        if self._disk.is_stalled:
            raise Exception("Result incomplete: Write stall")  # in the form of the binding
        changed = SortedMap()
        changed.copy_from(self._map)
        changed.apply(batch)
        self._map = changed
        self._disk.unsynced.append(batch)

    def sync(self) -> None:
        for layer in self._disk.unsynced:
            self._disk.synced.apply(layer)
        self._disk.unsynced = []

    def version(self) -> Version:
        return SimulatedVersion(self, self._map)

    def keep(self) -> KeptState:
        raise NotImplementedError("no simulation keeps a state")

    def finish(self) -> None:
        self.sync()

    def stop_background(self) -> None:
        return

    def close(self) -> None:
        return


class SimulatedVersion(Version):
    __slots__ = ("_map",)

    def __init__(self, database: SimulatedDatabase, state: SortedMap) -> None:
        super().__init__(database, _Snapshot(state))  # type: ignore[arg-type]
        self._map = state

    def hold(self) -> None:
        return

    def scan(self, low: bytes, high: bytes, reverse: bool, skip: int) -> Iterator[Pair]:
        return ((key[skip:], value) for key, value in self._map.scan(low, high, reverse))


class _Snapshot:
    def __init__(self, state: SortedMap) -> None:
        self._map = state

    def __getitem__(self, key: bytes) -> bytes:
        value = self._map.get(key)
        if value is None:
            raise Exception("key not found")  # in the form of the binding
        return value
