"""The clients of the fault tests: each writes its own groups of items, singly and in batches, and with all the others
the shared counters and chains. Refused writes are part of it: their answers are known beforehand and must be right.

What was said is entered in the ledger; starting, killing and comparing is the supervisor's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from faults import emptied
from faults.client import Answer, Client, ConnectionLost
from faults.ledger import Chain, Counter, Group, Ledger, Outcome, State, Violation, filler

DATABASE, CONTAINER = "faults", "items"
LINK = f"dbs/{DATABASE}/colls/{CONTAINER}"
DOCS = f"{LINK}/docs"
THROUGHPUT_RU = 24_000  # four partitions
LOGICAL_PARTITIONS = 24
SINGLES_EACH, BATCHES_EACH, SHARED = 12, 3, 4
CLIENTS = 16
STORAGE_FULL, SESSION_BEHIND = (403, 1005), (404, 1002)

DEFINITION = {
    "id": CONTAINER,
    "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2},
    "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/token"]}]},
    "defaultTtl": -1,
}

Operation = dict[str, Any]


async def prepare(client: Client, ledger: Ledger) -> None:
    """Make the container and the items that all clients share."""
    answers = [
        await client.request("POST", "dbs", {"id": DATABASE}, is_feed=True),
        await client.request(
            "POST",
            f"dbs/{DATABASE}/colls",
            DEFINITION,
            {"x-ms-offer-throughput": str(THROUGHPUT_RU)},
            is_feed=True,
        ),
        await client.request("POST", f"dbs/{DATABASE}/colls", emptied.DEFINITION, is_feed=True),
    ]
    for number in range(SHARED):
        counter = ledger.counters[f"counter{number}"] = Counter(f"counter{number}", f"k{number}")
        item = {"id": counter.name, "key": counter.key, "count": 0}
        answers.append(await client.request("POST", DOCS, item, key_header(counter.key), is_feed=True))
        chain = ledger.chains[f"chain{number}"] = Chain(f"chain{number}", f"k{number}", f"first of chain{number}")
        first = {"id": chain.name, "key": chain.key, "token": chain.settled}
        answers.append(await client.request("POST", DOCS, first, key_header(chain.key), is_feed=True))
    for answer in answers:
        assert answer.status == 201, answer
    ledger.definitions.settled = {CONTAINER: "", emptied.EMPTIED: ""}


def key_header(key: str) -> dict[str, str]:
    return {"x-ms-documentdb-partitionkey": f'["{key}"]'}


async def read_everything(client: Client, session: dict[int, int]) -> tuple[list[dict[str, Any]], list[Violation]]:
    """Every item of the container, range by range, and what was wrong with the answers."""
    items: list[dict[str, Any]] = []
    wrong: list[Violation] = []
    ranges = await client.request("GET", f"{LINK}/pkranges", is_feed=True)
    if ranges.status != 200:
        return items, [Violation("answer", f"the ranges are answered {ranges.status}: {ranges.body!r}")]
    for each in ranges.json["PartitionKeyRanges"]:
        headers = {
            "x-ms-documentdb-partitionkeyrangeid": each["id"],
            "x-ms-max-item-count": "1000",
            "x-ms-session-token": f"{each['id']}:1#{session.get(int(each['id']), 0)}",
        }
        while True:
            answer = await client.request("GET", DOCS, None, headers, is_feed=True)
            if (answer.status, answer.sub_status) == SESSION_BEHIND:
                wrong.append(
                    Violation("lsn", f"range {each['id']} has not reached {headers.pop('x-ms-session-token')}")
                )
                continue
            if answer.status != 200:
                wrong.append(Violation("answer", f"range {each['id']} is answered {answer.status}: {answer.body!r}"))
                break
            items += answer.json["Documents"]
            continuation = answer.headers.get("x-ms-continuation")
            if continuation is None:
                break
            headers["x-ms-continuation"] = continuation
    return items, wrong


async def read_definitions(client: Client) -> State:
    """The containers, each with the token that its indexing policy excludes."""
    answer = await client.request("GET", f"dbs/{DATABASE}/colls", is_feed=True)
    assert answer.status == 200, answer
    return {
        each["id"]: "".join(path["path"].split("/")[1] for path in each["indexingPolicy"]["excludedPaths"][:-1])
        for each in answer.json["DocumentCollections"]
    }


class Writer:
    """One client. Goes on until it is told to stop or the connection ends."""

    def __init__(self, number: int, ledger: Ledger, dice: random.Random) -> None:
        self._ledger = ledger
        self._dice = dice
        self._client: Client
        self._is_first = number == 0  # also looks after the containers
        self._singles = [self._group(f"c{number}s{each}") for each in range(SINGLES_EACH)]
        self._batches = [self._group(f"c{number}b{each}") for each in range(BATCHES_EACH)]
        self.emptying = emptied.Emptying(number, ledger, dice)
        self.refused_full = 0

    def _group(self, name: str) -> Group:
        key = f"k{self._dice.randrange(LOGICAL_PARTITIONS)}"
        return self._ledger.groups.setdefault(name, Group(name, key))

    async def run(self, port: int, stopping: asyncio.Event) -> None:
        steps: list[Callable[[], Coroutine[Any, Any, None]]]
        steps = [self._single, self._single, self._single, self._single, self._batch, self._count, self._link]
        steps += [self._empty]
        if self._is_first:
            steps.append(self._define)
        try:
            self._client = await Client.connect(port)
        except ConnectionLost:
            return
        try:
            while not stopping.is_set():
                await self._dice.choice(steps)()
        except ConnectionLost:
            pass
        finally:
            self._client.close()

    async def _empty(self) -> None:
        await self.emptying.step(self._client)

    # Single items of its own.

    async def _single(self) -> None:
        group = self._pick(self._singles)
        if group is None:
            return
        item_id = group.item_id(0)
        choices = self._when_there if item_id in group.settled else self._when_absent
        await self._dice.choices([each for each, _ in choices], [weight for _, weight in choices])[0](
            self, group, item_id
        )

    async def _create(self, group: Group, item_id: str) -> None:
        is_there = item_id in group.settled
        item = self._item(group, item_id)
        await self._write(group, f"create {item_id}", item, 409 if is_there else 201, "POST", DOCS)

    async def _upsert(self, group: Group, item_id: str) -> None:
        is_there = item_id in group.settled
        item = self._item(group, item_id)
        headers = {"x-ms-documentdb-is-upsert": "true"}
        await self._write(group, f"upsert {item_id}", item, 200 if is_there else 201, "POST", DOCS, headers)

    async def _replace(self, group: Group, item_id: str) -> None:
        is_there = item_id in group.settled
        headers = {"if-match": group.etags[item_id]} if is_there else {}
        item = self._item(group, item_id)
        link = f"{DOCS}/{item_id}"
        await self._write(group, f"replace {item_id}", item, 200 if is_there else 404, "PUT", link, headers)

    async def _replace_stale(self, group: Group, item_id: str) -> None:
        headers = {"if-match": '"00000000-0000-0000-0000-000000000000"'}
        link = f"{DOCS}/{item_id}"
        await self._write(group, f"stale {item_id}", self._item(group, item_id), 412, "PUT", link, headers)

    async def _patch(self, group: Group, item_id: str) -> None:
        token = self._ledger.token()
        status, after = 404, group.settled
        if item_id in group.settled:
            status, after = 200, {**group.settled, item_id: _patched(group.settled[item_id], token)}
        body = {"operations": _patch_operations(token)}
        headers = {"content-type": "application/json_patch+json"}
        what = f"patch {item_id} {token}"
        await self._send(group, what, after, status, "PATCH", f"{DOCS}/{item_id}", body, headers, item_id)

    async def _delete(self, group: Group, item_id: str) -> None:
        is_there = item_id in group.settled
        after = {other: text for other, text in group.settled.items() if other != item_id}
        status = 204 if is_there else 404
        what = f"delete {item_id} {self._ledger.token()}"
        await self._send(group, what, after, status, "DELETE", f"{DOCS}/{item_id}", None, {}, item_id)

    async def _read(self, group: Group, item_id: str) -> None:
        answer = await self._client.request("GET", f"{DOCS}/{item_id}", None, key_header(group.key))
        token = group.settled[item_id].partition("+")[0]
        if answer.status != 200 or answer.json["token"] != token:
            told = group.history[-1] if group.history else "an earlier run"
            self._ledger.accuse("answer", f"{item_id} is read as {answer}, after {told}")

    _when_absent = ((_create, 5), (_upsert, 3), (_delete, 1), (_replace, 1), (_patch, 1))
    _when_there = (
        (_upsert, 4),
        (_replace, 5),
        (_patch, 5),
        (_delete, 3),
        (_create, 2),
        (_replace_stale, 2),
        (_read, 2),
    )

    async def _write(
        self,
        group: Group,
        what: str,
        item: dict[str, Any],
        status: int,
        method: str,
        link: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        after = {**group.settled, item["id"]: f"{item['token']}+0"}
        await self._send(group, f"{what} {item['token']}", after, status, method, link, item, headers or {}, item["id"])

    async def _send(
        self,
        group: Group,
        what: str,
        after: State,
        status: int,
        method: str,
        link: str,
        body: object,
        headers: dict[str, str],
        item_id: str,
    ) -> None:
        """One write of one item: the status that it must be answered with is known before it is sent."""
        ledger = self._ledger
        ledger.begin(group, what, after)
        headers = {**key_header(group.key), **headers}
        try:
            answer = await self._client.request(method, link, body, headers, is_feed=method == "POST")
        except ConnectionLost:
            ledger.end(group, Outcome.UNKNOWN)
            raise
        outcome = self._outcome(answer, status, what, is_done=status < 300)
        ledger.end(group, outcome)
        if outcome is Outcome.OK:
            self._note(answer, what)
            if "etag" in answer.headers:
                group.etags[item_id] = answer.headers["etag"]

    # Batches of its own.

    async def _batch(self) -> None:
        group = self._pick(self._batches)
        if group is None:
            return
        dice = self._dice
        size = dice.randint(2, 12) if dice.random() < 0.9 else dice.randint(13, 100)
        is_doomed = dice.random() < 0.15
        after = dict(group.settled)
        operations = [
            self._member(group, group.item_id(number), after) for number in dice.sample(range(max(size, 16)), size)
        ]
        if is_doomed:
            doomed = {"operationType": "Replace", "id": "missing", "resourceBody": {"id": "missing", "key": group.key}}
            operations[dice.randrange(size)] = doomed
        await self._send_batch(group, operations, after, is_doomed)

    def _member(self, group: Group, item_id: str, after: State) -> Operation:
        """An operation on an item that the batch has not touched yet; `after` learns what it comes to."""
        is_there = item_id in group.settled
        verb = self._dice.choice(("Upsert", "Replace", "Patch", "Delete") if is_there else ("Create", "Upsert"))
        if verb == "Delete":
            del after[item_id]
            return {"operationType": verb, "id": item_id}
        if verb == "Patch":
            token = self._ledger.token()
            after[item_id] = _patched(group.settled[item_id], token)
            return {"operationType": verb, "id": item_id, "resourceBody": {"operations": _patch_operations(token)}}
        item = self._item(group, item_id)
        after[item_id] = f"{item['token']}+0"
        operation = {"operationType": verb, "resourceBody": item}
        return {**operation, "id": item_id} if verb == "Replace" else operation

    async def _send_batch(self, group: Group, operations: list[Operation], after: State, is_doomed: bool) -> None:
        ledger = self._ledger
        what = f"batch of {len(operations)} on {group.name} {ledger.token()}"
        ledger.begin(group, what, after)
        headers = {
            **key_header(group.key),
            "x-ms-cosmos-is-batch-request": "true",
            "x-ms-cosmos-batch-atomic": "true",
            "x-ms-cosmos-batch-continue-on-error": "false",
        }
        try:
            answer = await self._client.request("POST", DOCS, operations, headers, is_feed=True)
        except ConnectionLost:
            ledger.end(group, Outcome.UNKNOWN)
            raise
        outcome = self._outcome(answer, 207 if is_doomed else 200, what, is_done=not is_doomed)
        ledger.end(group, outcome)
        if outcome is Outcome.OK:
            for index, member in enumerate(answer.json):
                if member["statusCode"] not in (200, 201, 204):
                    ledger.accuse("answer", f"{what} is answered {answer.status} with {member}")
                elif "eTag" in member:
                    ledger.note_etag(member["eTag"], f"{what} [{index}]")

    # What all clients write.

    async def _count(self) -> None:
        counter = self._dice.choice(list(self._ledger.counters.values()))
        body = {"operations": [{"op": "incr", "path": "/count", "value": 1}]}
        what = f"increment of {counter.name} {self._ledger.token()}"
        try:
            answer = await self._client.request("PATCH", f"{DOCS}/{counter.name}", body, key_header(counter.key))
        except ConnectionLost:
            self._ledger.end_count(counter, Outcome.UNKNOWN)
            raise
        outcome = self._outcome(answer, 200, what)
        self._ledger.end_count(counter, outcome)
        if outcome is Outcome.OK:
            self._note(answer, what)

    async def _link(self) -> None:
        chain = self._dice.choice(list(self._ledger.chains.values()))
        link = f"{DOCS}/{chain.name}"
        found = await self._client.request("GET", link, None, key_header(chain.key))
        if found.status != 200:
            self._ledger.accuse("answer", f"{chain.name} is read as {found}")
            return
        token = self._ledger.begin_link(chain, found.json["token"])
        item = {"id": chain.name, "key": chain.key, "token": token}
        headers = {**key_header(chain.key), "if-match": found.headers["etag"]}
        try:
            answer = await self._client.request("PUT", link, item, headers)
        except ConnectionLost:
            self._ledger.end_link(chain, token, Outcome.UNKNOWN)
            raise
        what = f"link {token} of {chain.name}"
        outcome = Outcome.FAILED if answer.status == 412 else self._outcome(answer, 200, what)
        self._ledger.end_link(chain, token, outcome)
        if outcome is Outcome.OK:
            self._note(answer, what)

    # Containers: made, deleted, and the one with the items indexed in ever new ways while all clients write to it.

    async def _define(self) -> None:
        group = self._ledger.definitions
        if group.open_event is not None:
            return
        name = self._dice.choice((CONTAINER, emptied.EMPTIED, "other1", "other2"))
        token = self._ledger.token()
        link = f"dbs/{DATABASE}/colls/{name}"
        is_staying = name in (CONTAINER, emptied.EMPTIED)
        if not is_staying and name in group.settled:
            after = {other: text for other, text in group.settled.items() if other != name}
            await self._send_definition(group, f"delete {name} {token}", after, 204, "DELETE", link, None)
            return
        after = {**group.settled, name: token}
        definition = emptied.DEFINITION if name == emptied.EMPTIED else DEFINITION
        body = {**definition, "id": name, "indexingPolicy": {"excludedPaths": [{"path": f"/{token}/*"}]}}
        if is_staying:
            await self._send_definition(group, f"replace {name} {token}", after, 200, "PUT", link, body)
        else:
            link = f"dbs/{DATABASE}/colls"
            await self._send_definition(group, f"create {name} {token}", after, 201, "POST", link, body)

    async def _send_definition(
        self, group: Group, what: str, after: State, status: int, method: str, link: str, body: object
    ) -> None:
        self._ledger.begin(group, what, after)
        try:
            answer = await self._client.request(method, link, body, is_feed=method == "POST")
        except ConnectionLost:
            self._ledger.end(group, Outcome.UNKNOWN)
            raise
        self._ledger.end(group, self._outcome(answer, status, what))

    # What they share.

    def _pick(self, groups: list[Group]) -> Group | None:
        """A group whose state is known. A refusal may leave the outcome of a write open until the next comparison."""
        usable = [group for group in groups if group.open_event is None]
        return self._dice.choice(usable) if usable else None

    def _item(self, group: Group, item_id: str) -> dict[str, Any]:
        token = self._ledger.token()
        dice = self._dice
        size = dice.randint(1, 300) if dice.random() < 0.95 else dice.randint(300, 20_000)
        item = {
            "id": item_id,
            "key": group.key,
            "token": token,
            "origin": token,
            "steps": 0,
            "tags": [token, dice.random(), None],
            "filler": filler(token, size),
        }
        return {**item, "ttl": 1_000_000} if dice.random() < 0.3 else item

    def _outcome(self, answer: Answer, expected: int, what: str, *, is_done: bool = True) -> Outcome:
        status = answer.status
        if status == expected:
            return Outcome.OK if is_done else Outcome.FAILED
        if (status, answer.sub_status) == STORAGE_FULL:
            self.refused_full += 1
            return Outcome.UNKNOWN if b"not known" in answer.body else Outcome.FAILED
        if status == 503:  # the server is stopping
            return Outcome.UNKNOWN
        self._ledger.accuse("answer", f"{what} is answered {status} instead of {expected}: {answer.body[:500]!r}")
        return Outcome.UNKNOWN

    def _note(self, answer: Answer, what: str) -> None:
        headers = answer.headers
        self._ledger.note_lsn(int(headers["x-ms-documentdb-partitionkeyrangeid"]), int(headers["x-ms-item-lsn"]), what)
        if "etag" in headers:
            self._ledger.note_etag(headers["etag"], what)


def _patched(before: str, token: str) -> str:
    return f"{token}+{int(before.rpartition('+')[2]) + 1}"


def _patch_operations(token: str) -> list[dict[str, Any]]:
    return [{"op": "set", "path": "/token", "value": token}, {"op": "incr", "path": "/steps", "value": 1}]
