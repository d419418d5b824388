"""What the clients of the elastic tests do: each goes on by itself, choosing from a seed, and enters in the history
what it asked and what it was told. Keys are chosen as people choose them, a few of them most of the time.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from faults.checkers.appends import Action, Append, Read
from faults.checkers.feeds import Change
from faults.checkers.items import Said, Verb
from faults.checkers.pages import check_pages
from faults.checkers.sessions import Observation
from faults.elastic.history import History, version_of
from faults.elastic.port import Document, Port, Refused, Reply, Step, Unanswered
from faults.ledger import Violation, filler

REGISTERS, LISTS = 2, 3
RANKS = 25
STATICS = 120
LIST_LENGTH = 30  # appends after which another list is used
ORDERED = "SELECT c.id, c.rank, c.token, c.kind FROM c ORDER BY c.rank"
VERBS = (Verb.READ, Verb.CREATE, Verb.UPSERT, Verb.REPLACE, Verb.DELETE)
REFUSALS_MAX = 20
SAID = {404: Said.ABSENT, 409: Said.EXISTS, 412: Said.STALE}


@dataclass(frozen=True, slots=True)
class Keys:
    """Zipf: the n-th key is chosen in proportion to 1 / n to the power of `skew`."""

    count: int = 30
    skew: float = 1.0

    def all(self) -> list[str]:
        return [f"k{number}" for number in range(self.count)]

    def choose(self, dice: random.Random) -> str:
        return f"k{dice.choices(range(self.count), cum_weights=_weights(self))[0]}"


@cache
def _weights(keys: Keys) -> list[float]:
    return list(itertools.accumulate((number + 1) ** -keys.skew for number in range(keys.count)))


async def prepare(port: Port, history: History, seed: int, ballast_bytes: int, keys: Keys) -> None:
    """The items that stay as they are, and the counters and lists at their beginnings."""
    dice = random.Random(f"prepare/{seed}")
    for number in range(STATICS):
        name = f"s{number}"
        key = keys.choose(dice)
        body = {"id": name, "key": key, "kind": "static", "rank": dice.randint(1, RANKS), "token": name}
        history.statics[name] = body
        await port.create(key, {**body, "filler": filler(name, dice.randrange(1, ballast_bytes))})
    for key in keys.all():
        name = f"{key}.n"
        history.first[name] = 0
        await port.create(key, {"id": name, "key": key, "kind": "counter", "count": 0, "rank": rank_of(name)})


def rank_of(item: str) -> int:
    """Of an item that changes: always the same, so that its place in an order does not."""
    return sum(item.encode()) * 7 % RANKS + 1


class Actor:
    """One client. `pause` is waited for between two of its steps and between two pages."""

    def __init__(
        self,
        name: str,
        port: Port,
        history: History,
        seed: int,
        *,
        pause: Callable[[], Awaitable[None]],
        ballast_bytes: int,
        keys: Keys,
    ) -> None:
        self._name = name
        self._port = port
        self._history = history
        self._dice = random.Random(f"{name}/{seed}")
        self._keys = keys
        self._pause = pause
        self._ballast_bytes = ballast_bytes
        self._known: dict[str, tuple[Any, str]] = {}  # by item: a value that was there, and its etag
        self._count = itertools.count(1)

    async def run(self, stopping: asyncio.Event) -> None:
        steps = [(self._register, 8), (self._grow, 4), (self._transact, 4), (self._count_up, 3)]
        steps += [(self._grow_together, 1), (self._walk, 1), (self._ask, 1), (self._list, 1)]
        choices, weights = [each for each, _ in steps], [weight for _, weight in steps]
        while not stopping.is_set():
            await self._dice.choices(choices, weights)[0]()
            await self._pause()

    def _enter(self, item: str, verb: Verb, begun: float, said: Said, *values: Any, ended: float | None = None) -> None:
        self._history.enter(self._name, item, verb, begun, said, *values, ended=ended, repeats=self._port.repeats)

    async def _send(self, asked: Awaitable[Reply], begun: float, what: str) -> Reply | Exception:
        try:
            return await asked
        except (Refused, Unanswered) as error:
            self._history.excuse(what, begun, error)
            return error

    # Items that all actors write.

    async def _register(self) -> None:
        history, port = self._history, self._port
        key = self._keys.choose(self._dice)
        item = f"{key}.r{self._dice.randrange(REGISTERS)}"
        verb = self._dice.choices(VERBS, (5, 2, 3, 5, 1))[0]
        expected, etag = None, None
        if verb in (Verb.REPLACE, Verb.DELETE) and item in self._known and self._dice.random() < 0.8:
            expected, etag = self._known[item]
        value = history.token(item) if verb not in (Verb.READ, Verb.DELETE) else None
        document = self._document(item, key, "register", value)
        begun = history.moment()
        asked: Awaitable[Reply]
        if verb is Verb.READ:
            asked = port.read(key, item)
        elif verb is Verb.CREATE:
            asked = port.create(key, document)
        elif verb is Verb.UPSERT:
            asked = port.upsert(key, document)
        elif verb is Verb.REPLACE:
            asked = port.replace(key, item, document, etag)
        else:
            asked = port.delete(key, item, etag)
        reply = await self._send(asked, begun, f"{verb.value} {item}")
        if isinstance(reply, Exception):
            said, ended = history.settle(begun, reply)
            self._enter(item, verb, begun, said, value, expected, ended=ended)
            return
        said = SAID.get(reply.status, Said.OK)
        if verb is Verb.READ and said is Said.OK:
            value = reply.body["token"]
        was_there = reply.was_there if verb is Verb.UPSERT else None
        self._enter(item, verb, begun, said, value, expected, was_there)
        if said is not Said.OK or verb is Verb.DELETE:
            self._known.pop(item, None)
        elif reply.etag is not None and value is not None:
            self._known[item] = (value, reply.etag)

    async def _count_up(self) -> None:
        history = self._history
        key = self._keys.choose(self._dice)
        item = f"{key}.n"
        is_write = self._dice.random() < 0.6
        verb = Verb.INCREMENT if is_write else Verb.READ
        begun = history.moment()
        asked = self._port.increment(key, item) if is_write else self._port.read(key, item)
        reply = await self._send(asked, begun, f"{verb.value} {item}")
        if isinstance(reply, Exception):
            said, ended = history.settle(begun, reply)
            self._enter(item, verb, begun, said, ended=ended)
        elif reply.status == 200:
            self._enter(item, verb, begun, Said.OK, reply.body["count"])
            history.observations.append(Observation(self._name, item, reply.body["count"], is_write))
        else:
            self._enter(item, verb, begun, SAID[reply.status])

    async def _transact(self) -> None:
        """Appends and reads on some lists of one key, all at once."""
        history = self._history
        key = self._keys.choose(self._dice)
        epoch = history.transacted[key] // LIST_LENGTH
        history.transacted[key] += 1
        name = f"{key}/{self._name}/{next(self._count)}"
        steps = []
        for _ in range(self._dice.randint(1, 4)):
            item = f"{key}.l{self._dice.randrange(LISTS)}.{epoch}"
            if self._dice.random() < 0.5:
                value = int(history.token(item)[1:])
                steps.append(Step("append", item, value))
            else:
                steps.append(Step("read", item))
        # A client that sends it again when the connection ends is told so.
        marker = f"{key}.m{self._name}.{next(self._count)}"
        history.lists.add(marker)
        document = {"id": marker, "key": key, "kind": "list", "values": [], "rank": rank_of(marker)}
        steps.append(Step("create", marker, document))
        begun = history.moment()
        reply = await self._send(self._port.batch(key, steps), begun, f"batch {name}")
        if isinstance(reply, Reply) and reply.status == 404:
            await self._make_list(key, epoch)
            return
        actions = [Append(step.item_id, step.value) for step in steps if step.verb == "append"]
        if isinstance(reply, Exception):
            said, ended = history.settle(begun, reply)
            history.enter_transaction(name, actions, begun, said, ended)
            return
        if reply.status == 409 and self._port.repeats and history.was_dead(begun):
            history.enter_transaction(name, actions, begun, Said.UNKNOWN, history.moment())
            return
        assert reply.status == 200, reply
        done: list[Action] = []
        for step, body in zip(steps[:-1], reply.body[:-1], strict=True):
            done.append(
                Append(step.item_id, step.value) if step.verb == "append" else Read(step.item_id, tuple(body["values"]))
            )
        history.enter_transaction(name, done, begun, Said.OK, history.moment())

    async def _make_list(self, key: str, epoch: int) -> None:
        for number in range(LISTS):
            item = f"{key}.l{number}.{epoch}"
            begun = self._history.moment()
            self._history.lists.add(item)
            document = {"id": item, "key": key, "kind": "list", "values": [], "rank": rank_of(item)}
            await self._send(self._port.create(key, document), begun, f"create {item}")

    # Items that are written once.

    async def _grow(self) -> None:
        history = self._history
        key = self._keys.choose(self._dice)
        item = f"{self._name}.g{next(self._count)}"
        document = self._document(item, key, "grown", history.token(item))
        begun = history.moment()
        reply = await self._send(self._port.create(key, document), begun, f"create {item}")
        self._enter_grown(reply, begun, [document])

    async def _grow_together(self) -> None:
        history = self._history
        key = self._keys.choose(self._dice)
        name = f"{self._name}.b{next(self._count)}"
        documents = []
        for number in range(self._dice.randint(2, 6)):
            item = f"{name}.{number}"
            documents.append(self._document(item, key, "grown", history.token(item)) | {"transaction": name})
        begun = history.moment()
        history.batches.append(([each["id"] for each in documents], begun))
        steps = [Step("create", each["id"], each) for each in documents]
        reply = await self._send(self._port.batch(key, steps), begun, f"batch {name}")
        self._enter_grown(reply, begun, documents)

    def _enter_grown(self, reply: Reply | Exception, begun: float, documents: list[Document]) -> None:
        history = self._history
        if isinstance(reply, Exception):
            said, ended = history.settle(begun, reply)
        else:
            said, ended = SAID.get(reply.status, Said.OK), history.moment()
        for document in documents:
            item = document["id"]
            self._enter(item, Verb.CREATE, begun, said, document["token"], ended=ended)
            if said is Said.OK:
                shown = {each: document[each] for each in ("id", "rank", "token", "kind")}
                history.grown[item] = (shown, ended)

    def _document(self, item: str, key: str, kind: str, token: Any) -> Document:
        size = self._dice.randint(1, self._ballast_bytes)
        ballast = filler(token or "-", size)
        return {"id": item, "key": key, "kind": kind, "token": token, "rank": rank_of(item), "filler": ballast}

    # Reading along while everything moves.

    async def _walk(self) -> None:
        """Everything in order, in small pages."""
        await self._compare_pages(self._port.query(ORDERED, self._page_items()), ORDERED, lambda row: row["rank"])

    async def _list(self) -> None:
        await self._compare_pages(self._port.feed(self._page_items()), "read feed", _no_order)

    def _page_items(self) -> int:
        """So that everything is a handful of pages or some twenty of them."""
        count = len(self._history.statics) + len(self._history.grown)
        return max(7, count // self._dice.randint(4, 20))

    async def _compare_pages(
        self,
        asked: AsyncIterator[list[Any]],
        what: str,
        order: Callable[[Any], Any],
    ) -> None:
        history = self._history
        begun = history.moment()
        wanted = {name: _shown(document) for name, document in history.statics.items()}
        wanted |= {name: document for name, (document, ended) in history.grown.items() if ended <= begun}
        pages = await self._pages(asked, what, begun)
        if pages is None:
            return
        cut = [[_shown(row) for row in page] for page in pages]
        found = check_pages(
            cut,
            list(wanted.values()),
            order=order,
            may_show=lambda row: row["kind"] in ("counter", "list") or row["token"] in history.sent[row["id"]],
            moves=lambda row: row["kind"] == "register",
        )
        history.tally["walks"] += 1
        history.tally["pages"] += len(pages)
        history.violations += [
            Violation(each.kind, f"{self._name}, {what} since {begun}: {each.text}") for each in found
        ]

    async def _ask(self) -> None:
        """Queries about items that no actor touches: their results are known."""
        history = self._history
        key = self._keys.choose(self._dice)
        statics = list(history.statics.values())
        of_key = [each for each in statics if each["key"] == key]
        questions = [
            ("SELECT VALUE COUNT(1) FROM c WHERE c.kind = 'static'", False, [len(statics)]),
            ("SELECT VALUE SUM(c.rank) FROM c WHERE c.kind = 'static'", False, [sum(s["rank"] for s in statics)]),
            ("SELECT VALUE COUNT(1) FROM c WHERE c.kind = 'static'", True, [len(of_key)]),
            (
                "SELECT DISTINCT VALUE c.rank FROM c WHERE c.kind = 'static'",
                False,
                sorted({each["rank"] for each in statics}),
            ),
            (
                "SELECT VALUE c.rank FROM c WHERE c.kind = 'static' ORDER BY c.rank DESC OFFSET 7 LIMIT 30",
                False,
                sorted((each["rank"] for each in statics), reverse=True)[7:37],
            ),
            (
                "SELECT TOP 20 VALUE c.rank FROM c WHERE c.kind = 'static' ORDER BY c.rank",
                False,
                sorted(each["rank"] for each in statics)[:20],
            ),
            (
                "SELECT VALUE c.id FROM c WHERE c.kind = 'static' ORDER BY c.id",
                True,
                sorted(each["id"] for each in of_key),
            ),
            (
                "SELECT VALUE c.id FROM c WHERE c.kind = 'static' AND c.rank < 12",
                False,
                sorted(each["id"] for each in statics if each["rank"] < 12),
            ),
            (
                "SELECT c.rank, COUNT(1) AS n FROM c WHERE c.kind = 'static' GROUP BY c.rank",
                False,
                sorted(Counter(each["rank"] for each in statics).items()),
            ),
        ]
        text, of_one, expected = self._dice.choice(questions if self._port.groups else questions[:-1])
        await self._compare_rows(text, key if of_one else None, expected)

    async def _compare_rows(self, text: str, key: str | None, expected: list[Any]) -> None:
        """The result of a query, of one key or of all."""
        history = self._history
        begun = history.moment()
        pages = await self._pages(self._port.query(text, self._dice.choice((3, 10, 100)), key), text, begun)
        if pages is None:
            return
        rows = [(row["rank"], row["n"]) if isinstance(row, dict) else row for page in pages for row in page]
        found = rows if "ORDER BY" in text else sorted(rows)
        history.tally["questions"] += 1
        if found != expected:
            history.violations.append(
                Violation(
                    "result", f"{self._name}, {text} of {key or 'all'} since {begun} gives {found}, not {expected}"
                )
            )

    async def _pages(self, asked: AsyncIterator[list[Any]], what: str, begun: float) -> list[list[Any]] | None:
        pages = []
        try:
            async for page in asked:
                pages.append(page)
                await self._pause()
        except (Refused, Unanswered) as error:
            self._history.excuse(what, begun, error)
            return None
        return pages


class Follower:
    """Reads the change feed from the beginning, for as long as there are changes and it is not refused."""

    def __init__(self, port: Port, history: History, pause: Callable[[], Awaitable[None]]) -> None:
        self._port = port
        self._history = history
        self._pause = pause
        self._continuation: str | None = None
        self.pages: list[list[Change]] = []

    async def run(self, stopping: asyncio.Event) -> None:
        """Until it is told to stop and has seen everything."""
        is_last, refusals = False, 0
        while not is_last:
            is_last = stopping.is_set()
            begun = self._history.moment()
            known = len(self.pages)
            try:
                async for rows, continuation in self._port.changes(self._continuation):
                    self.pages.append([_change(row) for row in rows])
                    if continuation is not None:
                        self._continuation, known = continuation, len(self.pages)
            except (Refused, Unanswered) as error:
                self._history.excuse("change feed", begun, error)
                del self.pages[known:]  # they come again
                is_last = False
                refusals += isinstance(error, Refused) and not self._history.was_dead(begun)
                if refusals > REFUSALS_MAX:
                    return
            await self._pause()


def _change(row: Document) -> Change:
    return Change(row["id"], version_of(row), row["_lsn"], row.get("transaction"), row["key"])


def _shown(row: Document) -> Document:
    return {each: row.get(each) for each in ("id", "rank", "token", "kind")}


def _no_order(_: Any) -> int:
    """Of feeds: an item's place is its number's, which clients do not know."""
    return 0
