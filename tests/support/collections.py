"""Collections of the MongoDB door in an account in memory, without the door."""

from __future__ import annotations

from typing import Any

from support.house import House

from armillary.account import containers
from armillary.account.catalog.container_state import as_collection
from armillary.account.collections import document_operations, indexes
from armillary.account.container import Container
from armillary.account.throughput.provisioning import Throughput
from armillary.languages.mongo.indexes.index_definitions import default_name, read_definition
from armillary.model.bson.bson_values import encode


class Shop(House):
    async def collection(
        self, shard_key: str | None = None, throughput_ru: int = 400, name: str = "c", database: str = "shop"
    ) -> Container:
        owner = await containers.create_database(self.account, {"id": database}, None)
        policy = {"includedPaths": [{"path": '/"_id"/?'}], "excludedPaths": [{"path": "/*"}]}
        body: dict[str, Any] = {"id": name, "indexingPolicy": policy}
        if shard_key:
            body["partitionKey"] = {"paths": [f"/{shard_key}"], "kind": "Hash", "version": 2}
        return await containers.create_container(
            self.account,
            owner,
            body,
            Throughput.manual(throughput_ru),
            is_old_client=shard_key is None,
            begin=as_collection,
        )

    async def insert(self, container: Container, *documents: dict[str, Any]) -> None:
        operations = [document_operations.inserting(container, each, encode(each), self.clock) for each in documents]
        if len(operations) == 1:
            await document_operations.write(container, operations[0])
            return
        answer = await document_operations.write_many(container, operations, stops=True, at_once=True)
        for outcome in answer.outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def index(self, container: Container, key: dict[str, Any], **options: Any) -> int:
        definition = read_definition({"key": key, "name": default_name(key), **options})
        return await indexes.create_indexes(self.account, container, [definition])

    async def split(self, container: Container, range_id: int = 0) -> None:
        reshape = await self.account.reshaper.split(container, range_id)
        await self.account.reshaper.finished(reshape)
