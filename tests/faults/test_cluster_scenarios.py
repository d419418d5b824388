"""Single misfortunes of a cluster of processes: a log that was set back, a full disk, two versions side by side."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import uvloop
from faults.cluster_processes.fixtures import NAMES, trio
from faults.cluster_processes.nemesis import Nemesis
from faults.cluster_processes.processes import ClusterProcesses, NodeProcess, waits_for
from faults.test_full_disk import fill
from support.disk import small_disk
from support.postgres import PostgresServer, PostgresTrio
from support.process import clean_environment

from armillary.limits import MB

__all__ = ["trio"]
SET_BACK = "The replicated log was set back"
REFUSED = 2  # the exit code of a server that cannot go on as it was configured
DISK_BYTES = 192 * MB
ROOT = Path(__file__).parents[2]


async def begun(trio: PostgresTrio, scratch: Path, seed: int) -> Nemesis:
    cluster = ClusterProcesses(trio, scratch)
    nemesis = Nemesis(cluster, seed)
    try:
        await cluster.start(*NAMES)
        await nemesis.begin()
    except BaseException:
        await nemesis.close()
        raise
    return nemesis


async def stopped_by_themselves(nodes: list[NodeProcess]) -> None:
    """Each node ends with a code that says so, and its log with the reason."""
    for node in nodes:
        code = await asyncio.wait_for(node.wait_until_dead(), 90)
        node.is_serving = False
        assert code == REFUSED, f"{node.name} ended with {code}: {node.log_text}"
        assert SET_BACK in node.log_text


# A log that was set back.


def test_postgresql_is_restored_to_an_earlier_point(trio: PostgresTrio, tmp_path: Path, seed: int) -> None:
    async def run() -> None:
        nemesis = await begun(trio, tmp_path, seed)
        cluster, primary = nemesis.cluster, trio.primary
        try:
            behind = (await cluster.followers())[0]
            await nemesis.end_load()
            await nemesis.compare()
            await behind.kill()
            # The copy is taken while the server is down, as a file system's snapshot could be.
            kept = primary.directory.with_name("kept")
            primary.stop()
            copy(primary.directory, kept)
            primary.start()
            await asyncio.to_thread(primary.wait_ready)
            nemesis.load()
            await nemesis.progress(50, "the copy")
            await nemesis.end_load()
            await nemesis.compare()
            await nemesis.close_drivers()
            for server in trio.servers:
                server.stop()
            shutil.rmtree(primary.directory)
            copy(kept, primary.directory)
            primary.start()
            await asyncio.to_thread(primary.wait_ready)
            for standby in trio.standbys:
                await asyncio.to_thread(standby.rebuild, primary)
                standby.start()
            await stopped_by_themselves([node for node in cluster.nodes.values() if node is not behind])
            await behind.start()  # it has nothing that the log does not have
        finally:
            await nemesis.close()

    uvloop.run(run())


def test_a_lagging_standby_is_promoted_by_force(trio: PostgresTrio, tmp_path: Path, seed: int) -> None:
    async def run() -> None:
        nemesis = await begun(trio, tmp_path, seed)
        cluster = nemesis.cluster
        try:
            former, (other, lagging) = trio.primary, trio.standbys
            lagging.configure("primary_conninfo = ''")
            lagging.reload()
            await receives_nothing(lagging)
            await nemesis.progress(50, "a standby lags")
            await nemesis.end_load()
            await nemesis.compare()
            await nemesis.close_drivers()
            former.kill()
            other.kill()
            assert await lagging.execute("SELECT pg_promote(true)")
            trio.primary, trio.standbys = lagging, []
            for server in (former, other):
                await cluster.rejoin(server)
            await stopped_by_themselves(list(cluster.nodes.values()))
        finally:
            await nemesis.close()

    uvloop.run(run())


async def receives_nothing(standby: PostgresServer) -> None:
    async def look() -> bool:
        return not await standby.execute("SELECT count(*) FROM pg_stat_wal_receiver")

    await waits_for(look, "the standby has ceased to receive")


def copy(source: Path, target: Path) -> None:
    """With the owner of each file: PostgreSQL does not run as root."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


# A full disk.


def test_a_follower_with_a_full_disk_does_not_stop_the_cluster(trio: PostgresTrio, tmp_path: Path, seed: int) -> None:
    async def run(disk: Path) -> None:
        cluster = ClusterProcesses(trio, tmp_path)
        nemesis = Nemesis(cluster, seed)
        try:
            await cluster.start("n1", "n2")
            node = await cluster.add("n3", "East", directory=disk / "n3")
            await node.start()
            await nemesis.begin()
            fill(disk, 0)
            await nemesis.until(lambda: "nearly full" in node.log_text, "the follower says that its disk is full")
            await nemesis.progress(100, "the disk of a follower is full")
            (disk / "ballast").unlink()
            await nemesis.check()
            await nemesis.check_directories()
        finally:
            await nemesis.close()
        assert not nemesis.violations, nemesis.report()

    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        uvloop.run(run(disk))


@pytest.mark.parametrize("leave_bytes", [32 * MB, 0], ids=["nearly", "entirely"])
def test_a_leader_with_a_full_disk_hands_over(trio: PostgresTrio, tmp_path: Path, seed: int, leave_bytes: int) -> None:
    async def run(disk: Path) -> None:
        cluster = ClusterProcesses(trio, tmp_path)
        nemesis = Nemesis(cluster, seed)
        try:
            node = await cluster.add("n1", "West", directory=disk / "n1")
            await node.start()
            for name in ("n2", "n3"):
                await (await cluster.add(name, "West")).start()
            await nemesis.begin()
            epoch = await cluster.epoch()
            assert await cluster.leader() is node
            fill(disk, leave_bytes)
            await nemesis.taken_over(epoch)
            await nemesis.progress(100, "the disk of the leader is full")
            assert await cluster.leader() is not node
            if not leave_bytes:  # RocksDB takes no more writes after one that failed, until it is opened again
                await node.kill()
            (disk / "ballast").unlink()
            if not leave_bytes:
                await node.start()
            await nemesis.check()
            await nemesis.check_directories()
        finally:
            await nemesis.close()
        assert not nemesis.violations, nemesis.report()

    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        uvloop.run(run(disk))


# Two versions.


class OtherVersion(NodeProcess):
    """A node that runs another version's code, until `upgrade`."""

    source: Path | None = None

    async def start(self, *, is_waiting: bool = True, environment: dict[str, str] | None = None) -> None:
        if self.source is None:
            await super().start(is_waiting=is_waiting, environment=environment)
            return
        self.incarnation += 1
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(  # type: ignore[assignment]  # noqa: ASYNC220
                [sys.executable, "-m", "armillary", *self.serve_arguments],
                env=clean_environment() | self.environment | {"PYTHONPATH": str(self.source / "src")},
                cwd=self.source,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        await self._wait_until_ready()
        self.is_serving = True


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The code of the commit before this one."""
    target = tmp_path / "previous"
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", "HEAD~1", "src", "pyproject.toml"], capture_output=True
    )
    if archive.returncode != 0:
        pytest.skip(f"there is no earlier commit here: {archive.stderr.decode().strip()}")
    packed = tmp_path / "previous.tar"
    packed.write_bytes(archive.stdout)
    with tarfile.open(packed) as file:
        file.extractall(target, filter="data")
    return target


def test_nodes_are_upgraded_one_after_the_other(trio: PostgresTrio, tmp_path: Path, previous: Path, seed: int) -> None:
    async def run() -> None:
        cluster = ClusterProcesses(trio, tmp_path, kind=OtherVersion)
        nemesis = Nemesis(cluster, seed)
        try:
            for name, region in zip(NAMES, ("West", "West", "East"), strict=True):
                node = await cluster.add(name, region)
                assert isinstance(node, OtherVersion)
                node.source = previous
            await asyncio.gather(*(node.start() for node in cluster.nodes.values()))
            await nemesis.begin()
            leader = await cluster.leader()
            for node in [*await cluster.followers(), leader]:
                assert isinstance(node, OtherVersion)
                assert await node.stop() == 0, node.log_text
                node.source = None
                await node.start()
                await nemesis.progress(50, f"{node.name} was upgraded")
            await nemesis.check()
            await nemesis.check_directories()
        finally:
            await nemesis.close()
        assert not nemesis.violations, nemesis.report()

    assert os.path.isdir(previous)
    uvloop.run(run())
