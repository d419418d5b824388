"""Upper bound of bulk inserts: the same documents written by the engine in this process, a thousand at a time, one
transaction for each partition; nothing is received, decoded, metered or answered. Run as a program it prints documents
per second and CPU microseconds per document, for three variants: preparing and writing operations, writing prepared
operations, and only putting the same keys and values into the store.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import bson
import uvloop

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.catalog.container_state import as_collection
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import SystemClock
from armillary.model.bson.bson_values import CODEC
from armillary.partition.operations import Operation
from armillary.partition.partition import Partition
from armillary.storage.engine import Txn
from armillary.storage.rocks import RocksEngine
from bench.mongo_wire import document

BATCH = 1_000
_SPARE_STORE = 1_000_000  # a store number that is not in use


class _Recorder:
    """A transaction that also records what is put."""

    def __init__(self, txn: Txn, puts: list[tuple[bytes, bytes]]) -> None:
        self._txn = txn
        self._puts = puts
        self.get, self.get_many, self.delete = txn.get, txn.get_many, txn.delete
        self.delete_range = txn.delete_range

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return self._txn.scan(low, high, reverse)

    def put(self, key: bytes, value: bytes) -> None:
        self._puts.append((key, value))
        self._txn.put(key, value)


async def measure(directory: Path, durability: Literal["full", "relaxed"], throughput_ru: int, seconds: float) -> None:
    engine = await RocksEngine.open(directory, durability)
    account = await Account.open(engine, SystemClock())
    container = await _collection(account, throughput_ru)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # as the server has it
    spent_s = {"documents": 0.0, "operations": 0.0, "puts": 0.0}
    worked_s = dict(spent_s)  # of the processor
    count = number = 0
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        puts: list[tuple[bytes, bytes]] = []
        for kind in ("documents", "operations"):
            encoded = [bson.encode(document(each)) for each in range(number, number + BATCH)]
            number += BATCH
            decoded = [bson.decode(each, CODEC) for each in encoded]
            begun_s, begun_work_s = time.perf_counter(), time.process_time()
            parts = _operations(account, container, decoded, encoded)
            if kind == "operations":
                begun_s, begun_work_s = time.perf_counter(), time.process_time()
            await asyncio.gather(*[partition.write_all(each) for partition, each in parts])
            spent_s[kind] += time.perf_counter() - begun_s
            worked_s[kind] += time.process_time() - begun_work_s
        encoded = [bson.encode(document(each)) for each in range(number, number + BATCH)]
        number += BATCH
        parts = _operations(account, container, [bson.decode(each, CODEC) for each in encoded], encoded)
        for partition, operations in parts:
            await _noting(partition, operations, puts)
        begun_s, begun_work_s = time.perf_counter(), time.process_time()
        await engine.store(_SPARE_STORE).write(lambda txn, puts=puts: [txn.put(*each) for each in puts])  # type: ignore[misc]
        spent_s["puts"] += time.perf_counter() - begun_s
        worked_s["puts"] += time.process_time() - begun_work_s
        count += BATCH
    await account.close()
    await engine.close()
    print(json.dumps({kind: (count / each, worked_s[kind] / count * 1e6) for kind, each in spent_s.items()}))


def _operations(
    account: Account, container: Container, decoded: list[dict[str, Any]], encoded: list[bytes]
) -> list[tuple[Partition, list[Operation]]]:
    parts: dict[Partition, list[Operation]] = {}
    for each, text in zip(decoded, encoded, strict=True):
        operation = document_operations.inserting(container, each, text, account.clock)
        parts.setdefault(container.partition_for(operation.epk), []).append(operation)
    return list(parts.items())


async def _noting(partition: Partition, operations: Sequence[Operation], puts: list[tuple[bytes, bytes]]) -> None:
    store = partition._store

    def run(txn: Txn) -> Any:
        return partition._run_all(cast(Txn, _Recorder(txn, puts)), operations, None, None)

    _, writer, _ = await store.write(run)
    partition.remember(writer)


async def _collection(account: Account, throughput_ru: int) -> Container:
    """A collection sharded by region, as the MongoDB API creates it."""
    database = await containers.create_database(account, {"id": "bench"}, None)
    policy = {
        "indexingMode": "consistent",
        "includedPaths": [{"path": '/"_id"/?'}, {"path": '/"region"/?'}],
        "excludedPaths": [{"path": "/*"}],
    }
    body = {
        "id": "c",
        "indexingPolicy": policy,
        "partitionKey": {"paths": ["/region"], "kind": "Hash", "version": 2},
    }
    throughput = Throughput.manual(throughput_ru)
    return await containers.create_container(account, database, body, throughput, begin=as_collection)


if __name__ == "__main__":
    _directory, _durability, _throughput, _seconds = sys.argv[1:]
    assert _durability in ("full", "relaxed")
    uvloop.run(
        measure(Path(_directory), cast(Literal["full", "relaxed"], _durability), int(_throughput), float(_seconds))
    )
