"""The settings of a catalog, for the balancer."""

from __future__ import annotations

from armillary.cluster.placement.record import SETTING, PlacementRecord


class KeptSettings:
    """Implements PlacementStore."""

    def __init__(self, record: PlacementRecord | None = None) -> None:
        self.kept: dict[str, bytes] = {} if record is None else {SETTING: record.pack()}

    async def kept_setting(self, name: str) -> bytes | None:
        return self.kept.get(name)

    async def keep_setting(self, name: str, value: bytes) -> None:
        self.kept[name] = value

    @property
    def record(self) -> PlacementRecord:
        return PlacementRecord.unpack(self.kept.get(SETTING))
