"""Splits and merges that another process runs, as it tells of them (`armillary serve --processes`)."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.account.container import Container
from armillary.account.reshaping.split_and_merge import Reshape
from armillary.partition.reshaping.copying import Progress


@dataclass(slots=True)
class ReshapeTold:
    """As it is sent."""

    number: int
    reason: str
    parents: tuple[int, ...]
    children: list[tuple[bytes, bytes]]
    point: str
    waits_for: str | None
    is_paused: bool
    progress: Progress


def told_of(reshape: Reshape, *, is_paused: bool) -> ReshapeTold:
    return ReshapeTold(
        reshape.number,
        reshape.reason,
        tuple(reshape.parents),
        reshape.children,
        reshape.point,
        reshape.waits_for,
        is_paused,
        reshape.progress,
    )


class ToldReshape(Reshape):
    """What is shown of it in another process, which asks the one that runs it for everything else."""

    def __init__(self, told: ReshapeTold, container: Container, process: int) -> None:
        self.container = container
        self.process = process
        self.number = told.number
        self.parents = told.parents
        self.reason = told.reason
        self.point = told.point
        self.waits_for = told.waits_for
        self.is_paused = told.is_paused
        self.is_switching = self.is_done = self.is_left = False
        self.task = None
        self._told = told

    @property
    def progress(self) -> Progress:
        return self._told.progress

    @property
    def children(self) -> list[tuple[bytes, bytes]]:
        return self._told.children
