"""A server that is killed -9 at every point of a split and of a merge: after a restart everything is there, and
the reshape is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from azure.cosmos import CosmosClient, PartitionKey
from support.process import KEY, ServerProcess
from support.server_operator import Operator

from armillary.account.reshaping.split_and_merge import HELD, POINTS

CONTAINER = "databases/db/containers/c"


def test_killed_at_every_point(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    with CosmosClient(server.url, KEY) as client:
        container = client.create_database("db").create_container("c", PartitionKey("/pk"), offer_throughput=400)
        for number in range(60):
            container.create_item({"id": str(number), "pk": number % 20, "round": -1})
    expected = {str(number): -1 for number in range(60)}
    for turn, (point, kind) in enumerate(product(POINTS, ("split", "merge"))):
        operator = Operator(server)
        operator.ask("PUT", "reshapes/pauses", {"points": [point]})
        operator.ask("POST", f"{CONTAINER}/{kind}", {})
        while not (reshapes := operator.ask("GET", f"{CONTAINER}/reshapes")["reshapes"]) or not reshapes[0]["paused"]:
            pass
        with CosmosClient(server.url, KEY) as client:
            container = client.get_database_client("db").get_container_client("c")
            if point != HELD:  # writers would wait
                container.upsert_item({"id": str(turn), "pk": turn % 20, "round": turn})
                expected[str(turn)] = turn
            assert {each["id"]: each["round"] for each in container.read_all_items()} == expected, (kind, point)
        server.kill()
        server = start_server()
        operator = Operator(server)
        while operator.ask("GET", f"{CONTAINER}/reshapes")["reshapes"]:
            pass
        shown = operator.ask("GET", f"{CONTAINER}/partitions")["partitions"]
        assert len(shown) == (2 if kind == "split" else 1), (kind, point)
        assert sum(each["items"] for each in shown) == len(expected)
        with CosmosClient(server.url, KEY) as client:
            container = client.get_database_client("db").get_container_client("c")
            assert {each["id"]: each["round"] for each in container.read_all_items()} == expected, (kind, point)
