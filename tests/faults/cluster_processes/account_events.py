"""Events of a nemesis that are an operator's work: splits, merges, throughput, containers, snapshots, nodes that join
and leave. Clients work on the same container all the time, and leaders may change in the middle."""

from __future__ import annotations

import shutil

from faults.client import Answer
from faults.cluster_processes.cluster_clients import CONTAINER, DATABASE
from faults.cluster_processes.history import EVENTUAL, STRONG
from faults.cluster_processes.nemesis import Event, Nemesis, ask
from faults.cluster_processes.processes import NodeProcess, waits_for
from faults.workload import key_header

ITEMS = f"databases/{DATABASE}/containers/{CONTAINER}"
SIDE = "side"  # a container that only these events write to
GUEST = "n4"  # a node that joins with an empty directory, and leaves
REGION = "East"


async def split(nemesis: Nemesis) -> None:
    await _reshape(nemesis, "split")


async def merge(nemesis: Nemesis) -> None:
    """After an earlier change the throughput may need all partitions, with which a merge is refused."""
    await _accepted(nemesis, "PUT", f"{ITEMS}/throughput", {"throughput": 10_000})
    await _reshape(nemesis, "merge")


async def split_while_leader_dies(nemesis: Nemesis) -> None:
    """The next leader goes on with the split, or takes it back."""
    node, epoch = await nemesis.cluster.leader(), await nemesis.cluster.epoch()
    await _accepted(nemesis, "POST", f"{ITEMS}/split", {})
    await node.kill()
    await nemesis.taken_over(epoch)
    await node.start()
    await _reshaped(nemesis)


async def _reshape(nemesis: Nemesis, kind: str) -> None:
    await _accepted(nemesis, "POST", f"{ITEMS}/{kind}", {})
    await _reshaped(nemesis)


async def _reshaped(nemesis: Nemesis) -> None:
    async def look() -> bool:
        answer = await nemesis.control("GET", f"{ITEMS}/reshapes")
        return answer is not None and answer.status == 200 and not answer.json["reshapes"]

    await waits_for(look, "the split or merge ends")


async def scale(nemesis: Nemesis) -> None:
    throughput_ru = 100 * nemesis.dice.randrange(200, 400)
    await _accepted(nemesis, "PUT", f"{ITEMS}/throughput", {"throughput": throughput_ru})


async def create_and_drop_container(nemesis: Nemesis) -> None:
    """A container is known at every node as soon as it is created, and gone when it was dropped."""
    name = f"short-lived-{nemesis.dice.getrandbits(32)}"
    created = {"name": name, "partitionKey": ["/key"]}
    await _accepted(nemesis, "POST", f"databases/{DATABASE}/containers", created)
    docs = f"dbs/{DATABASE}/colls/{name}/docs"
    await _written(nemesis, docs, "first", 1)
    for node in nemesis.serving():
        answer = await _answered(node, docs, "first", STRONG)
        if answer.status != 200:
            nemesis.history.accuse("container", f"{node.name} answers {answer.status} in a new container")
    await _accepted(nemesis, "DELETE", f"databases/{DATABASE}/containers/{name}")
    for node in nemesis.serving():

        async def is_gone(node: NodeProcess = node) -> bool:
            return (await _answered(node, docs, "first", EVENTUAL)).status == 404

        await waits_for(is_gone, f"{node.name} knows that a container was dropped")


async def snapshot_and_restore(nemesis: Nemesis) -> None:
    """What was written after a snapshot is undone by its restoration, at every node. A snapshot ends with the leader
    that holds it: then nothing is restored."""
    await nemesis.control("POST", f"databases/{DATABASE}/containers", {"name": SIDE, "partitionKey": ["/key"]})
    docs = f"dbs/{DATABASE}/colls/{SIDE}/docs"
    number, name = nemesis.dice.getrandbits(32), f"taken-{nemesis.dice.getrandbits(32)}"
    await _written(nemesis, docs, "kept", number)
    taken = await nemesis.control("POST", f"snapshots/{name}", {"database": DATABASE, "container": SIDE})
    await _written(nemesis, docs, "kept", number + 1)
    restored = await nemesis.control("POST", f"snapshots/{name}/restore", {})
    if taken is None or taken.status != 201 or restored is None or restored.status != 200:
        return
    answer = await _answered(await nemesis.cluster.leader(), docs, "kept", STRONG)
    if answer.status == 200 and answer.json["number"] != number:
        nemesis.history.accuse("restore", f"{answer.json['number']} was restored, not {number}")
    await nemesis.control("DELETE", f"snapshots/{name}")


async def node_joins_and_leaves(nemesis: Nemesis) -> None:
    """With an empty directory, of which the others know nothing; and again under the same name."""
    cluster = nemesis.cluster
    guest = cluster.nodes.get(GUEST) or await cluster.add(GUEST, REGION)
    await guest.start()
    await nemesis.progress(10, "a node has joined")
    await nemesis.compare()
    await guest.stop()
    await _accepted(nemesis, "DELETE", f"cluster/nodes/{GUEST}")
    shutil.rmtree(guest.directory)


async def _accepted(nemesis: Nemesis, method: str, path: str, body: object = None) -> None:
    """Repeat a request until it is done, or until there is a reason other than that no node leads."""

    async def attempt() -> bool:
        answer = await nemesis.control(method, path, body)
        return answer is not None and answer.status != 503

    await waits_for(attempt, f"{method} {path} is answered")


async def _written(nemesis: Nemesis, docs: str, name: str, number: int) -> None:
    async def attempt() -> bool:
        headers = {"x-ms-documentdb-is-upsert": "True"} | key_header(name)
        node = nemesis.dice.choice(nemesis.serving())
        answer = await ask(node, "POST", docs, {"id": name, "key": name, "number": number}, headers, is_feed=True)
        return answer is not None and answer.status in (200, 201)

    await waits_for(attempt, f"{name} is written")


async def _answered(node: NodeProcess, docs: str, name: str, level: str) -> Answer:
    found: list[Answer] = []

    async def attempt() -> bool:
        answer = await ask(node, "GET", f"{docs}/{name}", None, {"x-ms-consistency-level": level} | key_header(name))
        found[:] = [answer] if answer is not None and answer.status != 503 else []
        return bool(found)

    await waits_for(attempt, f"{node.name} answers")
    return found[0]


ACCOUNT_EVENTS: dict[str, Event] = {
    "split": split,
    "merge": merge,
    "split while the leader dies": split_while_leader_dies,
    "throughput changed": scale,
    "container created and dropped": create_and_drop_container,
    "snapshot restored": snapshot_and_restore,
    "node joins and leaves": node_joins_and_leaves,
}
