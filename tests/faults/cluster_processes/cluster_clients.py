"""Clients of a cluster: some stay at one node, others ask any of them and keep a session over all. They record what
they were told."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from faults.checkers.items import NEVER, Call, Said, Verb
from faults.checkers.sessions import Observation
from faults.client import Answer, Client, ConnectionLost
from faults.cluster_processes.history import BOUNDED, EVENTUAL, PREFIX, SESSION, STRONG, ChainRead, History
from faults.cluster_processes.processes import ClusterProcesses, NodeProcess, waits_for
from faults.workload import key_header

DATABASE, CONTAINER = "db", "items"
LINK = f"dbs/{DATABASE}/colls/{CONTAINER}"
DOCS = f"{LINK}/docs"
CHAINS, GROUPS, REGISTERS = 4, 2, 4  # of each generation of items
PAIRED = 2  # items that batches write beside a chain
ANSWER_S = 4.0  # that a client waits; afterwards the outcome is unknown
PAUSE_S_MAX = 0.02
AVOIDED = 0.9  # how often a client passes over a node that has not answered it

SAID = {200: Said.OK, 201: Said.OK, 204: Said.OK, 404: Said.ABSENT, 409: Said.EXISTS, 412: Said.STALE}
REFUSED = (207, 403, 410, 429, 449)  # nothing was done; 207: a batch, whose operations say why
UNSURE = (408, 503)

Read = Callable[[NodeProcess, str], Awaitable[bool]]


class Items:
    """The names of the items that clients use at the moment."""

    def __init__(self) -> None:
        self._number = 0
        self.chains: list[str] = []
        self.groups: list[str] = []
        self.registers: list[str] = []
        self.renew()

    def renew(self) -> None:
        """From here on other items: histories of the former ones are complete."""
        self._number += 1
        self.chains = [f"c{self._number}-{each}" for each in range(CHAINS)]
        self.groups = [f"g{self._number}-{each}" for each in range(GROUPS)]
        self.registers = [f"r{self._number}-{each}" for each in range(REGISTERS)]

    @property
    def all_chains(self) -> list[str]:
        return self.chains + self.groups


class ClusterClient:
    def __init__(
        self, name: str, seed: int, cluster: ClusterProcesses, history: History, items: Items, home: str | None = None
    ) -> None:
        """`home`: the node that this client stays at."""
        self.name = name
        self._home = home
        self._dice = random.Random(f"{seed}/{name}")
        self._cluster = cluster
        self._history = history
        self._items = items
        self._connections: dict[str, Client] = {}
        self._session: dict[str, int] = {}  # lsn by range
        self._avoided: set[str] = set()  # nodes that have not answered the last request
        self._values = itertools.count(1)
        self._known: dict[str, tuple[int, str, str]] = {}  # of chains: version, value, etag

    async def run(self, stopping: asyncio.Event) -> None:
        try:
            while not stopping.is_set():
                await self._step()
                await asyncio.sleep(self._dice.uniform(0, PAUSE_S_MAX))
        finally:
            for connection in self._connections.values():
                connection.close()

    async def _step(self) -> None:
        dice = self._dice
        nodes = self._cluster.nodes.values()
        running = [node for node in nodes if node.is_serving and self._home in (None, node.name)]
        if not running:
            return
        node = dice.choice(running)
        if node.name in self._avoided and dice.random() < AVOIDED:
            return
        act: Callable[[NodeProcess], Any] = dice.choices(
            (self._read_chain, self._write_chain, self._read_register, self._write_register), (5, 3, 1, 1)
        )[0]
        await act(node)

    async def read_finally(self) -> None:
        """Read everything, so that what is stored in the end is part of the history."""
        for read, items in (
            (self._read_strongly, self._items.all_chains),
            (self._read_register, self._items.registers),
        ):
            for item in items:

                async def attempt(read: Read = read, item: str = item) -> bool:
                    return await read(await self._cluster.leader(), item)

                await waits_for(attempt, f"{item} is read")

    # Chains.

    async def _read_strongly(self, node: NodeProcess, item: str) -> bool:
        return await self._read_chain(node, STRONG, item)

    async def _read_chain(self, node: NodeProcess, level: str | None = None, item: str | None = None) -> bool:
        """Returns whether the item or its absence was seen."""
        level = level or self._dice.choice((STRONG, BOUNDED, SESSION, PREFIX, EVENTUAL))
        item = item or self._dice.choice(self._items.all_chains)
        begun = time.monotonic()
        incarnations = {each.name: each.incarnation for each in self._cluster.nodes.values()}
        headers = {"x-ms-consistency-level": level}
        if level == SESSION and self._session:
            headers["x-ms-session-token"] = self._token()
        if item in self._items.groups:
            answer = await self._query_group(node, item, headers)
        else:
            answer = await self._ask(node, "GET", f"{DOCS}/{item}", None, headers, item)
        ended = time.monotonic()
        found = self._found(answer, item)
        if answer is None or found is None:
            self._history.tally[f"read {level} {answer.status if answer is not None else 'lost'}"] += 1
            return False
        version, value, _ = found
        place = answer.headers.get("x-armillary-node", node.name)
        incarnation = incarnations.get(place, 0)
        if place in self._cluster.nodes and self._cluster.nodes[place].incarnation == incarnation:
            where = f"{place}/{incarnation}"
        else:  # it was started anew meanwhile: which of the two has answered is not known
            where = f"{place}/{incarnation}/{self.name}/{begun}"
        self._history.read(
            ChainRead(
                *(self.name, item, level, where, begun, ended, version, value or None),
                headers.get("x-ms-session-token", ""),
                answer.headers.get("x-ms-session-token", ""),
            )
        )
        if level in (STRONG, SESSION):
            self._remember(answer)
            self._known[item] = found
            self._history.observed.append(Observation(self.name, item, version))
        if level == STRONG:
            said = Said.OK if version else Said.ABSENT
            self._history.call(Call(self.name, item, Verb.READ, begun, ended, said, value or None))
        return True

    def _found(self, answer: Answer | None, item: str) -> tuple[int, str, str] | None:
        """Version, value and etag that an answer shows; None if it shows neither an item nor its absence."""
        if answer is None:
            return None
        if answer.status == 404 and answer.sub_status == 0:
            return 0, "", ""
        if answer.status != 200:
            return None
        if item in self._items.groups or "Documents" in answer.json:
            documents = {each["id"]: each for each in answer.json["Documents"]}
            if not documents:
                return 0, "", ""
            if len(documents) != 1 + PAIRED or len({each["value"] for each in documents.values()}) != 1:
                shown = {name: each["value"] for name, each in documents.items()}
                self._history.accuse("torn", f"{item} is {shown}, as {answer.headers.get('x-armillary-node')} shows it")
            first = documents.get(item, next(iter(documents.values())))
        else:
            first = answer.json
        return first["version"], first["value"], first["_etag"]

    async def _query_group(self, node: NodeProcess, item: str, headers: dict[str, str]) -> Answer | None:
        query = {"query": "SELECT * FROM c WHERE c.key = @key", "parameters": [{"name": "@key", "value": item}]}
        headers |= {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
        return await self._ask(node, "POST", DOCS, query, headers, item, is_feed=True)

    async def _write_chain(self, node: NodeProcess) -> None:
        item = self._dice.choice(self._items.all_chains)
        version, before, etag = self._known.get(item, (0, "", ""))
        value = f"{self.name}.{next(self._values)}"
        document = {"id": item, "key": item, "version": version + 1, "value": value}
        verb = Verb.REPLACE if version else Verb.CREATE
        begun = time.monotonic()
        if item in self._items.groups:
            answer = await self._write_group(node, document, etag)
        elif version:
            answer = await self._ask(node, "PUT", f"{DOCS}/{item}", document, {"if-match": etag}, item)
        else:
            answer = await self._ask(node, "POST", DOCS, document, {}, item, is_feed=True)
        ended = time.monotonic()
        said = self._said(answer, item)
        call = Call(
            *(self.name, item, verb, begun, NEVER if said is Said.UNKNOWN else ended, said),
            value=value,
            expected=before or None,
        )
        self._history.call(call)
        if answer is not None and said is Said.OK:
            self._acknowledge(call, answer)
            self._history.wrote(item, version + 1, value, ended)
            self._history.observed.append(Observation(self.name, item, version + 1, is_write=True))
            self._known[item] = (version + 1, value, answer.headers.get("etag", ""))
        if said is not Said.OK or not self._known[item][2]:
            self._known.pop(item, None)
            await self._read_chain(node, self._dice.choice((STRONG, SESSION)), item)

    async def _write_group(self, node: NodeProcess, document: dict[str, Any], etag: str) -> Answer | None:
        """All items of a group, or none."""
        first: dict[str, Any] = {"operationType": "Create", "resourceBody": document}
        if etag:
            first = {
                "operationType": "Replace",
                "id": document["id"],
                "ifMatch": etag,
                "resourceBody": document,
            }
        others = [
            {"operationType": "Upsert", "resourceBody": document | {"id": f"{document['id']}.{each}"}}
            for each in range(PAIRED)
        ]
        headers = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
        answer = await self._ask(node, "POST", DOCS, [first, *others], headers, document["id"], is_feed=True)
        if answer is not None and answer.status in (200, 207):
            statuses = [each["statusCode"] for each in answer.json]
            first_status = next((each for each in statuses if each != 424), 424)
            headers = dict(answer.headers)
            if first_status in (200, 201):
                headers["etag"] = answer.json[0]["eTag"]
            return answer._replace(status=first_status, headers=headers)
        return answer

    # Registers.

    async def _read_register(self, node: NodeProcess, item: str | None = None) -> bool:
        item = item or self._dice.choice(self._items.registers)
        begun = time.monotonic()
        answer = await self._ask(node, "GET", f"{DOCS}/{item}", None, {"x-ms-consistency-level": STRONG}, item)
        ended = time.monotonic()
        found = self._found(answer, item)
        if found is not None:
            said = Said.OK if found[0] else Said.ABSENT
            self._history.call(Call(self.name, item, Verb.READ, begun, ended, said, found[1] or None))
        return found is not None

    async def _write_register(self, node: NodeProcess) -> None:
        item = self._dice.choice(self._items.registers)
        value = f"{self.name}.{next(self._values)}"
        document = {"id": item, "key": item, "version": 1, "value": value}
        verb = self._dice.choice((Verb.CREATE, Verb.UPSERT, Verb.REPLACE, Verb.DELETE))
        begun = time.monotonic()
        if verb is Verb.REPLACE:
            answer = await self._ask(node, "PUT", f"{DOCS}/{item}", document, {}, item)
        elif verb is Verb.DELETE:
            answer = await self._ask(node, "DELETE", f"{DOCS}/{item}", None, {}, item)
        else:
            headers = {"x-ms-documentdb-is-upsert": "True"} if verb is Verb.UPSERT else {}
            answer = await self._ask(node, "POST", DOCS, document, headers, item, is_feed=True)
        ended = time.monotonic()
        said = self._said(answer, item)
        call = Call(
            *(self.name, item, verb, begun, NEVER if said is Said.UNKNOWN else ended, said),
            value=None if verb is Verb.DELETE else value,
            was_there=answer.status == 200 if verb is Verb.UPSERT and answer is not None and said is Said.OK else None,
        )
        self._history.call(call)
        if answer is not None and said is Said.OK:
            self._acknowledge(call, answer)

    # Asking.

    async def _ask(
        self,
        node: NodeProcess,
        method: str,
        link: str,
        body: object,
        headers: dict[str, str],
        key: str,
        *,
        is_feed: bool = False,
    ) -> Answer | None:
        """None: there is no answer."""
        self._avoided.add(node.name)
        try:
            client = self._connections.pop(node.name, None) or await Client.connect(node.port)
        except ConnectionLost:
            return Answer(503, {}, b"nothing was stored: the node cannot be reached")
        try:
            asking = client.request(method, link, body, headers | key_header(key), is_feed=is_feed)
            answer = await asyncio.wait_for(asking, ANSWER_S)
        except (ConnectionLost, TimeoutError):
            client.close()
            return None
        except BaseException:
            client.close()
            raise
        self._connections[node.name] = client
        if answer.status not in UNSURE:
            self._avoided.discard(node.name)
        is_known = answer.status in SAID or answer.status in REFUSED or answer.status in UNSURE
        if not is_known or (answer.status == 404 and answer.sub_status not in (0, 1002)):
            self._history.accuse("answer", f"{method} {link} at {node.name}: {answer.status} {answer.body[:300]!r}")
        return answer

    def _said(self, answer: Answer | None, item: str) -> Said:
        """What a write was told."""
        if answer is None:
            return Said.UNKNOWN
        if answer.status in SAID:
            return SAID[answer.status]
        if answer.status in REFUSED or b"nothing was stored" in answer.body:
            self._history.tally[f"writes refused {answer.status}"] += 1
            return Said.REFUSED
        return Said.UNKNOWN

    def _acknowledge(self, call: Call, answer: Answer) -> None:
        self._remember(answer)
        headers = answer.headers
        self._history.acknowledge(
            call, headers["x-ms-documentdb-partitionkeyrangeid"], headers.get("x-ms-item-lsn", "")
        )

    def _remember(self, answer: Answer) -> None:
        """Take the session token of an answer over into this client's session."""
        for each in answer.headers.get("x-ms-session-token", "").split(","):
            range_id, _, lsn = each.partition(":1#")
            if lsn:
                self._session[range_id] = max(int(lsn), self._session.get(range_id, 0))

    def _token(self) -> str:
        return ",".join(f"{range_id}:1#{lsn}" for range_id, lsn in self._session.items())


async def prepare(node: NodeProcess) -> None:
    """Make the container."""
    client = await Client.connect(node.port)
    with suppress(ConnectionLost):
        for link, body, headers in (
            ("dbs", {"id": DATABASE}, {}),
            (
                f"dbs/{DATABASE}/colls",
                {"id": CONTAINER, "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2}},
                {"x-ms-offer-throughput": "20000"},
            ),
        ):
            answer = await client.request("POST", link, body, headers, is_feed=True)
            assert answer.status == 201, answer
    client.close()
