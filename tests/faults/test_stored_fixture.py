"""What an earlier version stored is opened, checked and answered alike: a data directory of a server that was killed
with a split under way, a backup of it, and a snapshot file. Only copies are opened. `tests/support/make_stored.py` made
them."""

from __future__ import annotations

import asyncio
import json
import lzma
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.process import ServerProcess
from support.server_operator import Operator
from support.stored_account import LONG_TTL_S, answers, sql_client, without_rids

from armillary.account.account import Account
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.clock import SystemClock
from armillary.model import layout
from armillary.model.keys import Key
from armillary.storage.engine import Txn
from armillary.storage.rocks import RocksEngine
from armillary.tools.cli import main

STORED = Path(__file__).parents[1] / "fixtures" / "stored"
FINISH_S = 60
Start = Callable[..., ServerProcess]
pytestmark = [
    # The Gremlin client's own: it leaves event loops to the collector.
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def unpack(name: str, place: Path) -> Path:
    with lzma.open(STORED / f"{name}.tar.xz") as file, tarfile.open(fileobj=file) as packed:
        packed.extractall(place, filter="data")
        return place / packed.getnames()[0]


def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STORED / "expected.json").read_text())["answers"]
    return found


def agree(told: dict[str, Any], wanted: dict[str, Any]) -> None:
    """As texts: Python takes true and 1 for equal."""
    assert told.keys() == wanted.keys()
    for name, answer in wanted.items():
        assert json.dumps(told[name], indent=1, sort_keys=True) == json.dumps(answer, indent=1, sort_keys=True), name


def test_data_directory(start_server: Start, tmp_path: Path) -> None:
    unpack("data", tmp_path).rename(tmp_path / "server")
    assert main(["check", str(tmp_path / "server")]) == 0
    operator = Operator(start_server("--durability", "relaxed", "--clock", "movable"))
    agree(answers(operator.server), expected())
    deadline = time.monotonic() + FINISH_S
    while operator.ask("GET", "reshapes")["reshapes"]:
        assert time.monotonic() < deadline, "the split that was under way is not finished"
        time.sleep(0.01)
    partitions = operator.ask("GET", "databases/shop/containers/growing/partitions")["partitions"]
    assert [(each["parents"], each["items"] > 0) for each in partitions] == [([0], True), ([0], True)]
    assert sum(each["items"] for each in partitions) == 80
    _write_on(operator)


def _write_on(operator: Operator) -> None:
    """Scripts run, unique keys hold, and time to live goes on from where it was."""
    with sql_client(operator.server) as client:
        shop = client.get_database_client("shop")
        orders, mixed = shop.get_container_client("orders"), shop.get_container_client("mixed")
        ran = orders.scripts.execute_stored_procedure("ids", "customer-1", ["b"])
        assert ran == ["b0", "b1", "b2"]
        made = orders.create_item({"id": "new", "customer": "customer-0", "number": 1000}, pre_trigger_include="stamp")
        assert made["stamped"] is True
        with pytest.raises(Exception, match="Unique index"):
            orders.create_item({"id": "again", "customer": "customer-0", "number": 7})
        lasting = "SELECT VALUE c.id FROM c WHERE c.pk = 'ttl' ORDER BY c.id"
        assert list(mixed.query_items(lasting, partition_key="ttl")) == [f"long{n}" for n in range(4)]
        operator.ask("POST", "clock", {"advanceSeconds": LONG_TTL_S + 60})
        assert list(mixed.query_items(lasting, partition_key="ttl")) == []


def test_backup_and_snapshot_file(tmp_path: Path, start_server: Start) -> None:
    backups = str(unpack("backups", tmp_path))
    assert main(["backup", "verify", backups]) == 0
    assert main(["backup", "restore", backups, "--to", str(tmp_path / "server")]) == 0
    server = start_server("--durability", "relaxed")
    agree(answers(server), expected())
    file = tmp_path / "account.snapshot"
    file.write_bytes(lzma.decompress((STORED / "account.snapshot.xz").read_bytes()))
    assert main(["restore", str(file), "--replace", "--data", str(tmp_path / "server")]) == 0
    agree(without_rids(answers(server)), without_rids(expected()))


async def test_misplaced_items_are_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Batches of that version stored items of the key 1 in the partition of true, and others like them."""
    directory = unpack("misplaced", tmp_path).rename(tmp_path / "server")
    assert await asyncio.to_thread(main, ["check", str(directory)]) == 1
    assert capsys.readouterr().out.count("outside the partition's range") == 4
    assert await asyncio.to_thread(main, ["check", str(directory), "--repair"]) == 0
    assert "moved 2 items" in capsys.readouterr().out
    aside = tmp_path / "server-misplaced-1.jsonl"
    assert aside.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in aside.read_text().splitlines()]
    assert sorted((line["partitionKey"], line["item"]["text"]) for line in lines) == [
        ("[0]", "batch d"),
        ("[true]", "batch b"),
    ]
    engine = await RocksEngine.open(directory)
    account = await Account.open(engine, SystemClock())
    container = account.container("a", "c")
    for item_id, key, text in (
        ("a", 1, "batch a"),
        ("b", True, "created later"),
        ("c", False, "batch c"),
        ("d", 0, "created later"),
    ):
        answer = await items.read(container, item_id, ItemOptions(key=Key((key,))))
        assert answer.payload is not None and json.loads(answer.payload)["text"] == text
    await account.close()
    await engine.close()
    # The copy has everything as it was; there is nothing to repair a second time.
    assert await asyncio.to_thread(main, ["check", str(tmp_path / "server-before-repair-1")]) == 1
    assert await asyncio.to_thread(main, ["check", str(directory), "--repair"]) == 0
    assert "nothing to repair" in capsys.readouterr().out
    assert not (tmp_path / "server-before-repair-2").exists()


async def test_misplaced_items_after_a_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A partition with such an item is not split any more. Splits of that version left the item and took what is found
    by its key; it is repaired all the same."""
    directory = unpack("misplaced", tmp_path).rename(tmp_path / "server")
    engine = await RocksEngine.open(directory)
    account = await Account.open(engine, SystemClock())
    container = account.container("a", "c")
    epk = container.effective_key(Key((1,)))
    [home] = [
        each
        for each in container.partitions.values()
        if not each.range.contains(epk) and await each.read_item(epk, "a") is not None
    ]
    reshape = await account.reshaper.split(container, home.range.id)
    while reshape.waits_for is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert "armillary check --repair" in reshape.waits_for
    await account.reshaper.cancel(reshape)

    def lose(txn: Txn) -> None:
        number = int.from_bytes(txn.get(layout.id_key(epk, "a")) or b"", "big")
        for key in (layout.id_key(epk, "a"), layout.member_key(epk, number), layout.size_key(epk)):
            txn.delete(key)

    await home.store.write(lose)
    await account.close()
    await engine.close()
    assert await asyncio.to_thread(main, ["check", str(directory), "--repair"]) == 0
    assert "moved 2 items" in capsys.readouterr().out
