"""`armillary check` and `armillary backup` on the directory of a replica whose node is stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.process import call_armillary
from support.replicas import leading_engine, stepping_follower
from support.stopped import problems_of, state_of_directory, two_replicas

from armillary.clock import SystemClock
from armillary.cluster.directories import leave, position_of
from armillary.errors import Failure
from armillary.storage.overlay import Layer
from armillary.storage.replication.stopped_replica import StoppedDirectory, open_stopped
from armillary.storage.rocks import RocksEngine


async def test_check_reads_a_replica_and_writes_nothing(tmp_path: Path) -> None:
    await two_replicas(tmp_path)
    for name in ("a", "b"):
        path = tmp_path / name
        before = state_of_directory(path), position_of(path)
        found = call_armillary("check", str(path))
        assert (found.returncode, found.stderr) == (0, ""), found.stdout
        assert "all is well" in found.stdout
        assert (state_of_directory(path), position_of(path)) == before


async def test_check_finds_what_is_wrong_in_a_replica(tmp_path: Path) -> None:
    await two_replicas(tmp_path)
    path = tmp_path / "b"
    with StoppedDirectory.open(path) as directory:
        database = directory._database
        stores = {key[:4] for key, _ in database.scan(b"", b"\xff\xff", False, 0) if key[4:5] == b"i"}
        doomed = next(key for key, _ in database.scan(max(stores) + b"i", max(stores) + b"j", False, 0))
        layer = Layer()
        layer.writes[doomed] = None
        database.write(database.batch(layer))
    found = call_armillary("check", str(path))
    assert found.returncode == 1, found.stdout
    assert "db/c, range" in found.stdout
    repaired = call_armillary("check", "--repair", str(path))
    assert repaired.returncode == 2
    assert "replica of a cluster" in repaired.stderr


async def test_a_stopped_replica_refuses_writes(tmp_path: Path) -> None:
    await two_replicas(tmp_path)
    engine = await open_stopped(tmp_path / "a", SystemClock())
    with pytest.raises(Failure, match="Another node"):
        await engine.store(0).write(lambda txn: txn.put(b"x", b""))
    assert await problems_of(engine) == []
    await engine.close()


async def test_a_backup_of_a_replica_starts_a_new_one(tmp_path: Path) -> None:
    server = await two_replicas(tmp_path)
    backups, restored = tmp_path / "backups", tmp_path / "restored"
    made = call_armillary("backup", "create", str(backups), "--data", str(tmp_path / "b"))
    assert made.returncode == 0, made.stderr
    leader = await leading_engine(tmp_path / "a", server)
    await leader.store(900).write(lambda txn: txn.put(b"x", b"1"))
    verified = call_armillary("backup", "verify", str(backups))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    told = call_armillary("backup", "restore", str(backups), "--to", str(restored))
    position = position_of(restored)
    assert position is not None
    assert position == position_of(tmp_path / "b")
    assert f"a replica of a cluster, at row {position.place.seq}" in told.stdout
    with pytest.raises(Failure, match="armillary cluster leave"):
        await RocksEngine.open(restored)
    follower, engine = stepping_follower(restored, server)
    while await follower.step():
        pass
    await follower.confirm(leader.replica.position.place)
    assert await engine.store(900).read(lambda view: view.get(b"x")) == b"1"
    await engine.close()
    await leader.close()
    assert state_of_directory(restored) == state_of_directory(tmp_path / "a")


async def test_a_restored_replica_becomes_a_single_servers_only_when_told(tmp_path: Path) -> None:
    await two_replicas(tmp_path)
    backups, restored = tmp_path / "backups", tmp_path / "restored"
    call_armillary("backup", "create", str(backups), "--data", str(tmp_path / "b"))
    told = call_armillary("backup", "restore", str(backups), "--to", str(restored), "--json")
    content = json.loads(told.stdout)
    position = position_of(restored)
    assert position is not None and content["replicaAtRow"] == position.place.seq
    with pytest.raises(Failure, match="without its log"):
        await leave(restored, None)
    await leave(restored, None, accepts_loss=True)
    alone = await RocksEngine.open(restored)
    assert await problems_of(alone) == []
    await alone.close()


async def test_a_backup_of_a_running_node_is_a_replica(tmp_path: Path) -> None:
    server = await two_replicas(tmp_path)
    engine = await leading_engine(tmp_path / "a", server)
    await engine.store(900).write(lambda txn: txn.put(b"x", b"1"))
    checkpoint = await engine.checkpoint()
    copy = tmp_path / "copy"
    checkpoint.rename(copy)
    at = engine.replica.position
    await engine.close()
    assert position_of(copy) == at
    assert state_of_directory(copy) == state_of_directory(tmp_path / "a")
