"""`armillary migrate` with live writers: released clients go on by the container's name, and nothing is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.cosmos import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError
from bson.int64 import Int64
from control.conftest import Start
from pymongo import MongoClient
from support.process import KEY
from support.server_operator import Operator

PRELOADED, WRITERS = 200, 3
TENANTS = ("acme", "bolt", "cole")


class Worker(threading.Thread):
    """Creates, changes and deletes items of its own through a client of its own, and knows what there must be."""

    def __init__(self, client: CosmosClient | MongoClient[Any], number: int) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._number = number
        self.items: dict[str, dict[str, Any]] = {}
        self.stopping = threading.Event()
        self.written_after = 0  # since the count began
        self.is_counting = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            count = 0
            while not self.stopping.is_set():
                count += 1
                self.work(count)
                self.written_after += self.is_counting
        except BaseException as error:
            self.failure = error
        finally:
            self._client.close()

    def work(self, count: int) -> None:
        raise NotImplementedError


class Device(Worker):
    def __init__(self, url: str, database: str, number: int, *, region: str | None = None) -> None:
        client = CosmosClient(url, KEY)
        super().__init__(client, number)
        self._container: ContainerProxy = client.get_database_client(database).get_container_client("readings")
        self._more = {"region": region} if region is not None else {}

    def work(self, count: int) -> None:
        item: dict[str, Any] = {
            "id": f"w{self._number}-{count}",
            "deviceId": f"d{count % 10}",
            "value": count,
            **self._more,
        }
        self._container.create_item(item)
        self.items[item["id"]] = item
        changed = {**item, "value": -count}
        self._container.upsert_item(changed)
        self.items[item["id"]] = changed


def mongo_client(operator: Operator) -> MongoClient[Any]:
    address = operator.server.doors["mongo"].replace("//", f"//localhost:{quote(KEY, safe='')}@")
    return MongoClient(address, directConnection=True)


class Shop(Worker):
    """The same for a collection: single writes that the driver repeats by itself, many at once, and transactions."""

    def __init__(self, client: MongoClient[Any], number: int) -> None:
        super().__init__(client, number)
        self._orders = client["telemetry"]["readings"]
        self._begin_session = client.start_session

    def work(self, count: int) -> None:
        rows: list[dict[str, Any]] = [
            {"_id": f"{self._number}-{count}-{each}", "deviceId": f"d{each}", "n": Int64(count)} for each in range(4)
        ]
        self._orders.insert_many(rows)
        self.items |= {row["_id"]: row for row in rows}
        first, second, third, _ = rows
        self._orders.update_one({"_id": first["_id"], "deviceId": "d0"}, {"$inc": {"n": 1}})
        self.items[first["_id"]] = {**first, "n": count + 1}
        self._orders.delete_one({"_id": second["_id"], "deviceId": "d1"})
        del self.items[second["_id"]]
        with self._begin_session() as session:
            where = {"_id": third["_id"], "deviceId": "d2"}
            change = {"$set": {"done": True}}
            session.with_transaction(lambda inside: self._orders.update_one(where, change, session=inside))
        self.items[third["_id"]] = {**third, "done": True}


def migrate_under_load(operator: Operator, devices: Sequence[Worker], *arguments: str) -> tuple[Any, dict[str, Any]]:
    """What the command says, and what the devices have written, before and after."""
    for device in devices:
        device.start()
    command = "migrate telemetry/readings telemetry/new --partition-key /deviceId"
    told = operator.json(*command.split(), *arguments)
    assert told["stage"] == "switched"
    for device in devices:
        device.is_counting = True
    while any(device.written_after < 3 and device.failure is None for device in devices):
        devices[0].join(0.02)
    for device in devices:
        device.stopping.set()
    for device in devices:
        device.join()
        assert device.failure is None, device.failure
    return told, {name: item for device in devices for name, item in device.items.items()}


def test_another_key_while_clients_know_the_old_one(start_operator: Start) -> None:
    """What they extract from an item is then not its key any more: their writes are taken all the same."""
    operator = start_operator()
    operator.command("containers", "create", "telemetry/readings", "--partition-key", "/region")
    devices = [Device(operator.server.url, "telemetry", number, region=f"r{number}") for number in range(WRITERS)]
    _, model = migrate_under_load(operator, devices)
    with CosmosClient(operator.server.url, KEY) as client:
        container = client.get_database_client("telemetry").get_container_client("readings")
        assert container.read()["partitionKey"]["paths"] == ["/deviceId"]
        found = {item["id"]: item for item in container.read_all_items()}
    assert found.keys() == model.keys()
    assert all(found[name]["value"] == item["value"] for name, item in model.items())


def test_a_fixed_container_becomes_a_partitioned_one(start_operator: Start) -> None:
    operator = start_operator()
    operator.command("containers", "create", "telemetry/readings", "--fixed")
    model: dict[str, dict[str, Any]] = {}
    with CosmosClient(operator.server.url, KEY) as client:
        container = client.get_database_client("telemetry").get_container_client("readings")
        for number in range(PRELOADED):
            item: dict[str, Any] = {"id": f"old-{number}", "deviceId": f"d{number % 40}", "value": number}
            container.create_item(item)
            model[item["id"]] = item
        devices = [Device(operator.server.url, "telemetry", number) for number in range(WRITERS)]
        told, written = migrate_under_load(operator, devices, "--throughput", "20000")
        assert told["verifiedItems"] >= PRELOADED
        model |= written
        # A client that knew the old container finds the new one by its name.
        found = {
            item["id"]: item for item in container.query_items("SELECT * FROM c", enable_cross_partition_query=True)
        }
        assert {
            name: {key: value for key, value in item.items() if not key.startswith("_")} for name, item in found.items()
        } == model
        assert container.read()["partitionKey"]["paths"] == ["/deviceId"]
        assert container.read_item("old-7", partition_key="d7")["value"] == 7
    shown = operator.json("containers", "show", "telemetry/readings")
    assert (shown["partitionCount"], shown["throughput"]["ru"]) == (4, 20_000)
    assert operator.json("containers", "show", "telemetry/readings-before")["fixed"]
    refused = operator.command("migrate", "telemetry/readings", "telemetry/again", "--partition-key", "/value", code=2)
    assert "readings-before" in refused and "keepAs" in refused
    told_text = operator.command(
        *"migrate telemetry/readings telemetry/again --partition-key /value --keep-as second --no-switch".split()
    )
    assert "is unchanged" in told_text
    assert "one database" in operator.command("migrate", "a/b", "c/d", "--fixed", code=2)


def test_a_collection_gets_a_shard_key(start_operator: Start) -> None:
    operator = start_operator()
    shops = [Shop(mongo_client(operator), number) for number in range(WRITERS)]
    shops[0].work(0)  # so that there is a collection
    _, model = migrate_under_load(operator, shops)
    with mongo_client(operator) as client:
        found = {each["_id"]: each for each in client["telemetry"]["readings"].find()}
        assert client["telemetry"].command("collStats", "readings")["sharded"]
    assert found == model


def test_a_migration_that_a_crash_interrupts(tmp_path: Path, start_operator: Start) -> None:
    operator = start_operator()
    operator.command("containers", "create", "shop/orders", "--fixed")
    lines = "".join(f'{{"id": "{number}", "customer": "c{number % 9}"}}\n' for number in range(2500))
    (tmp_path / "in.jsonl").write_text(lines)
    operator.command("import", str(tmp_path / "in.jsonl"), "shop/orders", "--state", str(tmp_path / "state"))
    operator.ask("POST", "databases/shop/containers/orders/migration", {"target": "new", "partitionKey": ["/customer"]})
    while not operator.ask("GET", "databases/shop/containers/orders/migration")["itemsCopied"] > 0:
        pass
    operator.server.kill()
    operator = start_operator()
    assert operator.json("containers", "show", "shop/orders")["items"] == 2500
    told = operator.json("migrate", "shop/orders", "shop/new", "--partition-key", "/customer")
    assert (told["stage"], told["verifiedItems"]) == ("switched", 2500)
    assert operator.json("containers", "show", "shop/orders")["partitionKey"] == ["/customer"]


class Tenants(Worker):
    """Writes items of several tenants to the shared container, and where a refusal says that they are."""

    def __init__(self, url: str, number: int) -> None:
        client = CosmosClient(url, KEY)
        super().__init__(client, number)
        database = client.get_database_client("shop")
        self._shared, self._own = database.get_container_client("shared"), database.get_container_client("acme")
        self.redirected = 0

    def work(self, count: int) -> None:
        item: dict[str, Any] = {"id": f"w{self._number}-{count}", "tenant": TENANTS[count % 3], "n": 0}
        self._write(lambda container: container.create_item(item))
        self.items[item["id"]] = item
        changed = {**item, "n": count}
        self._write(lambda container: container.replace_item(item["id"], changed))
        self.items[item["id"]] = changed
        if not count % 5:
            self._write(
                lambda container: container.delete_item(item["id"], item["id" if container is self._own else "tenant"])
            )
            del self.items[item["id"]]

    def _write(self, write: Callable[[ContainerProxy], Any]) -> None:
        try:
            write(self._shared)
        except CosmosHttpResponseError as error:
            # 404: removed between two writes of the same item.
            if "moved to the container 'acme'" not in str(error) and error.status_code != 404:
                raise
            self.redirected += 1
            write(self._own)


def contents(client: CosmosClient, name: str) -> dict[str, dict[str, Any]]:
    container = client.get_database_client("shop").get_container_client(name)
    found = [{key: item[key] for key in ("id", "tenant", "n")} for item in container.read_all_items()]
    assert len({item["id"] for item in found}) == len(found)
    return {item["id"]: item for item in found}


def test_a_tenant_gets_a_container_of_its_own(start_operator: Start) -> None:
    operator = start_operator()
    operator.command("containers", "create", "shop/shared", "--partition-key", "/tenant", "--throughput", "12000")
    workers = [Tenants(operator.server.url, number) for number in range(WRITERS)]
    for worker in workers:
        for count in range(1, 20):
            worker.work(-count)
        worker.start()
    move = ("migrate", "shop/shared", "shop/acme", "--filter", "c.tenant = 'acme'", "--partition-key", "/id")
    told = operator.json(*move, "--throughput", "400")
    assert told["stage"] == "caught up" and told["itemsRemoved"] == 0
    told = operator.json(*move, "--throughput", "400", "--remove")
    assert told["stage"] == "moved" and told["itemsRemoved"] > 0
    for worker in workers:
        worker.is_counting = True
    while any(worker.written_after < 6 and worker.failure is None for worker in workers):
        workers[0].join(0.02)
    for worker in workers:
        worker.stopping.set()
    for worker in workers:
        worker.join()
        assert worker.failure is None, worker.failure
    model = {name: item for worker in workers for name, item in worker.items.items()}
    with CosmosClient(operator.server.url, KEY) as client:
        shared, acme = contents(client, "shared"), contents(client, "acme")
    assert shared == {name: item for name, item in model.items() if item["tenant"] != "acme"}
    assert acme == {name: item for name, item in model.items() if item["tenant"] == "acme"}
    assert all(worker.redirected for worker in workers)
    moved = operator.json("containers", "show", "shop/shared")["moved"]
    assert moved == [{"filter": "c.tenant = 'acme'", "target": "acme"}]
    assert "takes writes again" in operator.command("migrate", "shop/shared", "shop/acme", "--lift-fence")
    assert "goes with 'filter'" in operator.command("migrate", "shop/shared", "shop/b", "--fixed", "--remove", code=2)
    with_name = ("--filter", "c.tenant = 'b'", "--keep-as", "x")
    assert "keep their names" in operator.command("migrate", "shop/shared", "shop/b", *with_name, code=2)


def test_a_move_that_crashes_interrupt(tmp_path: Path, start_operator: Start) -> None:
    """While items are copied, and while they are removed."""
    operator = start_operator()
    operator.command("containers", "create", "shop/shared", "--partition-key", "/tenant")
    items = [{"id": str(number), "tenant": TENANTS[number % 3], "n": number} for number in range(2400)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    operator.command("import", str(tmp_path / "in.jsonl"), "shop/shared", "--state", str(tmp_path / "state"))
    move = {"target": "acme", "filter": "c.tenant = 'acme'", "partitionKey": ["/id"], "remove": True}
    for counter in ("itemsCopied", "itemsRemoved"):
        operator.ask("POST", "databases/shop/containers/shared/migration", move)
        while not operator.ask("GET", "databases/shop/containers/shared/migration")[counter] > 0:
            pass
        operator.server.kill()
        operator = start_operator()
    with CosmosClient(operator.server.url, KEY) as client:
        left = contents(client, "shared")
        assert contents(client, "acme").keys() == {item["id"] for item in items if item["tenant"] == "acme"}
        container = client.get_database_client("shop").get_container_client("shared")
        with pytest.raises(CosmosHttpResponseError, match="moved to the container 'acme'") as refused:
            container.create_item({"id": "late", "tenant": "acme"})  # the fence was stored before the crash
        assert refused.value.status_code == 403
        if len(left) > 1600:  # else all were removed before the server was killed
            told = operator.json("migrate", "shop/shared", "shop/acme", "--filter", "c.tenant = 'acme'", "--remove")
            assert told["stage"] == "moved" and told["itemsRemoved"] == len(left) - 1600
        assert contents(client, "shared").keys() == {item["id"] for item in items if item["tenant"] != "acme"}
        assert len(contents(client, "acme")) == 800
