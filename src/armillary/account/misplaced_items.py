"""Repair of misplaced items: finds items that are stored in another partition than their key says, and moves them.
Batches of versions that compared true with 1, and 0 with -0.0, could store such items: point reads and queries for
their key do not find them. `armillary check --repair` calls this on a data directory that no server uses.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from bson import json_util
from bson.codec_options import DatetimeConversion

from armillary.account.catalog.catalog import Catalog
from armillary.account.container import Container
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.limits import LOGICAL_PARTITION_BYTES_MAX
from armillary.model import documents, layout
from armillary.model.encoding import FORMAT_JSON, unpack_header
from armillary.model.items import strip_system_properties
from armillary.model.keys import Key, to_header
from armillary.model.resources import ResourceType
from armillary.partition.operations import Draft, MemberFailed, Operation, Verb, bson_draft, draft
from armillary.partition.partition import Partition
from armillary.partition.reshaping.item_moves import Extractor, drop_stray_versions, has_stray_versions
from armillary.storage.engine import Engine, Store, Txn, View

_CANONICAL = json_util.CANONICAL_JSON_OPTIONS.with_options(datetime_conversion=DatetimeConversion.DATETIME_MS)
_REFUSALS = (Kind.CONFLICT, Kind.KEY_FULL, Kind.TOO_LARGE, Kind.BAD_REQUEST)  # of an item; others are of storage


@dataclass(frozen=True, slots=True)
class Misplaced:
    container: Container
    partition: Partition  # that it lies in
    number: int
    stored: bytes
    item_id: str
    key: Key  # its own
    epk: bytes  # where that belongs

    def to_json(self) -> dict[str, Any]:
        """The form in which it is set aside."""
        return {
            "database": self.container.database.name,
            "container": self.container.name,
            "partitionKey": to_header(self.key),
            "item": self._shown(),
        }

    def _shown(self) -> Any:
        """Documents of MongoDB as canonical extended JSON, which keeps all types."""
        if self.stored[0] == FORMAT_JSON:
            return strip_system_properties(documents.json_document(self.stored, self.container.schema))
        return json.loads(json_util.dumps(documents.bson_document(self.stored), json_options=_CANONICAL))


async def _containers(engine: Engine, clock: Clock) -> AsyncIterator[Container]:
    """Those whose items have keys."""
    catalog = Catalog(engine, clock)
    await catalog.open()
    for record in catalog.of_type(ResourceType.CONTAINER):
        database = catalog.get(ResourceType.DATABASE, record.owner)
        if database is None:
            continue  # `check` names it
        container = Container(record, database, engine, clock, LOGICAL_PARTITION_BYTES_MAX)
        if container.key is None:
            continue
        await container.open()
        yield container


async def find_misplaced(engine: Engine, clock: Clock) -> AsyncIterator[Misplaced]:
    """Each such item of each container, as they are found. The caller may move those that it was given."""
    async for container in _containers(engine, clock):
        for partition in container.partitions.values():

            def found(view: View, container: Container = container, own: Partition = partition) -> list[Misplaced]:
                return list(_in_partition(view, container, own))

            for each in await partition.read(found):
                yield each


async def partitions_with_stray_versions(engine: Engine, clock: Clock) -> list[Partition]:
    """Where versions are kept of items that did not belong there. The items may have been deleted since."""
    return [
        partition
        async for container in _containers(engine, clock)
        for partition in container.partitions.values()
        if await partition.read(partial(has_stray_versions, key_range=partition.range))
    ]


async def drop_versions(partition: Partition) -> None:
    await partition.store.write(partial(drop_stray_versions, key_range=partition.range))


def _in_partition(view: View, container: Container, partition: Partition) -> Iterator[Misplaced]:
    for place, stored in view.scan(layout.ITEMS, layout.space_end(layout.ITEMS)):
        document = documents.json_document(stored, container.schema)
        key = container.key_of(document)
        epk = container.effective_key(key)
        if epk != unpack_header(stored).epk or not partition.range.contains(epk):
            number = int.from_bytes(place[-layout.RID_BYTES :], "big")
            yield Misplaced(container, partition, number, stored, str(document["id"]), key, epk)


async def move(misplaced: Misplaced, clock: Clock, set_aside: Callable[[dict[str, Any]], None]) -> bool:
    """Store an item where it belongs, in the transaction that takes it from where it lies. Where its id or a unique
    value is taken there, it is given to `set_aside`, which makes it durable, and taken out. Whether it was moved."""
    source, container = misplaced.partition, misplaced.container

    def extract(txn: Txn) -> None:
        head = source.head_in(txn)
        extractor = Extractor(txn, container.schema, head, {}, None, clock.now_s(), source.range)
        extractor.extract(misplaced.number)
        extractor.finish()

    def both(txn: Txn) -> None:
        extract(txn)
        create(txn)

    try:
        creation = Operation(Verb.CREATE, misplaced.epk, misplaced.key, misplaced.item_id, draft=_draft(misplaced))
        store, create = container.partition_for(misplaced.epk).share([creation], None)
        if store is source.store:
            await store.write(both)
        else:
            parts: list[tuple[Store, Callable[[Txn], Any]]] = [(source.store, extract), (store, create)]
            await store.write_together(parts)
    except (MemberFailed, Failure) as failed:
        refusal = failed.failure if isinstance(failed, MemberFailed) else failed
        if refusal.kind not in _REFUSALS:
            raise refusal from None
        set_aside({**misplaced.to_json(), "reason": refusal.message})
        await source.store.write(extract)
        return False
    return True


def _draft(misplaced: Misplaced) -> Draft:
    """The item as it is, with the time that it was written at: its time to live goes on."""
    schema, stored = misplaced.container.schema, misplaced.stored
    ts = unpack_header(stored).ts
    if stored[0] == FORMAT_JSON:
        return draft(schema, strip_system_properties(documents.json_document(stored, schema)), ts)
    return bson_draft(schema, documents.bson_document(stored), documents.bson_bytes(stored), ts)
