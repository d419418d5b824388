"""A container of a server with several processes is moved to another partition key while processes are killed, the one
that does the work too: nothing is lost, and the same request completes it."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from support.process import KEY, ServerProcess
from support.process_ids import kill_process, wait_for_new
from support.server_operator import Operator

ITEMS = 2_000
LIMIT_S = 60.0
MIGRATION = "databases/shop/containers/orders/migration"
_waiting = threading.Event()


def _ask(operator: Operator, method: str, content: Any = None) -> dict[str, Any] | None:
    """None: the first process is being started, or knows nothing of a migration."""
    try:
        status, body = operator.send(method, MIGRATION, content)
    except OSError:
        return None
    if status in (404, 503):
        return None
    if status == 409 and b"is partitioned by /who already" in body:
        return {"stage": "switched", "ended": True, "failure": None, "itemsCopied": ITEMS}
    assert status < 300, body
    found: dict[str, Any] = json.loads(body)
    return found


def _until(operator: Operator, is_met: Any) -> dict[str, Any]:
    """Begins it again where it is not known any more."""
    wanted = {"target": "new", "partitionKey": ["/who"]}
    for _ in range(int(LIMIT_S / 0.05)):
        found = _ask(operator, "GET") or _ask(operator, "POST", wanted)
        if found is not None:
            assert found["failure"] is None, found
            if is_met(found):
                return found
        _waiting.wait(0.05)
    raise AssertionError("the migration does not go on")


@pytest.mark.parametrize("killed", [(0,), pytest.param((2, 1, 0, 2, 0), marks=pytest.mark.soak)])
def test_a_migration_goes_on(tmp_path: Path, killed: tuple[int, ...]) -> None:
    server = ServerProcess.start(tmp_path / "data", "--processes", "3", "--durability", "relaxed")
    try:
        operator = Operator(server)
        with CosmosClient(server.url, KEY) as client:
            database = client.create_database("shop")
            key = {"paths": ["/pk"], "kind": "Hash", "version": 2}
            orders = database.create_container("orders", key, offer_throughput=30_000)
            for first in range(0, ITEMS, 100):
                items = [
                    ("create", ({"id": f"i{number}", "pk": f"k{first}", "who": f"w{number % 7}", "n": number},))
                    for number in range(first, first + 100)
                ]
                orders.execute_item_batch(items, f"k{first}")
        for number in killed:
            _until(operator, lambda found: found["itemsCopied"] > 0 or found["ended"])
            former = kill_process(server.process.pid, number, signal.SIGKILL)
            wait_for_new(server.process.pid, number, former)
        _until(operator, lambda found: found["stage"] == "switched")
        with CosmosClient(server.url, KEY) as client:
            orders = client.get_database_client("shop").get_container_client("orders")
            assert orders.read()["partitionKey"]["paths"] == ["/who"]
            found = {each["id"]: each["n"] for each in orders.read_all_items()}
            assert found == {f"i{number}": number for number in range(ITEMS)}
            with pytest.raises(CosmosResourceNotFoundError):
                client.get_database_client("shop").get_container_client("new").read()
        assert server.stop() == 0
    finally:
        server.kill()
    assert "Traceback" not in server.log, server.log
    ServerProcess.check(tmp_path / "data")
