"""PyMongo and Node's driver in a cluster whose primary is killed and changed: no acknowledged write is lost or done
twice. Drivers repeat a command once, which is enough for one change of the primary, with one known gap: a read that met
both nodes that change their roles in a hand-over fails. On a machine that is too busy to renew leases the primary
changes by itself, too, and a command that meets two changes fails: this is allowed only where it was seen to happen."""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pymongo
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import Nearest, Primary, PrimaryPreferred, Secondary, SecondaryPreferred
from sdk.cluster import ClientCluster
from sdk.workers import Step, Workers
from support.waiting import PATIENCE_S

JAVASCRIPT = Path(__file__).parent / "js" / "failover.mjs"
REGIONS = {"n1": "West", "n2": "West", "n3": "East"}
STEPS = 5  # of every thread after an event
AWAIT_MS = 100  # of change streams
CHANGES = 3  # of the primary: it is killed twice, and hands over once
MAJORITY = ReadConcern("majority")
EAST_FIRST = [{"region": "East"}, {}]
PREFERENCES: dict[str, Any] = {
    "primary": Primary(),
    "primaryPreferred": PrimaryPreferred(EAST_FIRST, max_staleness=90),
    "secondary": Secondary(EAST_FIRST, max_staleness=90),
    "secondaryPreferred": SecondaryPreferred([{"region": "West"}], max_staleness=90),
    "nearest": Nearest(EAST_FIRST, max_staleness=90),
}

Documents = Collection[dict[str, Any]]


class Program:
    """What the threads of the program do, and what they were told."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._numbers = itertools.count()
        self.inserted: list[int] = []
        self.counted: Counter[str] = Counter()
        self.attempted: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()  # reads that met two nodes that changed their roles
        self.refused: list[str] = []  # writes and reads of the primary that met two changes of it
        self.unknown: set[int] = set()  # inserts among them
        self.heard: dict[str, list[int]] = {}  # ids of inserted documents, by change stream

    def steps(self, streams: dict[str, Any]) -> dict[str, Step]:
        found = {
            "insert": self.insert,
            "insert many": self.insert_many,
            "update": self.update,
            "find and modify": self.find_and_modify,
            "bulk": self.bulk,
            "causal": self.read_own_writes,
        }
        found |= {f"read {name}": self._reads(name, preference) for name, preference in PREFERENCES.items()}
        return found | {f"watch {name}": self._watches(name, stream) for name, stream in streams.items()}

    # Writes.

    def _write(self, send: Callable[[], Any], *numbers: int) -> Any:
        """What was answered; None after an error: whether it was done is not known."""
        try:
            return send()
        except AutoReconnect as error:
            self.refused.append(str(error))
            self.unknown.update(numbers)
            return None

    def _insert(self, numbers: list[int], send: Callable[[], Any]) -> bool:
        is_done = self._write(send, *numbers) is not None
        if is_done:
            self.inserted.extend(numbers)
        return is_done

    def insert(self) -> None:
        number = next(self._numbers)
        self._insert([number], lambda: self._documents.insert_one({"_id": number}))

    def insert_many(self) -> None:
        numbers = [next(self._numbers) for _ in range(3)]
        self._insert(numbers, lambda: self._documents.insert_many([{"_id": number} for number in numbers]))

    def update(self) -> None:
        self.attempted["update"] += 1
        change = {"$inc": {"count": 1}}
        outcome = self._write(lambda: self._documents.update_one({"_id": "update"}, change, upsert=True))
        if outcome is not None:
            assert outcome.matched_count == 1 or outcome.upserted_id == "update"
            self.counted["update"] += 1

    def find_and_modify(self) -> None:
        self.attempted["modify"] += 1
        change, after = {"$inc": {"count": 1}}, pymongo.ReturnDocument.AFTER
        found = self._write(
            lambda: self._documents.find_one_and_update({"_id": "modify"}, change, upsert=True, return_document=after)
        )
        if found is not None:
            self.counted["modify"] += 1
            assert self.counted["modify"] <= found["count"] <= self.attempted["modify"]

    def bulk(self) -> None:
        names = ("bulk", "other")
        self.attempted.update(names)
        changes = [pymongo.UpdateOne({"_id": name}, {"$inc": {"count": 1}}, upsert=True) for name in names]
        if self._write(lambda: self._documents.bulk_write(changes)) is not None:
            self.counted.update(names)

    # Reads.

    def _reads(self, name: str, preference: Any) -> Step:
        documents = self._documents.with_options(read_preference=preference)

        def read() -> None:
            least = self.counted["update"]
            try:
                found = documents.find_one({"_id": "update"})
            except AutoReconnect:
                if name == "primary":
                    self.refused.append(name)
                else:
                    self.failed[name] += 1
                return
            seen = found["count"] if found is not None else 0
            assert seen <= self.attempted["update"]
            if name == "primary":
                assert seen >= least, "the primary has what was acknowledged"

        return read

    def read_own_writes(self) -> None:
        """At secondaries, in a session."""
        documents = self._documents.with_options(read_preference=Secondary(), read_concern=MAJORITY)
        with self._documents.database.client.start_session(causal_consistency=True) as session:
            for _ in range(2):
                number = next(self._numbers)
                insert = functools.partial(self._documents.insert_one, {"_id": number}, session=session)
                if not self._insert([number], insert):
                    return
                assert documents.find_one({"_id": number}, session=session) is not None
                change = {"$set": {"seen": True}}
                update = functools.partial(self._documents.update_one, {"_id": number}, change, session=session)
                if self._write(update) is not None:
                    found = documents.find_one({"_id": number}, session=session)
                    assert found is not None and found["seen"]

    def _watches(self, name: str, stream: Any) -> Step:
        heard = self.heard[name] = []

        def watch() -> None:
            change = stream.try_next()
            if change is not None:
                heard.append(change["documentKey"]["_id"])

        return watch


async def test_no_error_and_no_loss_when_primaries_die(tmp_path: Path) -> None:
    cluster = await ClientCluster.start(tmp_path, REGIONS)
    try:
        await _work(cluster)
    finally:
        await cluster.close()


class NodeProgram:
    """A program of Node's driver, which does the same in a collection of its own."""

    def __init__(self, uri: str) -> None:
        node = shutil.which("node")
        assert node is not None, "Node.js 20 or newer is not on the PATH; `make test` brings it"
        self._process = subprocess.Popen(
            [node, str(JAVASCRIPT)],
            env=os.environ | {"TEST_MONGO_URI": uri},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> dict[str, int]:
        """What it was told."""
        told, errors = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, errors
        found: dict[str, int] = json.loads(told)
        return found


async def _work(cluster: ClientCluster) -> None:
    with (
        pymongo.MongoClient[dict[str, Any]](f"{cluster.mongo_uri}&retryWrites=true&w=majority") as client,
        NodeProgram(cluster.mongo_uri) as other,
    ):
        documents = client.get_database("shop").get_collection("orders")
        documents.insert_one({"_id": "first"})
        only_inserts = [{"$match": {"operationType": "insert", "documentKey._id": {"$type": "number"}}}]
        preferred = {"primary": Primary(), "secondary": SecondaryPreferred()}
        streams = {
            name: documents.with_options(read_preference=preference).watch(only_inserts, max_await_time_ms=AWAIT_MS)
            for name, preference in preferred.items()
        }
        program, first_epoch = Program(documents), await cluster.epoch()
        with Workers(program.steps(streams)) as workers:
            await workers.progress(STEPS, "the start")
            killed, first_s = await cluster.kill_leader()
            # PyMongo waits for the server of a cursor: change streams go on when it is back, or after 30 s.
            await workers.progress(STEPS, "the primary was killed", besides="watch")
            await killed.start()
            await workers.progress(STEPS, "it was started again")
            killed, second_s = await cluster.kill_leader()
            await workers.progress(STEPS, "another primary was killed", besides="watch")
            await killed.start()
            await workers.progress(STEPS, "it was started again")
            others = [node for node in cluster.nodes if node != (await cluster.leader()).name]
            await cluster.command("failover", others[0])
            await workers.progress(STEPS, "the primary has handed over")
            print(f"led again after {first_s:.1f} s and {second_s:.1f} s; {workers.done}; longest: {workers.longest_s}")
        workers.check()
        changes = await cluster.epoch() - first_epoch
        _check(program, documents, streams, changes)
        _check_other(other.end(), client.get_database("shop").get_collection("javascript"), changes)


def _check(program: Program, documents: Documents, streams: dict[str, Any], changes: int) -> None:
    """`changes`: how often the primary has changed."""
    assert all(count <= changes for count in program.failed.values()), program.failed
    assert changes > CHANGES or not program.refused, program.refused
    stored = {each["_id"]: each.get("count", 0) for each in documents.find({})}
    numbers = [each for each in stored if isinstance(each, int)]
    assert sorted(set(numbers) - program.unknown) == sorted(program.inserted), "every insert is stored once"
    for name, count in program.counted.items():
        assert count <= stored[name] <= program.attempted[name], f"every $inc of {name} was done once"
        assert stored[name] == count or program.refused
    for name, stream in streams.items():
        heard = program.heard[name]
        while len(heard) < len(numbers):
            change = stream.next()
            heard.append(change["documentKey"]["_id"])
        assert sorted(heard) == sorted(numbers), f"the change stream {name} tells every insert once"
        stream.close()


def _check_other(told: dict[str, int], documents: Documents, changes: int) -> None:
    print(f"Node's driver: {told}")
    assert changes > CHANGES or not told["refused"]
    stored = {each["_id"]: each.get("count") for each in documents.find({})}
    done = (stored["count"] or 0) - told["counted"]
    assert 0 <= done <= told["uncounted"], "every acknowledged $inc was done once"
    assert {*range(told["inserted"])} <= stored.keys(), "no insert is lost"
    assert min(told[each] for each in ("inserted", "counted", "read", "causal")) >= STEPS
