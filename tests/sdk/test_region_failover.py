"""azure-cosmos and a cluster of two regions: the node that leads dies, then its whole region, which is brought back in
order. Writes go on in the other region, nothing acknowledged is lost, and sessions hold."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceExistsError, CosmosResourceNotFoundError
from sdk.cluster import ClientCluster, ClientNode
from sdk.workers import Step, Workers
from support.process import KEY

EAST, WEST = "East US", "West US"
REGIONS = {"e1": EAST, "e2": EAST, "w1": WEST}
STEPS = 5  # of every thread after an event
# What this client gives up on by itself, and an application tries again: write forbidden, timed out, gone, unavailable.
PASSING = (403, 408, 410, 449, 503)


class Ended(Exception):
    """The test is over, and the last attempt has failed."""


class Program:
    """The threads of one application, which keeps trying what its client gives up on."""

    def __init__(self, name: str, items: ContainerProxy) -> None:
        self.name = name
        self.acknowledged: list[str] = []
        self.newest = 0  # the number that was acknowledged last
        self.stops = threading.Event()  # set: nothing is tried again
        self.given_up: Counter[str] = Counter()  # what the client gave up on
        self._items = items
        self._numbers = itertools.count(1)
        self._seen = 0  # the highest number that this session has seen

    def create(self) -> None:
        """And read it in the same session."""
        name = f"{self.name}-{len(self.acknowledged)}"

        def attempt() -> None:
            try:
                self._items.create_item({"id": name, "pk": name})
            except CosmosResourceExistsError:
                pass  # an attempt before, of which the outcome was not told

        self._keep_trying("create", attempt)
        self.acknowledged.append(name)
        self._keep_trying("read", lambda: self._items.read_item(name, name))  # a 404 would be raised

    def replace(self) -> None:
        number = next(self._numbers)
        body = {"id": self.name, "pk": self.name, "number": number}
        self._keep_trying("replace", lambda: self._items.upsert_item(body))
        self.newest = number

    def read(self, writer: Program) -> None:
        """What this session has written or seen once is not taken back."""
        least = max(self._seen, self.newest)
        try:
            found = self._keep_trying("read", lambda: self._items.read_item(writer.name, writer.name))
        except CosmosResourceNotFoundError:  # a session that has seen nothing yet may be behind
            found = {"number": 0}
        self._seen = found["number"]
        assert self._seen >= least, f"{self.name} has seen more before"

    def _keep_trying(self, what: str, attempt: Callable[[], Any]) -> Any:
        while True:
            try:
                return attempt()
            except (ServiceRequestError, ServiceResponseError) as error:
                self.given_up[f"{what}: {type(error).__name__}"] += 1
            except CosmosHttpResponseError as error:
                if error.status_code not in PASSING:
                    raise
                self.given_up[f"{what}: {error.status_code}/{error.sub_status}"] += 1
            if self.stops.is_set():
                raise Ended


async def test_a_region_is_lost_and_brought_back(tmp_path: Path) -> None:
    cluster = await ClientCluster.start(tmp_path, REGIONS)
    try:
        await cluster.command("failover-region", EAST)  # from now on the first of the priorities
        east, west = cluster.nodes["e2"], cluster.nodes["w1"]
        with (
            CosmosClient(east.url, KEY, preferred_locations=[EAST, WEST]) as first,
            CosmosClient(west.url, KEY, preferred_locations=[WEST, EAST]) as second,
        ):
            first.create_database("shop").create_container("orders", PartitionKey("/pk"))
            await _work(cluster, Program("reader", _orders(first)), Program("writer", _orders(second)))
    finally:
        await cluster.close()


def _orders(client: CosmosClient) -> ContainerProxy:
    return client.get_database_client("shop").get_container_client("orders")


async def _work(cluster: ClientCluster, reader: Program, writer: Program) -> None:
    """The reader came to a node of the East, the writer to the one in the West."""
    writer.replace()
    steps: dict[str, Step] = {
        "creates": writer.create,
        "replaces": writer.replace,
        "reads": lambda: writer.read(writer),
        "reads in the East": lambda: reader.read(writer),
    }
    with Workers({name: _until_ended(step) for name, step in steps.items()}) as workers, _ending(reader, writer):
        await workers.progress(STEPS, "the start")
        assert _write_region(cluster.nodes["w1"]) == EAST
        killed, first_s = await cluster.kill_leader()
        assert (await cluster.leader()).region == EAST, "the other node of the region comes first"
        await workers.progress(STEPS, "the leader was killed")
        last, second_s = await cluster.kill_leader()
        assert (await cluster.leader()).region == WEST
        await workers.progress(STEPS, "the whole region was killed")
        assert _write_region(cluster.nodes["w1"]) == WEST
        for node in (killed, last):
            await node.start()
        await cluster.command("failover-region", EAST)
        assert (await cluster.leader()).region == EAST
        await workers.progress(STEPS, "the region was brought back")
        print(f"led again after {first_s:.1f} s and {second_s:.1f} s; {workers.done}; longest: {workers.longest_s}")
    for program in (reader, writer):
        print(f"{program.name}: the client gave up on {program.given_up}")
    workers.check()
    # The node in the West finds every leader. It cannot tell what became of a write that it had sent to one that died.
    assert set(writer.given_up) <= {"create: 503/0", "replace: 503/0"}
    assert _write_region(cluster.nodes["w1"]) == EAST
    verified = await cluster.command("verify")
    assert verified["complete"] and verified["equal"], verified
    for node in cluster.nodes.values():
        _check(node, writer)


def _until_ended(step: Step) -> Step:
    def run() -> None:
        with suppress(Ended):
            step()

    return run


@contextmanager
def _ending(*programs: Program) -> Iterator[None]:
    """At the end nothing is tried any more."""
    try:
        yield
    finally:
        for program in programs:
            program.stops.set()


def _write_region(node: ClientNode) -> str:
    with CosmosClient(node.url, KEY) as client:
        return str(client.client_connection.GetDatabaseAccount().WritableLocations[0]["name"])


def _check(node: ClientNode, writer: Program) -> None:
    """All that was acknowledged is at a node, which has applied it by now."""
    with CosmosClient(node.url, KEY, consistency_level="Session") as client:
        stored = {each["id"]: each.get("number") for each in _orders(client).read_all_items()}
    assert set(writer.acknowledged) <= stored.keys(), "no acknowledged item is lost"
    assert int(stored[writer.name] or 0) >= writer.newest
