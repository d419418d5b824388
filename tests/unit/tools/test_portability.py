"""A server without the modules that some platforms do not have: it starts, serves every protocol, and refuses in words
what needs them. The modules are hidden from a process of its own; other differences of platforms are not seen here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from pymongo import MongoClient
from support.process import KEY, ServerProcess

from armillary.errors import Failure, Kind
from armillary.storage import directory

HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "uvloop", "resource", "pwd", "grp", "termios"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
"""
PROGRAM = f"{HIDDEN}\nfrom armillary.tools.cli import main\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = ServerProcess.start(None, program=["-c", PROGRAM])
    yield started
    assert started.stop() == 0


def test_a_server_in_memory_serves(server: ServerProcess) -> None:
    with CosmosClient(server.url, KEY) as client:
        orders = client.create_database("shop").create_container("orders", PartitionKey("/pk"), offer_throughput=400)
        orders.create_item({"id": "1", "pk": "a"})
        assert orders.read_item("1", "a")["id"] == "1"
        body = "function () { getContext().getResponse().setBody(7) }"
        orders.scripts.create_stored_procedure({"id": "p", "body": body})
        assert orders.scripts.execute_stored_procedure("p", partition_key="a") == 7  # a child process of asyncio's loop
    with CosmosClient(server.url.replace("http:", "https:"), KEY, connection_verify=False) as client:
        assert [each["id"] for each in client.list_databases()] == ["shop"]
    host = server.doors["mongo"].removeprefix("mongodb://")
    with MongoClient[dict[str, object]](f"mongodb://{host}", username="localhost", password=KEY) as documents:
        assert documents.shop.orders.count_documents({}) == 1
        assert documents.admin.command("serverStatus")["mem"]["resident"] == 0


def test_the_slower_loop_is_logged(server: ServerProcess) -> None:
    assert server.log.count("uvloop is not installed") == 1


def test_a_data_directory_needs_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "fcntl", None)
    with pytest.raises(Failure, match=r"no locks of files \(flock\).*--memory") as caught:
        directory.DataDirectory.claim(tmp_path / "data")
    assert caught.value.kind is Kind.UNSUPPORTED
