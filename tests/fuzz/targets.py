"""What the SQL door is fuzzed with: for each kind of input a function from dice to a request that has that input
mutated and the rest right, so that it gets as far as it can.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
from fuzz.mutation import NASTY_TEXTS, mutated_bytes, mutated_json, mutated_value, nasty_value
from fuzz.world import CONTAINERS, ITEM, KEY_HEADERS, Furniture, Headers
from support.binary_forms import AnyForm, random_document

from armillary.model.binary_json.binary_writer import encode

KEY = b"x-ms-documentdb-partitionkey"
NAMES = list(CONTAINERS)


class Input(NamedTuple):
    method: str
    target: bytes
    body: bytes = b""
    headers: Mapping[bytes, bytes] = MappingProxyType({})


Target = Callable[[Furniture, random.Random], Input]


def docs(container: str, item_id: bytes = b"") -> bytes:
    return b"/dbs/db/colls/%b/docs%b" % (container.encode(), b"/" + item_id if item_id else b"")


# Paths and headers.

PATHS = (
    *(b"/", b"/dbs", b"/dbs/db", b"/dbs/db/colls", b"/dbs/db/colls/plain", b"/dbs/db/colls/plain/docs", b"/offers"),
    *(b"/dbs/db/colls/plain/docs/item", b"/dbs/db/colls/plain/pkranges", b"/dbs/db/users/user/permissions/permission"),
    *(b"/dbs/db/colls/plain/sprocs/procedure", b"/dbs/db/colls/plain/triggers/trigger", b"/dbs/db/colls/plain/udfs"),
    *(b"/dbs/db/colls/plain/operations/partitionkeydelete", b"/dbs/db/clientencryptionkeys", b"/dbs/db/users/user"),
    *(b"/addresses/?$resolveFor=dbs%2fdb%2fcolls%2fplain%2fdocs", b"/dbs/db/colls/plain/conflicts/x"),
)
METHODS = ("GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get")


def path(world: Furniture, dice: random.Random) -> Input:
    target = dice.choice(PATHS)
    if dice.random() < 0.1:
        target = b"/offers/" + dice.choice(world.offer_rids).encode()
    for _ in range(dice.choice((0, 1, 1, 2))):
        target = mutated_bytes(dice, target)
    # The network refuses control characters and spaces before a door sees them.
    target = bytes(byte for byte in target if 0x20 < byte < 0x7F) or b"/"
    method = dice.choice(METHODS)
    # The furniture stays: what is deleted is only ever something that was not there.
    is_kept = method != "DELETE" or b"/" + target.strip(b"/") not in PATHS
    body = orjson.dumps(ITEM) if dice.random() < 0.5 else b""
    return Input(method if is_kept else "GET", target, body, {KEY: b'["k"]'} if dice.random() < 0.7 else {})


HEADERS: dict[bytes, tuple[bytes, ...]] = {
    b"x-ms-documentdb-is-upsert": (b"true", b"True"),
    b"x-ms-documentdb-isquery": (b"true",),
    b"x-ms-cosmos-is-batch-request": (b"true",),
    b"x-ms-cosmos-batch-atomic": (b"true", b"false"),
    b"x-ms-cosmos-is-query-plan-request": (b"true",),
    b"x-ms-documentdb-query-enablecrosspartition": (b"true", b"false"),
    b"x-ms-max-item-count": (b"-1", b"1", b"100", b"0"),
    b"x-ms-consistency-level": (b"Session", b"Eventual", b"Strong", b"session"),
    b"x-ms-indexing-directive": (b"Include", b"Exclude", b"default"),
    b"x-ms-session-token": (b"0:1#5", b"0:-1#3,1:1#4", b"0:1#2#1=2"),
    b"x-ms-documentdb-partitionkeyrangeid": (b"0", b"1", b"AQAAAJ0fgTc=,0"),
    b"x-ms-start-epk": (b"", b"00", b"05C1"),
    b"x-ms-end-epk": (b"FF", b"3F"),
    b"x-ms-read-key-type": (b"EffectivePartitionKeyRange",),
    b"x-ms-offer-throughput": (b"400", b"11000", b"100"),
    b"x-ms-cosmos-offer-autopilot-settings": (b'{"maxThroughput":4000}',),
    b"x-ms-activity-id": (b"6a3f2e0c-0000-4000-8000-000000000000",),
    b"x-ms-documentdb-expiry-seconds": (b"3600", b"10"),
    b"x-ms-cosmos-priority-level": (b"High", b"low"),
    b"x-ms-cosmos-throughput-bucket": (b"1", b"5"),
    b"x-ms-cosmos-intended-collection-rid": (b"AQAAAJ0fgTc=",),
    b"x-ms-cosmos-supported-query-features": (b"Aggregate, Distinct, OrderBy",),
    b"x-ms-documentdb-populatequotainfo": (b"True",),
    b"x-ms-documentdb-populatepartitionstatistics": (b"true",),
    b"x-ms-documentdb-pre-trigger-include": (b"trigger",),
    b"x-ms-cosmos-migrate-offer-to-autopilot": (b"true",),
    b"x-ms-cosmos-migrate-offer-to-manual-throughput": (b"true",),
    b"x-ms-documentdb-responsecontinuationtokenlimitinkb": (b"1",),
    b"x-ms-version": (b"2018-12-31", b"2015-04-08", b"9999"),
    b"x-ms-date": (b"Tue, 14 Nov 2023 22:13:20 GMT",),
    b"date": (b"Tue, 14 Nov 2023 22:13:20 GMT",),
    b"if-match": (b'"x"', b"*"),
    b"if-none-match": (b'"x"', b"*"),
    b"if-modified-since": (b"Tue, 14 Nov 2023 22:13:20 GMT",),
    b"a-im": (b"Incremental feed",),
    b"prefer": (b"return=minimal", b'return="representation", wait=1'),
    b"content-type": (b"application/json", b"application/query+json", b"text/plain"),
    b"authorization": (b"type%3Dmaster%26ver%3D1.0%26sig%3DAAAA", b"type%3Daad%26ver%3D1.0%26sig%3Da.b.c"),
    b"host": (b"localhost:8081", b"[::1]:1", b"evil.example"),
    KEY: (b'["k"]', b"[]", b"[{}]", b'["1",2,null]'),
    b"x-ms-continuation": (b"AQAAAA==",),
}


def header(world: Furniture, dice: random.Random) -> Input:
    headers: Headers = {KEY: b'["k"]'} if dice.random() < 0.8 else {}
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        name = dice.choice(list(HEADERS))
        value = dice.choice(HEADERS[name])
        if name == b"authorization" and dice.random() < 0.5:
            value = world.token
        if dice.random() < 0.6:
            value = mutated_bytes(dice, value)
        # What the network lets through: no line breaks, no NUL, no white space around.
        headers[name] = value.translate(None, b"\x00\r\n").strip(b" \t")
    choices = [
        Input("GET", docs("plain", b"item")),
        Input("PUT", docs("plain", b"item"), orjson.dumps(ITEM)),
        Input("GET", docs("plain")),
        Input("POST", docs("plain"), orjson.dumps({**ITEM, "id": "other"})),
        Input("POST", docs("plain"), b'{"query":"SELECT * FROM c WHERE c.n > 0","parameters":[]}'),
        Input("PATCH", docs("plain", b"item"), b'{"operations":[{"op":"incr","path":"/n","value":1}]}'),
        Input("GET", b"/dbs/db/colls/plain"),
        Input("GET", b"/dbs/db/colls/plain/pkranges"),
        Input("POST", b"/dbs", b'{"id":"db"}'),
        Input("POST", b"/dbs/db/colls", orjson.dumps({"id": "plain", **CONTAINERS["plain"]})),
        Input("PUT", b"/dbs/db/colls/rules", orjson.dumps({"id": "rules", **CONTAINERS["rules"]})),
        Input("GET", b"/dbs/db/users/user/permissions/permission"),
        Input("POST", b"/dbs/db/users/user/permissions", orjson.dumps({**PERMISSION, "id": "another"})),
        Input("PUT", b"/dbs/db/users/user/permissions/permission", orjson.dumps(PERMISSION)),
        Input("POST", docs("plain"), orjson.dumps(BATCH), {**ATOMIC, KEY: b'["k"]'}),
        Input("DELETE", b"/dbs/db/users/user/permissions/another"),
        Input("DELETE", docs("plain", b"other")),
        Input("PUT", b"/offers/" + world.offer_rids[0].encode()),
        Input("GET", b"/"),
    ]
    chosen = dice.choice(choices)
    return chosen._replace(headers={**chosen.headers, **headers})


def partition_key(world: Furniture, dice: random.Random) -> Input:
    container = dice.choice(NAMES)
    given = KEY_HEADERS[container] if dice.random() < 0.6 else dice.choice(list(KEY_HEADERS.values()))
    chance = dice.random()
    if chance < 0.4:
        given = mutated_bytes(dice, given)
    elif chance < 0.9:
        given = mutated_json(dice, orjson.loads(given))
    headers = {KEY: given.translate(None, b"\x00\r\n").strip(b" \t")[:30_000]}
    method = dice.choice(("GET", "PUT", "DELETE", "FEED", "POST", "QUERY", "SWEEP"))
    match method:
        case "FEED":
            return Input("GET", docs(container), b"", headers)
        case "POST":
            item = {**ITEM, "id": "fresh", "name": str(dice.random())} if dice.random() < 0.5 else ITEM
            return Input(
                "POST", docs(container), orjson.dumps(item), {**headers, b"x-ms-documentdb-is-upsert": b"True"}
            )
        case "QUERY":
            query = b'{"query":"SELECT * FROM c"}'
            return Input("POST", docs(container), query, {**headers, b"x-ms-documentdb-isquery": b"True"})
        case "SWEEP":
            target = b"/dbs/db/colls/%b/operations/partitionkeydelete" % container.encode()
            return Input("POST", target, b"", headers)
        case "DELETE":
            return Input("DELETE", docs(container, b"fresh"), b"", headers)
    return Input(method, docs(container, b"item"), orjson.dumps(ITEM) if method == "PUT" else b"", headers)


# Tokens.


def continuation(world: Furniture, dice: random.Random) -> Input:
    place = dice.choice(("feed", "query", "ordered", "list"))
    given = dice.choice(CONTINUATIONS[place]) if CONTINUATIONS[place] and dice.random() < 0.8 else b"AQAAAA=="
    given = mutated_bytes(dice, given) if dice.random() < 0.9 else given
    headers = {b"x-ms-continuation": given.translate(None, b"\x00\r\n").strip(b" \t"), b"x-ms-max-item-count": b"1"}
    return _page(place)._replace(headers={**_page(place).headers, **headers})


def _page(place: str) -> Input:
    query = {b"x-ms-documentdb-isquery": b"True", b"x-ms-documentdb-query-enablecrosspartition": b"True"}
    match place:
        case "feed":
            return Input("GET", docs("plain"), b"", {b"x-ms-max-item-count": b"1"})
        case "query":
            body = b'{"query":"SELECT * FROM c WHERE c.n >= 0"}'
        case "ordered":
            body = b'{"query":"SELECT * FROM c WHERE c.key = \'k\' ORDER BY c.n"}'
            query[KEY] = b'["k"]'
        case _:
            return Input("GET", b"/dbs/db/colls", b"", {b"x-ms-max-item-count": b"1"})
    return Input("POST", docs("plain"), body, {**query, b"x-ms-max-item-count": b"1"})


CONTINUATIONS: dict[str, list[bytes]] = {"feed": [], "query": [], "ordered": [], "list": []}


async def gather_continuations(world: Furniture) -> None:
    """Real tokens to start from. Only pages that go on have one."""
    for number in range(12):
        item = orjson.dumps({**ITEM, "id": f"page{number}", "key": "k" if number % 2 else f"k{number}", "n": number})
        key = b'["k"]' if number % 2 else b'["k%d"]' % number
        made = await world.answer("POST", docs("plain"), item, {KEY: key})
        assert made.status in (201, 409), made.body
    for place, found in CONTINUATIONS.items():
        method, target, body, headers = _page(place)
        found.clear()
        for _ in range(3):
            more = {b"x-ms-continuation": found[-1]} if found else {}
            answer = await world.answer(method, target, body, {**headers, **more})
            if answer.status != 200:
                break
            found += [value for name, value in answer.headers if name == b"x-ms-continuation"]


def session(world: Furniture, dice: random.Random) -> Input:
    parts = [
        b"%d:%d#%d" % (dice.choice((0, 1, 2, 99, 10**17)), dice.choice((-1, 0, 1, 7)), dice.choice((0, 1, 5, 10**17)))
        for _ in range(dice.choice((1, 1, 2, 5)))
    ]
    given = b",".join(parts)
    if dice.random() < 0.3:
        given += b"#" + b"#".join(b"%d=%d" % (dice.randrange(9), dice.randrange(99)) for _ in range(dice.randrange(4)))
    if dice.random() < 0.7:
        given = mutated_bytes(dice, given)
    headers = {KEY: b'["k"]', b"x-ms-session-token": given.translate(None, b"\x00\r\n").strip(b" \t")}
    if dice.random() < 0.3:
        headers[b"x-ms-consistency-level"] = dice.choice((b"Eventual", b"Session"))
    choices = [
        Input("GET", docs("plain", b"item"), b"", headers),
        Input("GET", docs("plain"), b"", headers),
        Input("PUT", docs("plain", b"item"), orjson.dumps(ITEM), headers),
        Input("POST", docs("plain"), orjson.dumps(BATCH[:2]), {**headers, **ATOMIC}),
        Input("POST", docs("plain"), b'{"query":"SELECT * FROM c"}', {**headers, b"x-ms-documentdb-isquery": b"True"}),
    ]
    return dice.choice(choices)


# Bodies.


def item(world: Furniture, dice: random.Random) -> Input:
    container = dice.choice(NAMES)
    body = mutated_json(dice, {**ITEM, "ttl": 100, "deep": {"a": [{"b": [1, {"c": "d"}]}]}})
    headers = world.item_headers(container) if dice.random() < 0.8 else {}
    if dice.random() < 0.3:
        return Input("PUT", docs(container, b"item"), body, headers)
    if dice.random() < 0.7:
        headers = {**headers, b"x-ms-documentdb-is-upsert": b"True"}
    return Input("POST", docs(container), body, headers)


DEFINITION: dict[str, Any] = {
    "id": "made",
    "partitionKey": {"paths": ["/a/b", "/c"], "kind": "MultiHash", "version": 2},
    "indexingPolicy": {
        "automatic": True,
        "indexingMode": "consistent",
        "includedPaths": [{"path": "/*", "indexes": [{"kind": "Range", "dataType": "String", "precision": -1}]}],
        "excludedPaths": [{"path": '/"_etag"/?'}, {"path": "/a/b/[]/c/?"}],
        "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]],
        "spatialIndexes": [{"path": "/where/*", "types": ["Point", "Polygon"]}],
        "vectorIndexes": [{"path": "/vector", "type": "flat"}],
        "fullTextIndexes": [{"path": "/text"}],
    },
    "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/x", "/y/z"]}]},
    "conflictResolutionPolicy": {"mode": "LastWriterWins", "conflictResolutionPath": "/_ts"},
    "defaultTtl": 100,
    "vectorEmbeddingPolicy": {
        "vectorEmbeddings": [
            {"path": "/vector", "dataType": "float32", "distanceFunction": "cosine", "dimensions": 8},
        ]
    },
    "fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/text", "language": "en-US"}]},
    "computedProperties": [{"name": "low", "query": "SELECT VALUE LOWER(c.name) FROM c"}],
    "changeFeedPolicy": {"retentionDuration": 10},
    "geospatialConfig": {"type": "Geography"},
    "analyticalStorageTtl": -1,
    "clientEncryptionPolicy": {"includedPaths": [], "policyFormatVersion": 1},
}


def definition(world: Furniture, dice: random.Random) -> Input:
    """Containers, made, used and replaced. Most parts are left out, so that the one that is wrong is reached."""
    names = ["id", "partitionKey", *dice.sample(list(DEFINITION)[2:], dice.randrange(4))]
    given = {name: DEFINITION[name] for name in names}
    if dice.random() < 0.5:
        given["partitionKey"] = {"paths": ["/key"], "kind": "Hash", "version": 2}
    chance = dice.random()
    if chance < 0.15:
        return Input("DELETE", b"/dbs/db/colls/made")
    if chance < 0.3:
        made = {**ITEM, "id": f"item{dice.randrange(5)}", "where": {"type": "Point", "coordinates": [1, 2]}, "c": 3}
        return Input("POST", docs("made"), orjson.dumps(made), {b"x-ms-documentdb-is-upsert": b"True"})
    if chance < 0.5:
        given = {**given, "id": "made", "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2}}
        return Input("PUT", b"/dbs/db/colls/made", mutated_json(dice, given))
    headers = {b"x-ms-version": b"2018-06-18"} if dice.random() < 0.1 else {}
    return Input("POST", b"/dbs/db/colls", mutated_json(dice, given), headers)


PERMISSION = {"id": "permission", "permissionMode": "All", "resource": "dbs/db/colls/plain"}


@cache
def _resources(offer: str) -> tuple[tuple[str, bytes, dict[str, Any]], ...]:
    offer_body = {"id": offer, "_rid": offer, "content": {"offerThroughput": 1000}, "offerVersion": "V2"}
    scaled = {"id": offer, "content": {"offerAutopilotSettings": {"maxThroughput": 4000, "autoUpgradePolicy": {}}}}
    permission = PERMISSION
    keyed = {**permission, "resourcePartitionKey": ["k"], "resource": "dbs/db/colls/plain/docs/item"}
    trigger = {"id": "trigger", "body": "function () {}", "triggerType": "Pre", "triggerOperation": "All"}
    wrapped = {"type": "t", "name": "n", "value": "v", "algorithm": "RSA_OAEP"}
    encryption = {
        "id": "cek",
        "encryptionAlgorithm": "A",
        "wrappedDataEncryptionKey": "AAAA",
        "keyWrapMetadata": wrapped,
    }
    return (
        ("PUT", b"/offers/" + offer.encode(), offer_body),
        ("PUT", b"/offers/" + offer.encode(), scaled),
        ("POST", b"/dbs", {"id": "made"}),
        ("POST", b"/dbs/db/users", {"id": "made"}),
        ("PUT", b"/dbs/db/users/user", {"id": "user"}),
        ("POST", b"/dbs/db/users/user/permissions", permission),
        ("POST", b"/dbs/db/users/user/permissions", keyed),
        ("PUT", b"/dbs/db/users/user/permissions/permission", permission),
        ("POST", b"/dbs/db/clientencryptionkeys", encryption),
        ("PUT", b"/dbs/db/clientencryptionkeys/cek", encryption),
        ("POST", b"/dbs/db/colls/plain/sprocs", {"id": "procedure", "body": "function () {}"}),
        ("PUT", b"/dbs/db/colls/plain/triggers/trigger", trigger),
        ("POST", b"/dbs/db/colls/plain/sprocs/procedure", {"a": [1]}),
    )


def resource(world: Furniture, dice: random.Random) -> Input:
    """Offers, databases, users, permissions, keys and scripts; now and then a list, which shows all that was made."""
    if dice.random() < 0.1:
        feeds = (
            b"/dbs",
            b"/offers",
            b"/dbs/db/users",
            b"/dbs/db/users/user/permissions",
            b"/dbs/db/colls/plain/sprocs",
        )
        return Input("GET", dice.choice(feeds))
    method, target, body = dice.choice(_resources(dice.choice(world.offer_rids)))
    headers: Headers = {b"x-ms-documentdb-is-upsert": b"True"} if dice.random() < 0.3 else {}
    if method == "PUT" and dice.random() < 0.1:
        headers[b"x-ms-cosmos-migrate-offer-to-autopilot"] = b"true"
    return Input(method, target, mutated_json(dice, body), headers)


OPERATIONS = [
    {"op": "add", "path": "/list/-", "value": 1},
    {"op": "set", "path": "/a/new", "value": {"b": [1, 2]}},
    {"op": "replace", "path": "/name", "value": "m"},
    {"op": "remove", "path": "/n"},
    {"op": "incr", "path": "/n", "value": 1},
    {"op": "move", "from": "/a/b", "path": "/moved"},
    {"op": "add", "path": "/list/0", "value": None},
    {"op": "set", "path": "/a~1b/~0c", "value": 1},
]


def patch(world: Furniture, dice: random.Random) -> Input:
    body: dict[str, Any] = {"operations": dice.choices(OPERATIONS, k=dice.choice((1, 1, 2, 3, 10, 11)))}
    if dice.random() < 0.4:
        body["condition"] = dice.choice(("from c where c.n > 0", "FROM x WHERE IS_DEFINED(x.a)", "from c", "where 1"))
    container = dice.choice(NAMES)
    if dice.random() < 0.1:  # so that there is something to patch again
        headers = {**world.item_headers(container), b"x-ms-documentdb-is-upsert": b"True"}
        return Input("POST", docs(container), orjson.dumps(ITEM), headers)
    return Input("PATCH", docs(container, b"item"), mutated_json(dice, body), world.item_headers(container))


BATCH: list[dict[str, Any]] = [
    {"operationType": "Upsert", "resourceBody": {**ITEM, "id": "b1", "name": "b1"}},
    {"operationType": "Read", "id": "item"},
    {"operationType": "Create", "resourceBody": {**ITEM, "id": "b2", "name": "b2"}},
    {"operationType": "Replace", "id": "b2", "resourceBody": {**ITEM, "id": "b2", "name": "b3"}, "ifMatch": "*"},
    {"operationType": "Patch", "id": "b2", "resourceBody": {"operations": [OPERATIONS[4]]}},
    {"operationType": "Delete", "id": "b2"},
]
ATOMIC = {b"x-ms-cosmos-is-batch-request": b"True", b"x-ms-cosmos-batch-atomic": b"True"}


def batch(world: Furniture, dice: random.Random) -> Input:
    container = dice.choice(NAMES)
    key = KEY_HEADERS[container].decode()
    operations = BATCH if dice.random() < 0.5 else dice.choices(BATCH, k=dice.choice((1, 2, 5, 100, 101)))
    if dice.random() < 0.6:
        headers = {**world.item_headers(container), **ATOMIC}
    else:
        operations = [{**each, "partitionKey": key} for each in operations]
        headers = {b"x-ms-cosmos-is-batch-request": b"True", b"x-ms-documentdb-partitionkeyrangeid": b"0"}
        if dice.random() < 0.5:
            headers[b"x-ms-documentdb-partitionkeyrangeid"] = b"1"
    return Input("POST", docs(container), mutated_json(dice, operations), headers)


QUERIES = (
    "SELECT * FROM c",
    "SELECT c.id, c.a.b AS inner, {x: c.n, y: [c.list[0], @p]} FROM c WHERE c.n >= 0 AND c.name = 'n'",
    "SELECT VALUE c['id'] FROM c WHERE c.key IN ('k', @p) OR NOT (c.n BETWEEN 1 AND 3)",
    "SELECT TOP 3 * FROM c WHERE c.n = @p ORDER BY c._ts DESC",
    "SELECT VALUE 1 + 2 * -c.n % 3 ?? 'x'",
    "SELECT * FROM c WHERE STARTSWITH(c.name, 'n') AND IS_DEFINED(c.a) OFFSET 1 LIMIT 2",
)


def query(world: Furniture, dice: random.Random) -> Input:
    text = dice.choice(QUERIES)
    if dice.random() < 0.7:
        text = mutated_bytes(dice, text.encode()).decode("utf-8", "replace")
    parameters = [{"name": "@p", "value": nasty_value(dice)}]
    given = {"query": text, "parameters": parameters if dice.random() < 0.7 else mutated_value(dice, parameters)}
    body = orjson.dumps(given) if dice.random() < 0.8 else mutated_json(dice, given)
    target = docs(dice.choice(NAMES)) if dice.random() < 0.8 else dice.choice((b"/dbs", b"/offers", b"/dbs/db/colls"))
    headers = {b"x-ms-documentdb-isquery": b"True", b"x-ms-documentdb-query-enablecrosspartition": b"True"}
    if dice.random() < 0.2:
        headers = {b"x-ms-cosmos-is-query-plan-request": b"True"}
    return Input("POST", target, body, headers)


def binary_item(world: Furniture, dice: random.Random) -> Input:
    """Items in Cosmos binary JSON, some of them whole."""
    document = {**ITEM, **random_document(dice), "id": "item"}
    body = encode(document, 0xFFFF) if dice.random() < 0.3 else AnyForm(dice).write(document)
    for _ in range(dice.choice((0, 1, 1, 2, 5))):
        body = b"\x80" + mutated_bytes(dice, body[1:])
    headers = {KEY: b'["k"]', b"x-ms-documentdb-is-upsert": b"True"}
    if dice.random() < 0.3:
        headers[b"x-ms-cosmos-supported-serialization-formats"] = b"CosmosBinary"
    return Input("POST", docs("plain"), body, headers)


def noise(world: Furniture, dice: random.Random) -> Input:
    """Bodies that are no JSON at all, everywhere."""
    _, target, _ = dice.choice(_resources(world.offer_rids[0]))
    body = dice.choice(NASTY_TEXTS) if dice.random() < 0.5 else dice.randbytes(dice.randrange(60))
    return Input(dice.choice(("POST", "PUT", "PATCH")), target, body, {KEY: b'["k"]'})


TARGETS: dict[str, Target] = {
    "path": path,
    "header": header,
    "partition key": partition_key,
    "continuation": continuation,
    "session": session,
    "item": item,
    "definition": definition,
    "resource": resource,
    "patch": patch,
    "batch": batch,
    "query": query,
    "binary item": binary_item,
    "noise": noise,
}
