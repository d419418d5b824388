"""The settings of a catalog, for the balancer."""

from __future__ import annotations

from armillary.cluster.placement.record import SETTING, PlacementRecord


class KeptSettings:
    """Implements PlacementStore. Balancing is on, unless a record says otherwise."""

    def __init__(self, record: PlacementRecord = PlacementRecord()) -> None:  # noqa: B008 - it does not change
        self.kept: dict[str, bytes] = {SETTING: record.pack()}

    async def kept_setting(self, name: str) -> bytes | None:
        return self.kept.get(name)

    async def keep_setting(self, name: str, value: bytes) -> None:
        self.kept[name] = value

    @property
    def record(self) -> PlacementRecord:
        return PlacementRecord.unpack(self.kept.get(SETTING))
