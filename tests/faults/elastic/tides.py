"""Partitions that are filled and emptied again and again by several clients at once, with items of many shapes, while
indexing policies change, items expire, ranges split and merge, and the plug is pulled. What the index answers is held
against the items themselves, and these against what the clients were told.

Each client has items of its own, so it knows what is stored of them, but for what was not answered. Keys are few, so
that partitions are empty at low tide, and at the beginning of a flood all clients write at once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.elastic.inside import InsidePort
from faults.elastic.port import Document, Refused, Unanswered
from faults.elastic.simulation import TICK_S_MAX
from faults.elastic.world import World
from faults.ledger import Violation

from armillary.account import containers
from armillary.account.check import check_account
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member
from armillary.account.visits.write_visits import BatchAnswer
from armillary.errors import Failure, Kind
from armillary.model.key_values import Key
from armillary.partition.operations import Verb
from armillary.partition.partition import Partition
from armillary.partition.schema import Schema
from armillary.partition.upkeep.upkeep import CoverageScan

CLIENTS = 4
KEYS = ("k0", "k1", "k2")
ORDERED = ("due", "total", "kind")  # always in the index
FILTERED = ("a", "b", "c")  # in the index or not, as the policy of the moment says
RACES = 0.5  # of all floods: see `_race`
LOOK_WAITS_S_MAX = 0.1  # until a look goes on
QUESTIONS = 3  # of all that there are, in each comparison of a key
MARGIN_S = 1.6  # from the end of an item's life within which it may be seen or not
SHAPES = (("kind", "due"), ("kind", "total", "a"), ("due", "total", "b"), ("total", "c"))
SINGLY, TOGETHER, REPLACED, EXPIRED = "singly", "together", "replaced", "expired"
DEFINITION = {"defaultTtl": -1, "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/mark"]}]}}
Events = Callable[[World, asyncio.Event], Awaitable[None]]


@dataclass(slots=True)
class Kept:
    """An item of a client."""

    key: str
    document: Document | None  # as acknowledged; None: not there
    expires_s: float | None = None
    others: list[Document | None] = field(default_factory=list)  # what it may be, if an answer is missing


class Tide:
    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = random.Random(f"tides/{world.seed}")
        self.kept: dict[str, Kept] = {}  # by id
        self._count = 0
        self._shapes: list[tuple[str, ...]] = []  # what the items of each client have, in this tide
        self._stopping = asyncio.Event()

    async def run(self, events: Events, rounds: int) -> None:
        world = self.world
        happening = world.start(self._happen(events))
        governing = world.start(self._govern())
        for _ in range(rounds):
            ebb = self.dice.choice((SINGLY, SINGLY, SINGLY, TOGETHER, TOGETHER, REPLACED, EXPIRED))
            if self.dice.random() < RACES:
                await self._race(ebb)
            else:
                self._reshape()
                names = self.dice.sample(range(CLIENTS), CLIENTS)
                await asyncio.gather(*[world.start(self._flood(name, ebb)) for name in names])
            await self._compare("at high tide")
            await asyncio.gather(*[world.start(self._ebb(name, ebb)) for name in range(CLIENTS)])
            await self._settle()
            if self.dice.random() < 0.3:
                await self._compare(f"at low tide, {ebb}")
        self._stopping.set()
        await asyncio.gather(happening, governing)
        await self._compare("in the end")
        await world.account.close()
        await world.engine.close()
        problems = [str(problem) async for problem in check_account(world.engine, world.clock)]
        assert not world.history.violations and not problems, world.report(problems)

    async def _happen(self, events: Events) -> None:
        await events(self.world, self._stopping)

    def _reshape(self) -> None:
        """All items of a tide have one shape, or one client does something new, or each does what it likes."""
        usual = self._shapes[-1] if self._shapes else self.dice.choice(SHAPES)
        match self.dice.randrange(5):
            case 0:
                self._shapes = [self.dice.choice(SHAPES)] * CLIENTS
            case 1 | 2 | 3:
                self._shapes = [self.dice.choice(SHAPES), *[usual] * (CLIENTS - 1)]
            case _:
                self._shapes = self.dice.choices(SHAPES, k=CLIENTS)

    # Clients.

    async def _race(self, ebb: str) -> None:
        """All items of a partition had one shape, now it is empty, and several clients create its first items at once:
        the first of them has something that the others lack, and lacks something. The partition is looked through
        while it still has items, while they go, or while the new ones come."""
        usual, new = self.dice.sample(SHAPES, 2)
        names = self.dice.sample(range(CLIENTS), self.dice.choice((2, 2, 3)))
        self._shapes = [usual] * CLIENTS
        self._shapes[names[0]] = new
        key = self.dice.choice(KEYS)
        last = await self._create(names[1], key, SINGLY)
        looks = [self.dice.random() < chance for chance in (0.7, 0.6, 0.2)]
        if looks[0]:
            await self._look_at(key)
        is_close = self.dice.random() < 0.6  # the look ends while the clients' writes wait for their turn
        going = [self.world.start(self._look_at(key, 0.0 if is_close else LOOK_WAITS_S_MAX))] if looks[1] else []
        await asyncio.sleep((2 * TICK_S_MAX if is_close else LOOK_WAITS_S_MAX) * self.dice.random())
        if looks[1] and self.dice.random() < 0.4:  # the item stays, in another shape
            document = {**self._document(names[0], key, SINGLY), "id": last}
            member = Member(Verb.REPLACE, item_id=last, document=document)
            await self._write(self.world.port(), key, [member], [document])
            await asyncio.gather(*going)
            return
        leaving = self.world.start(
            self._write(self.world.port(), key, [Member(Verb.DELETE, item_id=last)], [None], [last])
        )
        if not is_close and self.dice.random() < 0.7:
            await leaving  # otherwise all are in one group
        coming = [self.world.start(self._create(name, key, ebb)) for name in names]
        if looks[2]:
            going.append(self.world.start(self._look_at(key)))
        await asyncio.gather(leaving, *coming, *going)

    async def _create(self, name: int, key: str, ebb: str) -> str:
        document = self._document(name, key, ebb)
        await self._write(self.world.port(), key, [Member(Verb.CREATE, document=document)], [document])
        return str(document["id"])

    async def _look_at(self, key: str, waits_s: float = LOOK_WAITS_S_MAX) -> None:
        """What upkeep does, at a partition where clients are at work."""
        account = self.world.place.account
        if account is not None:
            container = account.owner_container(*self.world.place.names)
            partition = container.partition_for(container.effective_key(Key((key,))))
            await self.world.ask(self._look_through(partition, container.schema, waits_s))

    async def _flood(self, name: int, ebb: str) -> None:
        port = self.world.port()
        for number in range(self.dice.choice((1, 1, 1, 1, 3))):
            key = self.dice.choice(KEYS)
            documents = [self._document(name, key, ebb) for _ in range(self.dice.choice((1, 1, 1, 3)))]
            if len(documents) == 1 or self.dice.random() < 0.3:
                for document in documents:
                    await self._write(port, key, [Member(Verb.UPSERT, document=document)], [document])
            else:
                await self._write(port, key, [Member(Verb.CREATE, document=each) for each in documents], documents)
            if number and self.dice.random() < 0.5:
                await self._change(port, name, ebb)
            if self.dice.random() < 0.5:
                await self._look(port, name, key)

    async def _ebb(self, name: int, ebb: str) -> None:
        port = self.world.port()
        mine = [item for item, kept in self.kept.items() if kept.document and item.startswith(f"{name}.")]
        if ebb == EXPIRED:
            while self._soon(mine):  # noqa: ASYNC110 - until a time
                await asyncio.sleep(0.3)
            return
        by_key: dict[str, list[str]] = {}
        for item in mine:
            by_key.setdefault(self.kept[item].key, []).append(item)
        for key, owned in by_key.items():
            members = [Member(Verb.DELETE, item_id=item) for item in owned]
            becomes: list[Document | None] = [None] * len(owned)
            if ebb == SINGLY:
                for item in owned:
                    await self._write(port, key, [Member(Verb.DELETE, item_id=item)], [None], [item])
                continue
            if ebb == REPLACED:  # the last goes and a new first one comes in one transaction
                document = self._document(name, key, ebb)
                members.append(Member(Verb.CREATE, document=document))
                owned, becomes = [*owned, document["id"]], [*becomes, document]
            await self._write(port, key, members, becomes, owned)

    async def _change(self, port: InsidePort, name: int, ebb: str) -> None:
        """An item gets another shape."""
        mine = [item for item, kept in self.kept.items() if kept.document and item.startswith(f"{name}.")]
        mine = [item for item in mine if self.kept[item].expires_s is None]
        if mine:
            item = self.dice.choice(mine)
            key = self.kept[item].key
            document = {**self._document(name, key, ebb), "id": item}
            await self._write(port, key, [Member(Verb.REPLACE, item_id=item, document=document)], [document])

    def _document(self, name: int, key: str, ebb: str) -> Document:
        self._count += 1
        document: Document = {"id": f"{name}.{self._count}", "key": key, "mark": f"m{self._count}"}
        for each in self._shapes[name]:
            document[each] = self.dice.randint(1, 9)
        if self.dice.random() < 0.1:
            document.pop(self.dice.choice((*ORDERED, *FILTERED)), None)
        if ebb == EXPIRED or self.dice.random() < 0.01:
            document["ttl"] = self.dice.randint(1, 3)
        return document

    async def _write(
        self,
        port: InsidePort,
        key: str,
        members: Sequence[Member],
        becomes: Sequence[Document | None],
        names: Sequence[str] | None = None,
    ) -> None:
        named = names or [str(each["id"]) for each in becomes if each is not None]
        begun, begun_s = self.world.history.moment(), self.world.clock.now_s()

        async def batch(account: Any, container: Any) -> BatchAnswer:
            return await items.batch(container, Key((key,)), members, ItemOptions(key=Key((key,))), account.clock)

        try:
            answer = await port._ask(batch)
        except (Refused, Unanswered) as error:
            self.world.history.excuse(f"write of {named}", begun, error)
            for item, document in zip(named, becomes, strict=True):
                kept = self.kept.setdefault(item, Kept(key, None))
                kept.others += [kept.document, document]
                self._age(kept, document, begun_s)
            await self.world.pause()
            return
        self.world.history.tally["writes"] += 1
        if not answer.is_done:
            missing = [each for each in answer.members if isinstance(each, Failure) and each.kind is Kind.NOT_FOUND]
            if missing and any(self._may_be_gone(item) for item in named):
                return  # it has expired, or an answer is missing that said so
            self._accuse("refused", f"{named}: {[str(each) for each in answer.members]}")
            return
        for item, document in zip(named, becomes, strict=True):
            kept = self.kept.setdefault(item, Kept(key, None))
            kept.document, kept.others, kept.expires_s = document, [], None
            self._age(kept, document, self.world.clock.now_s())

    def _age(self, kept: Kept, document: Document | None, now_s: float) -> None:
        if document is not None and "ttl" in document:
            kept.expires_s = int(now_s) + document["ttl"]

    def _may_be_gone(self, item: str) -> bool:
        kept = self.kept[item]
        return bool(kept.others) or (
            kept.expires_s is not None and self.world.clock.now_s() > kept.expires_s - MARGIN_S
        )

    def _soon(self, names: Sequence[str]) -> bool:
        """Whether one of them is about to expire, or may have."""
        now_s = self.world.clock.now_s()
        ends = [self.kept[item].expires_s for item in names]
        return any(end is not None and end + MARGIN_S > now_s for end in ends)

    # The index beside the items.

    async def _look(self, port: InsidePort, name: int, key: str) -> None:
        """While others write: a client's own items are there once, as they are."""
        mine = {
            item: kept.document
            for item, kept in self.kept.items()
            if item.startswith(f"{name}.") and kept.key == key and not kept.others and kept.expires_s is None
        }
        path = self.dice.choice(ORDERED)
        begun = self.world.history.moment()
        of_one = self.dice.random() < 0.5
        try:
            asked = port.query(f"SELECT * FROM c ORDER BY c.{path}", self.dice.choice((2, 50)), key if of_one else None)
            found = [row async for page in asked for row in page]
        except (Refused, Unanswered) as error:
            self.world.history.excuse("look", begun, error)
            return
        self.world.history.tally["looks"] += 1
        seen = Counter(row["id"] for row in found)
        shown = {row["id"]: row for row in found}
        for item, document in mine.items():
            if seen[item] != (document is not None):
                self._accuse("index", f"ORDER BY c.{path} has {item} {seen[item]} times, which is {document}")
            elif document is not None and any(shown[item].get(each) != document[each] for each in document):
                self._accuse("index", f"ORDER BY c.{path} has {shown[item]}, which is {document}")

    async def _compare(self, when: str) -> None:
        """While no client writes: whatever way is asked, the answer is made of the same items."""
        await self._settle()
        listed = await self._answered(self._list)
        self._judge(listed, when)
        for key in (None, self.dice.choice(KEYS)):
            there = [row for row in listed if key is None or row["key"] == key]
            asked = questions(there, self.dice)
            for text, is_ordered, expected in [*asked[: len(ORDERED)], *self.dice.sample(asked, QUESTIONS)]:
                found = await self._answered(lambda text=text, key=key: self._query(text, key))  # type: ignore[misc]
                self.world.history.tally["questions"] += 1
                if (found if is_ordered else sorted(found)) == expected:
                    continue
                if await self._answered(self._list) != listed:
                    return  # an item has expired meanwhile
                where = f"{when}, {key or 'all'}: {text} gives {found}, not {expected}"
                self._accuse("index", f"{where}; the items are {there}")

    async def _list(self) -> list[Document]:
        rows = [row async for page in self.world.port().feed(20) for row in page]
        return sorted(rows, key=lambda row: str(row["id"]))

    async def _query(self, text: str, key: str | None) -> list[Any]:
        pages = self.world.port().query(text, self.dice.choice((3, 100)), key)
        return [row async for page in pages for row in page]

    async def _answered(self, ask: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Again, when the server was dead meanwhile."""
        while True:
            begun = self.world.history.moment()
            try:
                return await ask()
            except (Refused, Unanswered) as error:
                self.world.history.excuse("comparison", begun, error)
                await self.world.pause()

    async def _settle(self) -> None:
        """Until no item is about to expire, and what was not answered is known."""
        while self._is_any_ending():  # noqa: ASYNC110 - until a time
            await asyncio.sleep(0.3)
        for item, kept in self.kept.items():
            while kept.others:
                begun = self.world.history.moment()
                try:
                    reply = await self.world.port().read(kept.key, item)
                except (Refused, Unanswered) as error:
                    self.world.history.excuse(f"read of {item}", begun, error)
                    await self.world.pause()
                    continue
                kept.document = _shown(reply.body) if reply.status == 200 else None
                if kept.document not in kept.others and not (kept.document is None and kept.expires_s is not None):
                    self._accuse("lost", f"{item} is {kept.document}, none of {kept.others}")
                kept.others = []
                if kept.document is None or "ttl" not in kept.document:
                    kept.expires_s = None

    def _is_any_ending(self) -> bool:
        now_s = self.world.clock.now_s()
        return any(kept.expires_s is not None and abs(kept.expires_s - now_s) < MARGIN_S for kept in self.kept.values())

    def _judge(self, listed: Sequence[Document], when: str) -> None:
        now_s = self.world.clock.now_s()
        if self._is_any_ending():
            return  # a crash took its time: what is listed may be either way
        expected = {
            item: kept.document
            for item, kept in self.kept.items()
            if kept.document is not None and (kept.expires_s is None or kept.expires_s > now_s)
        }
        found = {row["id"]: _shown(row) for row in listed}
        if len(found) != len(listed):
            self._accuse("duplicate", f"{when}: {[row['id'] for row in listed]}")
        for item in expected.keys() | found.keys():
            if expected.get(item) != found.get(item):
                self._accuse("lost", f"{when}: {item} is {found.get(item)}, not {expected.get(item)}")

    def _accuse(self, kind: str, text: str) -> None:
        self.world.history.violations.append(Violation(kind, text))

    # The operator.

    async def _look_through(self, partition: Partition, schema: Schema, waits_s: float = LOOK_WAITS_S_MAX) -> None:
        """What upkeep does now and then, at any time."""
        try:
            look = await CoverageScan.begin(partition, schema)
            await asyncio.sleep(self.dice.choice((0.0, 0.0, waits_s)) * self.dice.random())
            while look is not None and not await look.go_on():  # noqa: ASYNC110 - one batch at a time
                await asyncio.sleep(self.dice.choice((0.0, waits_s)) * self.dice.random())
        except Failure as failure:
            if failure.kind not in (Kind.RANGE_BUSY, Kind.RANGE_GONE):
                raise

    async def _govern(self) -> None:
        while not self._stopping.is_set():
            await asyncio.sleep(self.dice.choice((0.0, 0.01, 0.05, 2.0)))
            account = self.world.place.account
            if account is None:
                continue
            container = account.owner_container(*self.world.place.names)
            if self.dice.random() < 0.6:
                partition = self.dice.choice(list(container.partitions.values()))
                await self.world.ask(self._look_through(partition, container.schema))
                continue
            if self.dice.random() < 0.8:
                continue
            excluded = [{"path": f"/{each}/?"} for each in FILTERED if self.dice.random() < 0.4]
            composite = [{"path": f"/{each}", "order": "ascending"} for each in self.dice.sample(ORDERED, 2)]
            body = {
                **container.record.body,
                "indexingPolicy": {
                    "includedPaths": [{"path": "/*"}],
                    "excludedPaths": excluded,
                    "compositeIndexes": [composite] if self.dice.random() < 0.5 else [],
                },
                "defaultTtl": self.dice.choice((-1, 100_000)),
            }
            await self.world.ask(containers.replace_container(account, container, body, None))
            self.world.history.tally["policies"] += 1


def questions(there: Sequence[Document], dice: random.Random) -> list[tuple[str, bool, list[Any]]]:
    """What is asked, whether the answer has an order, and what it must be."""
    names = sorted(row["id"] for row in there)
    asked: list[tuple[str, bool, list[Any]]] = []
    asked += [(f"SELECT VALUE c.id FROM c ORDER BY c.{path}", False, names) for path in ORDERED]
    asked.append(("SELECT VALUE COUNT(1) FROM c", True, [len(there)]))
    for path in ORDERED:
        values = [row[path] for row in there if path in row]
        asked.append((f"SELECT VALUE c.{path} FROM c ORDER BY c.{path} DESC", True, sorted(values, reverse=True)))
        asked.append((f"SELECT VALUE COUNT(1) FROM c WHERE IS_DEFINED(c.{path})", True, [len(values)]))
        asked.append((f"SELECT DISTINCT VALUE c.{path} FROM c", False, sorted(set(values))))
        if values:
            asked.append((f"SELECT VALUE MAX(c.{path}) FROM c WHERE IS_DEFINED(c.{path})", True, [max(values)]))
    for path in (*ORDERED, *FILTERED):
        least = dice.randint(1, 9)
        matching = sorted(row["id"] for row in there if row.get(path, 0) >= least)
        asked.append((f"SELECT VALUE c.id FROM c WHERE c.{path} >= {least}", False, matching))
        lacking = sorted(row["id"] for row in there if path not in row)
        asked.append((f"SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.{path})", False, lacking))
    return asked


def _shown(row: Document) -> Document:
    return {name: value for name, value in row.items() if not name.startswith("_")}
