"""Data directories with the partitions of several processes: no command takes a part of one for the whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.process import call_armillary, run_armillary
from support.process_directories import contents, whole_house

from armillary.account.catalog.allocation import place_of_store
from armillary.model import layout
from armillary.storage.directory import process_directories, process_directory


def refused(*arguments: str) -> str:
    # A server listens to signals, in the main thread.
    outcome = (run_armillary if arguments[0] == "serve" else call_armillary)(*arguments)
    assert outcome.returncode == 2, outcome.stdout + outcome.stderr
    return outcome.stderr


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_server_with_fewer_processes_is_refused(directory: Path, count: str) -> None:
    said = refused("serve", "--data", str(directory), "--processes", count)
    assert "the partitions of 3 processes" in said
    assert "--processes 3" in said


def test_a_part_is_not_taken_for_the_whole(directory: Path) -> None:
    part = process_directory(directory, 1)
    for arguments in (("serve", "--data", str(part)), ("check", str(part)), ("check", "--repair", str(directory))):
        assert "process" in refused(*arguments)


def test_a_process_without_its_data_is_told(directory: Path) -> None:
    shutil.rmtree(process_directory(directory, 2))
    assert "Process 2 holds a partition" in refused("snapshot", "/", str(directory / "file"), "--data", str(directory))
    assert "Process 2 holds partitions" in refused("serve", "--data", str(directory), "--processes", "3")
    outcome = call_armillary("check", str(directory))
    assert outcome.returncode == 1
    assert "There is no data of process 2" in outcome.stdout
    shutil.rmtree(directory / "processes")
    assert "holds a partition" in refused("serve", "--data", str(directory))


async def test_check_names_the_process(directory: Path) -> None:
    assert "all is well" in call_armillary("check", str(directory)).stdout
    async with whole_house(directory) as house:
        ranges = house.container().map.ranges
        damaged = next(each for each in ranges if place_of_store(each.store) == 2)
        low = layout.ITEMS
        await house.engine.store(damaged.store).write(lambda txn: txn.delete(next(txn.scan(low, low + b"\xff"))[0]))
    outcome = call_armillary("check", str(directory))
    assert outcome.returncode == 1
    assert f"db/c, range {damaged.id} in process 2: " in outcome.stdout


async def test_a_backup_has_all_processes(directory: Path, tmp_path: Path, stored: tuple[Path, list[bytes]]) -> None:
    backups, restored = tmp_path / "backups", tmp_path / "restored"
    for _ in range(2):
        outcome = call_armillary("backup", "create", str(backups), "--data", str(directory), "--json")
        assert outcome.returncode == 0, outcome.stderr
    made = json.loads(outcome.stdout)
    assert made["copiedBytes"] < made["sizeBytes"]  # tables of further processes are known again, too
    outcome = call_armillary("backup", "verify", str(backups))
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    outcome = call_armillary("backup", "restore", str(backups), "--to", str(restored))
    assert outcome.returncode == 0, outcome.stderr
    assert "--processes 3" in outcome.stdout
    assert list(process_directories(restored)) == [1, 2]
    assert await contents(restored) == stored[1]
    assert not any((directory / "checkpoints").iterdir())


async def test_a_snapshot_file_has_all_processes(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "db.snapshot"
    outcome = call_armillary("snapshot", "db", str(file), "--data", str(directory))
    assert "with 40 items" in outcome.stdout, outcome.stderr
    outcome = call_armillary("restore", str(file), "--as", "copy", "--data", str(directory))
    assert "with 40 items" in outcome.stdout, outcome.stderr
    async with whole_house(directory) as house:
        await house.check()
        assert len(await house.contents(database="copy")) == 40
