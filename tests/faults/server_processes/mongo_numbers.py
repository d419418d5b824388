"""A released MongoDB driver with retryable writes: what it was told is stored is there once, whichever processes have
died meanwhile."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

from faults.cluster_processes.driver_clients import DriverClient
from pymongo import MongoClient, ReturnDocument
from pymongo.errors import DuplicateKeyError, PyMongoError
from support.process import KEY

from armillary.doors.mongo.replica_set.membership import SET_NAME

COUNTERS = 6  # with different shard keys, and so in several processes


class MongoNumbers(DriverClient):
    """Inserts numbers, and counts up. An increment that was acknowledged says what it came to: one that is done twice
    is seen."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._client: MongoClient[dict[str, Any]] = MongoClient(
            f"mongodb://localhost:{quote_plus(KEY)}@127.0.0.1:{port}/?replicaSet={SET_NAME}&w=majority&retryWrites=true",
            serverSelectionTimeoutMS=60_000,
        )
        database = self._client["drivers"]
        database.command({"customAction": "CreateCollection", "collection": "numbers", "shardKey": "_id"})
        self._numbers = database["numbers"]
        self.wrong: list[str] = []
        self._counts = [0] * COUNTERS  # what was told last
        self._unknown = [0] * COUNTERS  # increments since then that were not answered

    def write(self, number: int) -> None:
        try:
            self._numbers.insert_one({"_id": number})
        except DuplicateKeyError:
            self.wrong.append(f"{number} was inserted, sent again, and refused as if another client had written it")
        self._count(number % COUNTERS)

    def _count(self, counter: int) -> None:
        try:
            found: Any = self._numbers.find_one_and_update(
                {"_id": f"counter{counter}"},
                {"$inc": {"count": 1}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        except PyMongoError:
            self._unknown[counter] += 1
            raise
        self._judge(counter, found["count"] - 1)
        self._counts[counter], self._unknown[counter] = found["count"], 0

    def _judge(self, counter: int, count: int) -> None:
        """What it is before the next increment."""
        known, unknown = self._counts[counter], self._unknown[counter]
        if not known <= count <= known + unknown:
            self.wrong.append(f"counter{counter} is {count} after {known} and {unknown} unanswered increments")

    def finds(self, number: int) -> bool:
        return self._numbers.find_one({"_id": number}) is not None

    def stored(self) -> set[int]:
        found = {each["_id"]: each.get("count", 0) for each in self._numbers.find({})}
        for counter in range(COUNTERS):
            self._judge(counter, found.pop(f"counter{counter}", 0))
        return set(found)

    def close(self) -> None:
        self._client.close()
