"""Who may do what over the SQL protocol: every credential with every operation, in its scope and out of it, through a
real socket. Each cell has a status that follows from the published rules, stated here once more and independently of
the code; where the answer is no, and where only something was read, nothing may have changed. What was changed is taken
back by a snapshot, so that each cell finds the same account."""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Literal
from urllib.parse import quote

import orjson
import pytest
from faults.client import Wire

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.migration import migration
from armillary.account.snapshots import restore
from armillary.account.snapshots.snapshot_files import parts
from armillary.account.snapshots.snapshot_import import SnapshotImport
from armillary.account.snapshots.snapshots import take
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.routes import parse_route
from armillary.model import layout
from armillary.model.keys import Key
from armillary.model.resources import ResourceType
from armillary.net.listen import listen
from armillary.storage.engine import View
from armillary.storage.memory import MemoryEngine

KEYS = AccountKeys(*(base64.b64encode(bytes([number]) * 64).decode() for number in range(1, 5)))
WRONG = base64.b64encode(bytes(64)).decode()
PLACES = (("d", "c"), ("d", "other"), ("e", "c"))
SCRIPTS = {
    "sprocs": {"body": "function () { getContext().getResponse().setBody(1); }"},
    "triggers": {"body": "function () {}", "triggerType": "Pre", "triggerOperation": "All"},
    "udfs": {"body": "function (x) { return x; }"},
}


# What is asked for.


@dataclass(frozen=True)
class Operation:
    name: str
    method: str
    path: str
    link: str  # of the resource; of its owner, for lists and what is created in them
    type: str
    status: int  # where it is allowed
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    is_write: bool = False
    key: str | None = None  # the partition key that it is about, if it is about items of one
    is_of_items: bool = False

    @property
    def id(self) -> str:
        return f"{self.name} {self.path}"


QUERY = {"x-ms-documentdb-isquery": "true", "content-type": "application/query+json"}


def operations() -> list[Operation]:
    found = [
        Operation("read account", "GET", "", "", "", 200),
        Operation("list databases", "GET", "dbs", "", "dbs", 200),
        Operation("query databases", "POST", "dbs", "", "dbs", 200, {"query": "SELECT * FROM r"}, QUERY),
        Operation("create database", "POST", "dbs", "", "dbs", 201, {"id": "new"}, is_write=True),
        Operation("list offers", "GET", "offers", "", "offers", 200),
    ]
    for database in ("d", "e"):
        found += of_database(database)
    for database, container in PLACES:
        found += of_container(database, container)
        for key in ("a", "b"):
            found += of_items(database, container, key)
    return found


def of_database(database: str) -> Iterator[Operation]:
    link = f"dbs/{database}"
    yield Operation("read database", "GET", link, link, "dbs", 200)
    yield Operation("delete database", "DELETE", link, link, "dbs", 204, is_write=True)
    yield Operation("list containers", "GET", f"{link}/colls", link, "colls", 200)
    body = {"id": "new", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}}
    yield Operation("create container", "POST", f"{link}/colls", link, "colls", 201, body, is_write=True)
    yield Operation("list users", "GET", f"{link}/users", link, "users", 200)
    yield Operation("create user", "POST", f"{link}/users", link, "users", 201, {"id": "new"}, is_write=True)
    user = f"{link}/users/u"
    yield Operation("read user", "GET", user, user, "users", 200)
    yield Operation("delete user", "DELETE", user, user, "users", 204, is_write=True)
    yield Operation("list permissions", "GET", f"{user}/permissions", user, "permissions", 200)
    permission = f"{user}/permissions/p"
    yield Operation("read permission", "GET", permission, permission, "permissions", 200)
    yield Operation("delete permission", "DELETE", permission, permission, "permissions", 204, is_write=True)
    body = {"id": "new", "permissionMode": "All", "resource": f"{link}/colls/c/docs/new"}
    yield Operation("create permission", "POST", f"{user}/permissions", user, "permissions", 201, body, is_write=True)
    keys, key = f"{link}/clientencryptionkeys", f"{link}/clientencryptionkeys/k"
    yield Operation("list encryption keys", "GET", keys, link, "clientencryptionkeys", 200)
    yield Operation("read encryption key", "GET", key, key, "clientencryptionkeys", 200)


def of_container(database: str, container: str) -> Iterator[Operation]:
    link = f"dbs/{database}/colls/{container}"
    yield Operation("read container", "GET", link, link, "colls", 200)
    body = {"id": container, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": 9}
    yield Operation("replace container", "PUT", link, link, "colls", 200, body, is_write=True)
    yield Operation("delete container", "DELETE", link, link, "colls", 204, is_write=True)
    yield Operation("list ranges", "GET", f"{link}/pkranges", link, "pkranges", 200)
    yield Operation("list conflicts", "GET", f"{link}/conflicts", link, "conflicts", 200)
    docs = f"{link}/docs"
    yield Operation("read feed", "GET", docs, link, "docs", 200, is_of_items=True)
    feed = {"a-im": "Incremental feed"}
    yield Operation("read change feed", "GET", docs, link, "docs", 200, headers=feed, is_of_items=True)
    wide = {**QUERY, "x-ms-documentdb-query-enablecrosspartition": "true"}
    text = {"query": "SELECT * FROM c"}
    yield Operation("query everywhere", "POST", docs, link, "docs", 200, text, wide, is_of_items=True)
    for type_word, definition in SCRIPTS.items():
        feed_link, script = f"{link}/{type_word}", f"{link}/{type_word}/s"
        new = {"id": "new", **definition}
        yield Operation(f"list {type_word}", "GET", feed_link, link, type_word, 200)
        yield Operation(f"create {type_word}", "POST", feed_link, link, type_word, 201, new, is_write=True)
        yield Operation(f"read {type_word}", "GET", script, script, type_word, 200)
        changed = {"id": "s", **definition, "body": "function () { return 2; }"}
        yield Operation(f"replace {type_word}", "PUT", script, script, type_word, 200, changed, is_write=True)
        yield Operation(f"delete {type_word}", "DELETE", script, script, type_word, 204, is_write=True)


def of_items(database: str, container: str, key: str) -> Iterator[Operation]:
    link = f"dbs/{database}/colls/{container}"
    docs, item = f"{link}/docs", f"{link}/docs/{key}1"
    header = {"x-ms-documentdb-partitionkey": orjson.dumps([key]).decode()}

    def make(name: str, method: str, path: str, status: int, body: Any = None, **more: Any) -> Operation:
        own = more.pop("headers", {})
        is_write = more.pop("is_write", method != "GET")
        owner = path.removesuffix("/docs") if path == docs else path
        return Operation(name, method, path, owner, "docs", status, body, {**header, **own}, is_write, key, True)

    yield make("read item", "GET", item, 200)
    yield make("read feed of key", "GET", docs, 200)
    yield make("query key", "POST", docs, 200, {"query": "SELECT * FROM c"}, headers=QUERY, is_write=False)
    yield make("create item", "POST", docs, 201, {"id": "new", "pk": key})
    upsert = {"x-ms-documentdb-is-upsert": "true"}
    yield make("upsert item", "POST", docs, 200, {"id": f"{key}1", "pk": key, "x": 1}, headers=upsert)
    yield make("replace item", "PUT", item, 200, {"id": f"{key}1", "pk": key, "x": 1})
    yield make("patch item", "PATCH", item, 200, {"operations": [{"op": "set", "path": "/x", "value": 1}]})
    yield make("delete item", "DELETE", item, 204)
    batch = {"x-ms-cosmos-is-batch-request": "true", "x-ms-cosmos-batch-atomic": "true"}
    members = [{"operationType": "Create", "resourceBody": {"id": "new", "pk": key}}]
    yield make("batch", "POST", docs, 200, members, headers=batch)
    procedure = f"{link}/sprocs/s"
    yield Operation("execute", "POST", procedure, procedure, "sprocs", 200, [], header, True, key, True)


# Who asks.

# What a permission becomes after a token was made of it, step by step.
NARROWED: dict[str, list[dict[str, Any]]] = {
    "narrowed": [{"resourcePartitionKey": ["a"]}],
    "moved": [{"resource": "dbs/d/colls/other"}],
    "narrowed and widened again": [{"resourcePartitionKey": ["a"]}, {}],
    "moved and moved back": [{"resource": "dbs/d/colls/other"}, {}],
    "reduced and given all again": [{"permissionMode": "Read"}, {}],
}
KEPT: dict[str, list[dict[str, Any]]] = {
    "stored again": [{}],
    "given all": [{"permissionMode": "All"}],
    "rid of its key": [{"resourcePartitionKey": None}],
}


@dataclass(frozen=True)
class Credential:
    name: str
    kind: Literal["none", "key", "reader", "wrong", "aad", "token", "invalid token"]
    key: str = ""
    scope: str = ""  # of a token: the link that it is for
    mode: str = ""
    partition_key: str | None = None
    by_rid: bool = False  # its permission names the resource by rid
    flaw: str = ""  # why it is not good any more


def credentials() -> list[Credential]:
    found = [
        Credential("nobody", "none"),
        Credential("a wrong key", "wrong", WRONG),
        Credential("primary", "key", KEYS.primary),
        Credential("secondary", "key", KEYS.secondary or ""),
        Credential("primaryReadonly", "reader", KEYS.read_only_primary or ""),
        Credential("secondaryReadonly", "reader", KEYS.read_only_secondary or ""),
        Credential("aad", "aad"),
    ]
    container = "dbs/d/colls/c"
    inside = [f"{container}/docs/a1", *(f"{container}/{each}/s" for each in SCRIPTS)]
    for scope in ("dbs/d", "dbs/d/clientencryptionkeys/k", container, *inside):
        found += [Credential(f"{mode} {scope}", "token", scope=scope, mode=mode) for mode in ("Read", "All")]
    for mode in ("Read", "All"):
        found.append(Credential(f"{mode} {container} by rid", "token", scope=container, mode=mode, by_rid=True))
        found.append(Credential(f"{mode} {container} of a", "token", scope=container, mode=mode, partition_key="a"))
    for flaw in ("expired", "tampered", "revoked", "reduced", "of a former key", *NARROWED):
        found.append(Credential(f"{flaw} token", "invalid token", scope=container, mode="All", flaw=flaw))
    for scope in (container, f"{container}/docs/a1"):
        flaw = "of a former container"
        found.append(Credential(f"token for {scope} {flaw}", "token", scope=scope, mode="All", flaw=flaw))
    for change in ("stored again", "given all"):
        found.append(Credential(f"token {change}", "token", scope=container, mode="Read", flaw=change))
    found.append(
        Credential("token rid of its key", "token", "", container, "All", partition_key="a", flaw="rid of its key")
    )
    return found


# What follows.


def expected(credential: Credential, operation: Operation) -> int:
    """The status of a cell."""
    allowed, refused = operation.status, 403
    match credential.kind:
        case "none" | "wrong" | "invalid token":
            return 401
        case "key":
            return allowed
        case "reader":
            return refused if operation.is_write or operation.type == "permissions" else allowed
        case "aad":
            return allowed if not operation.is_write or operation.is_of_items else refused
    if operation.name == "read account":
        return allowed
    if operation.type == "permissions" or credential.flaw == "of a former container":
        return refused
    link, scope = operation.link.split("/"), credential.scope.split("/")
    if operation.name in ("read container", "list ranges"):  # which clients do before anything else
        shared = min(len(link), len(scope))
        return allowed if link[:shared] == scope[:shared] else refused
    if link[: len(scope)] != scope:
        return refused
    if credential.partition_key not in (None, operation.key):
        return refused
    return refused if operation.is_write and credential.mode == "Read" else allowed


class World:
    """An account, its door on a real socket, and a client."""

    def __init__(self, account: Account, clock: VirtualClock, door: SqlDoor, wire: Wire) -> None:
        self.account, self.clock, self.door, self.wire = account, clock, door, wire

    async def send(self, operation: Operation, authorization: str | None, date: str) -> tuple[int, bytes]:
        payload = orjson.dumps(operation.body) if operation.body is not None else b""
        headers = {"host": "localhost", "x-ms-date": date, "x-ms-version": "2020-07-15", **operation.headers}
        if authorization is not None:
            headers["authorization"] = authorization
        lines = [
            f"{operation.method} /{operation.path} HTTP/1.1",
            *(f"{name}: {text}" for name, text in headers.items()),
        ]
        head = "\r\n".join([*lines, f"content-length: {len(payload)}", "", ""]).encode()
        answer = await self.wire.exchange(head + payload)
        return answer.status, answer.body

    def signed(self, operation: Operation, key: str, date: str) -> str:
        route = parse_route(f"/{operation.path}".encode())
        text = f"{operation.method.lower()}\n{route.resource_type}\n{route.link}\n{date.lower()}\n\n"
        mac = base64.b64encode(hmac.digest(base64.b64decode(key), text.encode(), "sha256")).decode()
        return quote(f"type=master&ver=1.0&sig={mac}", safe="")

    async def token(self, credential: Credential) -> str:
        """As an application gets one: by a permission that a client with a key creates and reads."""
        resource = credential.scope
        if credential.by_rid:
            resource = self.account.container("d", "c").record.self_link
        body: dict[str, Any] = {"id": "own", "permissionMode": credential.mode, "resource": resource}
        if credential.partition_key is not None:
            body["resourcePartitionKey"] = [credential.partition_key]
        owner = "dbs/d/users/v"
        made = Operation("", "POST", f"{owner}/permissions", owner, "permissions", 201, body)
        date = self.date()
        status, answer = await self.send(made, self.signed(made, KEYS.primary, date), date)
        assert status == 201, answer
        text: str = orjson.loads(answer)["_token"]
        permission = self.account.find(ResourceType.PERMISSION, ("d", "v", "own"))
        match credential.flaw:
            case "expired":
                self.clock.advance(3_601)
            case "tampered":
                at = text.index("sig=") + 8
                text = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
            case "revoked":
                await self.account.catalog.delete(permission)
            case "reduced":
                await self.account.catalog.replace(permission, {**permission.body, "permissionMode": "Read"})
            case "of a former key":
                self.door.tokens.use(bytes(range(32)))
            case "of a former container":
                await containers.delete_container(self.account, self.account.container("d", "c"), None)
                await fill_container(self.account, self.clock, "d", "c")
        for change in (NARROWED | KEPT).get(credential.flaw, ()):
            becomes = {name: value for name, value in {**body, **change}.items() if value is not None}
            path = f"{owner}/permissions/own"
            put = Operation("", "PUT", path, path, "permissions", 200, becomes)
            status, answer = await self.send(put, self.signed(put, KEYS.primary, date), date)
            assert status == 200, answer
        return quote(text, safe="")

    def date(self) -> str:
        return formatdate(self.clock.now_s(), usegmt=True)

    async def state(self) -> list[Any]:
        """All that clients could have changed. Upkeep may write to what is beside it at any time: counters and the
        coverage of paths in partitions, retired stores in records."""
        found: list[Any] = []
        catalog = self.account.catalog
        for each in ResourceType:
            found += [(record.rid, record.name, record.etag, record.body) for record in catalog.of_type(each)]
        for container in self.account.containers:
            for partition in container.partitions.values():

                def pairs(view: View) -> list[tuple[bytes, bytes]]:
                    return [pair for pair in view.scan(b"", b"\xff") if pair[0][:1] != layout.META]

                found.append(await partition.read(pairs))
        return found


async def fill_container(account: Account, clock: VirtualClock, database: str, name: str, path: str = "/pk") -> None:
    body = {"id": name, "partitionKey": {"paths": [path], "kind": "Hash", "version": 2}}
    container = await containers.create_container(account, account.database(database), body, Throughput.manual(400))
    for key, former in (("a", "b"), ("b", "a")):
        await items.upsert(container, {"id": f"{key}1", "pk": key, "former": former}, ItemOptions(), clock)
    for type_word, definition in SCRIPTS.items():
        await account.catalog.create(ResourceType(type_word), container.record, "s", {"id": "s", **definition})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with opened() as made:
        yield made


@asynccontextmanager
async def opened(path: str = "/pk") -> AsyncIterator[World]:
    """`path`: what d/c is partitioned by."""
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock)
    for name in ("d", "e"):
        database = await containers.create_database(account, {"id": name}, None)
        user = await account.catalog.create(ResourceType.USER, database, "u", {"id": "u"})
        body = {"id": "p", "permissionMode": "All", "resource": f"dbs/{name}/colls/c"}
        await account.catalog.create(ResourceType.PERMISSION, user, "p", body)
        await account.catalog.create(ResourceType.USER, database, "v", {"id": "v"})
        key = {"id": "k", "wrappedDataEncryptionKey": "aGk=", "keyWrapMetadata": {}, "encryptionAlgorithm": "x"}
        await account.catalog.create(ResourceType.ENCRYPTION_KEY, database, "k", key)
    for place in PLACES:
        await fill_container(account, clock, *place, path=path if place == PLACES[0] else "/pk")
    door = SqlDoor(account, KEYS, accepts_aad=True)
    listener = await listen("127.0.0.1", 0, door.answer, refuse=door.refuse, on_crash=door.on_crash)
    _, wire = await asyncio.get_running_loop().create_connection(Wire, "127.0.0.1", listener.port)
    yield World(account, clock, door, wire)
    wire.close()
    await listener.close(1.0)
    await account.close()
    await engine.close()


def aad(clock: VirtualClock) -> str:
    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(orjson.dumps(content)).decode().rstrip("=")

    name = "CosmosEmulatorPrimaryMaster"
    header = {"typ": "JWT", "alg": "RS256", "x5t": name, "kid": name}
    now_s = int(clock.now_s())
    claims = {"aud": "https://localhost.localhost", "tid": "EmulatorFederation", "nbf": now_s, "exp": now_s + 3_600}
    signature = base64.urlsafe_b64encode(KEYS.primary.encode()).decode().rstrip("=")
    return quote(f"type=aad&ver=1.0&sig={part(header)}.{part(claims)}.{signature}", safe="")


OPERATIONS = operations()
CREDENTIALS = credentials()


def test_the_matrix_is_large() -> None:
    assert len(OPERATIONS) * len(CREDENTIALS) >= 3_000
    cells = [(expected(who, what), what.is_write) for who in CREDENTIALS for what in OPERATIONS]
    assert sum(status < 300 for status, _ in cells) > 500
    assert sum(status == 403 for status, _ in cells) > 500


@pytest.mark.parametrize("credential", CREDENTIALS, ids=lambda each: each.name)
async def test_cells(world: World, credential: Credential) -> None:
    authorization = None
    if credential.kind in ("token", "invalid token"):
        authorization = await world.token(credential)
    # Where only the permission changed, its container is all that the answer could depend on.
    asked = asked_of_changed() if credential.flaw in NARROWED | KEPT else OPERATIONS
    wrong = await wrong_cells(world, credential, authorization, asked, lambda each: expected(credential, each))
    assert wrong == []


async def wrong_cells(
    world: World,
    credential: Credential,
    authorization: str | None,
    asked: list[Operation],
    wanted_of: Callable[[Operation], int],
) -> list[str]:
    """What was answered otherwise, or changed what it should not have."""
    snapshot = await world.account.snapshots.take("before", ())
    before = await world.state()
    wrong = []
    for operation in asked:
        date = world.date()
        given = authorization
        if credential.kind == "aad":
            given = aad(world.clock)
        elif credential.key:
            given = world.signed(operation, credential.key, date)
        status, body = await world.send(operation, given, date)
        wanted = wanted_of(operation)
        after = await world.state()
        is_changed = after != before
        may_change = wanted < 300 and operation.is_write and operation.name != "execute"
        if status != wanted or is_changed != may_change:
            wrong.append(f"{operation.id}: {status} instead of {wanted}, changed: {is_changed} {body[:200]!r}")
        if is_changed:
            await restore.restore(world.account, snapshot)
            before = await world.state()
    return wrong


# The same where something was done to the container since, with tokens of before and of after that.

CHANGES = ("split", "restored in place", "restored from a file", "migrated")
FORMER = Operation(  # the header has the key that the item had before a migration, which is the key of a token
    "create by a former key",
    "POST",
    "dbs/d/colls/c/docs",
    "dbs/d/colls/c",
    "docs",
    201,
    {"id": "new", "pk": "b", "former": "a"},
    {"x-ms-documentdb-partitionkey": '["a"]'},
    is_write=True,
    is_of_items=True,
)
CHANGED_CREDENTIALS = [
    each
    for each in CREDENTIALS
    if each.name
    in (
        "primary",
        "All dbs/d",
        "Read dbs/d/colls/c",
        "All dbs/d/colls/c by rid",
        "All dbs/d/colls/c of a",
        "All dbs/d/colls/c/docs/a1",
    )
]


def asked_of_changed(change: str = "") -> list[Operation]:
    found = [each for each in OPERATIONS if each.name == "read account"]
    found += [each for each in of_container("d", "c") if each.type in ("colls", "pkranges", "docs")]
    for key in ("a", "b"):
        found += [each for each in of_items("d", "c", key) if each.name != "execute"]
    found += [each for each in of_items("d", "other", "a") if each.name in ("read item", "create item")]
    return [*found, FORMER] if change == "migrated" else found


async def changed(world: World, change: str) -> None:
    account = world.account
    container = account.container("d", "c")
    match change:
        case "split":
            reshape = await account.reshaper.split(container, 0)
            await account.reshaper.finished(reshape)
            assert len(container.partitions) == 2
        case "restored in place":
            snapshot = await account.snapshots.take("then", ())
            await items.delete(container, "a1", ItemOptions(key=Key(("a",))))
            await restore.restore(account, snapshot)
        case "restored from a file":
            taken = await take(account, ("d",))
            arrival = SnapshotImport(account, None, replaces=True)
            async for part in parts(taken):
                await arrival.feed(part)
            await arrival.finish()
            taken.release()
        case "migrated":
            moving = await migration.begin(account, container, migration.Plan("new", ("/pk",)))
            while not moving.is_ended:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert moving.stage == migration.SWITCHED


def expected_of_former(credential: Credential, operation: Operation, change: str) -> int:
    """With a token that was made before the change."""
    if credential.kind != "token" or change in ("split", "restored in place"):
        return expected(credential, operation)
    if change == "restored from a file":
        return 401  # resources and permissions are new ones
    if credential.by_rid or credential.partition_key is not None:
        return 401  # the permission is for another container by now: the new one, or the one that was
    if operation.name != "read account" and operation.link.startswith("dbs/d/colls/c") and credential.scope != "dbs/d":
        return 403  # the name is that of another container
    return expected(credential, operation)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("credential", CHANGED_CREDENTIALS, ids=lambda each: each.name)
async def test_cells_of_changed_containers(credential: Credential, change: str) -> None:
    async with opened("/former" if change == "migrated" else "/pk") as world:
        authorization = await world.token(credential) if credential.kind == "token" else None
        await changed(world, change)
        asked = asked_of_changed(change)
        wrong = await wrong_cells(
            world, credential, authorization, asked, lambda each: expected_of_former(credential, each, change)
        )
        assert wrong == []
        if credential.kind == "token":
            await world.account.catalog.delete(world.account.find(ResourceType.PERMISSION, ("d", "v", "own")))
            wrong = await wrong_cells(
                world, credential, await world.token(credential), asked, lambda each: expected(credential, each)
            )
            assert wrong == []


async def test_tokens_of_every_kind_of_resource_are_issued(world: World) -> None:
    """And nothing else is a resource of a permission."""
    for resource in (
        "dbs/d/users/u",
        "dbs/d/users/u/permissions/p",
        "offers/x",
        "dbs",
        "dbs/d/colls",
        "x/y",
        "dbs//colls/c",
    ):
        body = {"id": "own", "permissionMode": "All", "resource": resource}
        made = Operation("", "POST", "dbs/d/users/v/permissions", "dbs/d/users/v", "permissions", 201, body)
        date = world.date()
        status, _ = await world.send(made, world.signed(made, KEYS.primary, date), date)
        assert status == 400, resource


async def test_tokens_end_with_the_key_that_they_were_issued_to(world: World) -> None:
    credential = Credential("", "token", scope="dbs/d/colls/c", mode="All")
    await world.token(credential)
    read = Operation("", "GET", "dbs/d/users/v/permissions/own", "dbs/d/users/v/permissions/own", "permissions", 200)
    item = next(each for each in OPERATIONS if each.name == "read item")
    date = world.date()
    tokens = {}
    for key in (KEYS.primary, KEYS.secondary or ""):
        _, body = await world.send(read, world.signed(read, key, date), date)
        tokens[key] = quote(orjson.loads(body)["_token"], safe="")
    for token in tokens.values():
        assert (await world.send(item, token, date))[0] == 200
    world.door.use_keys(KEYS._replace(primary=WRONG))
    assert (await world.send(item, tokens[KEYS.primary], date))[0] == 401
    assert (await world.send(item, tokens[KEYS.secondary or ""], date))[0] == 200
    assert (await world.send(item, world.signed(item, KEYS.primary, date), date))[0] == 401
    assert (await world.send(item, world.signed(item, WRONG, date), date))[0] == 200
