"""A node stops at any moment while its replica is built from another node: afterwards it has its former replica or the
whole new one, and a copy that is continued ends well."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.copied_node import GENERATION, CopiedNode, contents, opened

from armillary.clock import SystemClock
from armillary.cluster.bootstrap import needs_bootstrap
from armillary.storage import private
from armillary.storage.directory import DataDirectory
from armillary.storage.replication import arriving_copy
from armillary.storage.replication.arriving_copy import ArrivingCopy
from armillary.storage.replication.local_replica import LocalReplica
from armillary.storage.replication.replicated_engine import ReplicatedEngine


class Stop(BaseException):
    """The process ends here."""


class Stopping:
    """Counts the steps that change files of a directory, and stops before one of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.path = Path()
        self.steps = 0
        self.stops_at: int | None = None
        for owner, name in ((os, "fsync"), (os, "rename"), (shutil, "rmtree"), (Path, "unlink"), (Path, "mkdir")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))
        patch.setattr(arriving_copy, "open_file", self._counted(private.open_file))
        patch.setattr(ArrivingCopy, "add", lambda *given: self._added(*given))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **options: Any) -> Any:
            is_handle = isinstance(given[0], int)
            path = Path(os.readlink(f"/proc/self/fd/{given[0]}") if is_handle else given[0])
            if path.is_relative_to(self.path):
                self._step()
            return function(*given, **options)

        return run

    def _step(self) -> None:
        if self.stops_at is not None:
            self.steps += 1
            if self.steps >= self.stops_at:  # nothing happens after it either
                raise Stop

    def _added(self, copy: ArrivingCopy, name: str, offset: int, content: bytes) -> None:
        """In two halves, so that the process can stop in the middle of a part."""
        half = len(content) // 2
        for start, piece in ((0, content[:half]), (half, content[half:])):
            self._step()
            with open(copy._path / name, "r+b" if offset + start else "wb") as file:
                file.seek(offset + start)
                file.write(piece)


async def test_a_node_stops_at_each_step_of_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await CopiedNode.open(tmp_path)
    await node.fetch_to(tmp_path / "b")
    former = await contents(node.engine)
    await node.log.remove("b")
    for number in (1, 2):
        await node.write(number, rows=50)
    await node.trim()
    wanted = await contents(node.engine)
    stopping = Stopping(monkeypatch)
    stops = whole = 0
    is_over = False
    while not is_over:
        stops += 1
        path = tmp_path / f"b{stops}"
        stopping.stops_at = None
        shutil.copytree(tmp_path / "b", path)
        directory = DataDirectory.claim(path)
        stopping.path, stopping.steps, stopping.stops_at = path, 0, stops
        try:
            await node.fetch(directory)
            is_over = True
        except Stop:
            pass
        stopping.stops_at = None
        directory.release()
        found, is_cut_off = await replica_in(path, node)
        assert found == (former if is_cut_off else wanted), f"after a stop at step {stops}"
        whole += not is_cut_off
        if is_cut_off:
            await node.fetch_to(path)
            assert await replica_in(path, node) == (wanted, False), f"continued after a stop at step {stops}"
        assert {each.name for each in path.iterdir()} <= {"FORMAT", "LOCK", "rocks", "checkpoints", "load"}
        await asyncio.to_thread(shutil.rmtree, path)
    assert stops > 30, "steps are counted"
    assert whole >= 2, "a stop after the exchange leaves the new replica"
    await node.close()


async def replica_in(path: Path, node: CopiedNode) -> tuple[dict[bytes, bytes], bool]:
    """What a restarted node finds, and whether it has to be built anew."""
    replica = LocalReplica.open(DataDirectory.claim(path), GENERATION, reserve_bytes=0)
    engine = ReplicatedEngine(replica, SystemClock())
    try:
        return await contents(engine), await needs_bootstrap(replica.position, node.log)
    finally:
        await engine.close()


async def test_a_stop_between_the_two_renames_keeps_the_former_replica(tmp_path: Path) -> None:
    node = await CopiedNode.open(tmp_path)
    await node.fetch_to(tmp_path / "b")
    (tmp_path / "b" / "rocks").rename(tmp_path / "b" / "rocks.former")
    engine, _ = await opened(tmp_path / "b", node.server)
    assert await contents(engine) == await contents(node.engine)
    await engine.close()
    await node.close()
