"""Items in a store as a partition keeps them, without the partition: what access paths and executions are tested on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import orjson

from armillary.languages.sql.compiling.compile import compile_query
from armillary.model import layout
from armillary.model.encoding import FLAG_INDEXED, FORMAT_JSON, ItemHeader, pack_item
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.keys import PartitionKeyDefinition
from armillary.query.access.access_path import WHOLE, Index
from armillary.query.execution import Execution
from armillary.query.page import START, Page, Progress
from armillary.storage.engine import Txn, View
from armillary.storage.memory import MemoryEngine

T = TypeVar("T")
KEY = PartitionKeyDefinition.parse({"paths": ["/pk"], "kind": "Hash", "version": 2})


class CountingView:
    """A view that knows how many keys were read from it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.keys = 0

    def get(self, key: bytes) -> bytes | None:
        self.keys += 1
        return self._view.get(key)

    def get_many(self, keys: Any) -> list[bytes | None]:
        self.keys += len(keys)
        return self._view.get_many(keys)

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        for pair in self._view.scan(low, high, reverse):
            self.keys += 1
            yield pair


class Shelf:
    """Items in a store as a partition keeps them."""

    def __init__(self, policy: IndexingPolicy, definition: PartitionKeyDefinition = KEY) -> None:
        self._store = MemoryEngine().store(1)
        self._definition = definition
        self.policy = policy
        self.items: dict[int, tuple[bytes, dict[str, Any]]] = {}

    async def put(self, items: list[dict[str, Any]], first_rid: int = 1000) -> None:
        numbers: dict[str, int] = {}

        def run(txn: Txn) -> None:
            for rid, item in enumerate(items, first_rid):
                epk = self._definition.effective_key(self._definition.extract(item))
                self.items[rid] = (epk, item)
                header = ItemHeader(FORMAT_JSON, FLAG_INDEXED, 0, rid, item.get("_ts", 0), 0, epk)
                txn.put(layout.item_key(rid), pack_item(header, orjson.dumps(item)))
                txn.put(layout.id_key(epk, item["id"]), rid.to_bytes(8, "big"))
                txn.put(layout.member_key(epk, rid), b"")
                for path, term in self.policy.terms(item, 0).terms:
                    number = numbers.setdefault(path, len(numbers) + 1)
                    txn.put(layout.path_key(path), number.to_bytes(4, "big"))
                    txn.put(layout.term_key(number, term, rid), b"")

        await self._store.write(run)

    async def page(self, text: str, parameters: dict[str, Any] | None = None, **options: Any) -> tuple[Page, int]:
        selection = compile_query(text).bind(parameters or {}).selection
        position = options.pop("position", START)
        execution = Execution(
            selection,
            scope=options.pop("scope", WHOLE),
            index=Index(self.policy),
            is_live=options.pop("is_live", None),
            statistics=options.pop("statistics", None),
            progress=Progress(position, selection.skip, selection.take),
        )

        def run(view: View) -> tuple[Page, int]:
            counting = CountingView(view)
            return execution.step(counting, **options), counting.keys

        return await self._store.read(run)

    async def all_rows(self, text: str, parameters: dict[str, Any] | None = None, **options: Any) -> list[Any]:
        rows: list[Any] = []
        position = START
        for _ in range(10_000):
            page, _ = await self.page(text, parameters, position=position, **options)
            rows.extend(map(orjson.loads, page.rows))
            if page.position is None:
                return rows
            assert page.position != position, "every page makes progress"
            position = page.position
        raise AssertionError("it never ends")

    def expected(self, text: str, parameters: dict[str, Any] | None, holds: Callable[[bytes], bool]) -> list[Any]:
        bound = compile_query(text).bind(parameters or {})
        return bound.evaluate_over([item for _, (epk, item) in sorted(self.items.items()) if holds(epk)])

    async def read(self, fn: Callable[[View], T]) -> T:
        return await self._store.read(fn)

    async def execute(self, execution: Execution, **options: Any) -> Page:
        return await self._store.read(lambda view: execution.step(view, **options))
