"""Released clients at work on a cluster, each in a thread of its own: what they were told is stored is there at the
end, and a session reads what it has written from whichever node the client chooses."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any
from urllib.parse import quote_plus

from azure.core.exceptions import AzureError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from faults.cluster_processes.processes import ClusterProcesses
from pymongo import MongoClient, ReadPreference
from pymongo.errors import PyMongoError
from support.process import KEY

from armillary.doors.mongo.replica_set.membership import SET_NAME

NAME = "drivers"
PAUSE_S = 0.02


class DriverClient(ABC):
    """Writes one new item after the other, and reads each of them back."""

    def __init__(self) -> None:
        self.written: list[int] = []  # acknowledged
        self.unseen: list[int] = []  # of these, those that the session did not find
        self.tally: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._number = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            self._number += 1
            try:
                self.write(self._number)
                self.written.append(self._number)
                if not self.finds(self._number):
                    self.unseen.append(self._number)
            except (AzureError, PyMongoError) as error:
                self.tally[f"{type(self).__name__}: {type(error).__name__} {str(error).splitlines()[0][:120]}"] += 1

    @abstractmethod
    def write(self, number: int) -> None:
        """Raises if it is not known to be stored."""

    @abstractmethod
    def finds(self, number: int) -> bool: ...

    @abstractmethod
    def stored(self) -> set[int]:
        """Everything that is there, as the newest state has it."""

    @abstractmethod
    def close(self) -> None: ...

    def lost(self) -> list[int]:
        return sorted(set(self.written) - self.stored())


class CosmosDriver(DriverClient):
    """azure-cosmos, at session level, with reads in the other region first."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        super().__init__()
        self._client = CosmosClient(
            f"http://127.0.0.1:{cluster.nodes['n1'].port}",
            KEY,
            consistency_level="Session",
            preferred_locations=["East", "West"],
        )
        database = self._client.create_database_if_not_exists(NAME)
        self._container: Any = database.create_container_if_not_exists(NAME, PartitionKey("/id"))

    def write(self, number: int) -> None:
        self._container.upsert_item({"id": str(number)})

    def finds(self, number: int) -> bool:
        try:
            self._container.read_item(str(number), str(number))
        except CosmosResourceNotFoundError as error:
            if error.sub_status == 1002:  # no node has come to the token in time: nothing was read
                raise
            return False
        return True

    def stored(self) -> set[int]:
        query = "SELECT VALUE c.id FROM c"
        return {int(each) for each in self._container.query_items(query, enable_cross_partition_query=True)}

    def close(self) -> None:
        self._client.close()


class MongoDriver(DriverClient):
    """PyMongo, with retryable writes, majority, causal sessions and reads from secondaries."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        super().__init__()
        hosts = ",".join(f"127.0.0.1:{node.mongo_port}" for node in cluster.nodes.values())
        self._client: MongoClient[dict[str, Any]] = MongoClient(
            f"mongodb://localhost:{quote_plus(KEY)}@{hosts}/?replicaSet={SET_NAME}&w=majority&retryWrites=true"
        )
        self._session = self._client.start_session(causal_consistency=True)
        self._collection = self._client[NAME]["numbers"]
        self._secondary = self._collection.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED)

    def write(self, number: int) -> None:
        self._collection.insert_one({"_id": number}, session=self._session)

    def finds(self, number: int) -> bool:
        return self._secondary.find_one({"_id": number}, session=self._session) is not None

    def stored(self) -> set[int]:
        return {each["_id"] for each in self._collection.find({})}

    def close(self) -> None:
        self._session.end_session()
        self._client.close()
