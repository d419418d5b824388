"""The Gremlin door in process: envelopes, credentials, parts of answers, failures, limits, budgets and faults."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.gremlin_house import READ_ONLY_KEY, GremlinHouse, Wire, asked, credentials
from support.process import KEY
from support.topology import FakeTopology, following

from armillary import limits
from armillary.account.faults import FaultRule
from armillary.account.security import permissions
from armillary.clock import MovableClock
from armillary.doors.gremlin.errors import ROWS, attributes_of
from armillary.errors import Failure, Kind
from armillary.model.resources import ResourceType
from armillary.storage.replication.group_commit import not_leader

FORMS = [
    "application/json",
    "application/vnd.gremlin-v1.0+json",
    "application/vnd.gremlin-v2.0+json",
    "application/vnd.gremlin-v3.0+json",
    "application/vnd.gremlin-v2.0+json;types=false",
    None,
]
COSTS = {
    "x-ms-request-charge",
    "x-ms-total-request-charge",
    "x-ms-server-time-ms",
    "x-ms-total-server-time-ms",
    "x-ms-activity-id",
}


@pytest.fixture
async def house() -> AsyncIterator[GremlinHouse]:
    made = await GremlinHouse.open()
    await made.graph()
    yield made
    await made.close()


# Credentials.


@pytest.mark.parametrize("form", FORMS)
async def test_a_request_waits_for_credentials(house: GremlinHouse, form: str | None) -> None:
    client = house.stranger()
    [challenge] = await house.send(client, asked("g.inject(1)"), form)
    assert (challenge["requestId"], challenge["status"]["code"], challenge["result"]["data"]) == ("r1", 407, None)
    attributes = challenge["status"]["attributes"]
    named = attributes["@value"][::2] if "@value" in attributes else attributes
    assert set(named) >= COSTS
    [answer] = await house.send(client, credentials(), form)
    assert (answer["requestId"], answer["status"]["code"]) == ("r1", 200)
    [answer] = await house.send(client, asked("g.inject(2)", "r2"), form)
    assert (answer["requestId"], answer["status"]["code"]) == ("r2", 200)


@pytest.mark.parametrize("name", ["sasl", "SASL"])
async def test_all_that_wait_are_answered(house: GremlinHouse, name: str) -> None:
    client = house.stranger()
    for request_id in ("r1", "r2", "r3"):
        await house.send(client, asked(f"g.inject('{request_id}')", request_id))
    answers = await house.send(client, credentials(name=name))
    assert {each["requestId"]: each["result"]["data"] for each in answers} == {f"r{n}": [f"r{n}"] for n in (1, 2, 3)}
    assert await house.send(client, credentials(request_id="r2", name=name)) == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (credentials(key="d3Jvbmc="), "no key of this account"),
        (credentials(key="type=resource&ver=1&sig=x;y;"), "its signature cannot be read"),
        (credentials(key="type=sas&ver=1.0&sig=x;y"), "type=sas"),
        (credentials(user="ann"), "/dbs/<database>/colls/<graph>"),
        (credentials() | {"args": {"sasl": "%%%"}}, "base64"),
        (credentials() | {"args": {}}, "base64"),
        (credentials() | {"args": {"sasl": "YWJj"}}, "an identity, a user and a password"),
        (credentials() | {"args": {"sasl": "YWJj", "saslMechanism": "GSSAPI"}}, "GSSAPI"),
    ],
)
async def test_bad_credentials(house: GremlinHouse, request_: dict[str, object], said: str) -> None:
    client = house.stranger()
    await house.send(client, asked("g.V().drop()"))
    [answer] = await house.send(client, request_)
    status = answer["status"]
    assert status["code"] == status["attributes"]["x-ms-status-code"] == 401
    assert status["message"].startswith("Unauthorized: Invalid credentials provided") and said in status["message"]
    assert isinstance(client.line, Wire) and client.line.closed_with == 1008
    assert client.principal is None


async def test_strangers_wait_in_bounds(house: GremlinHouse) -> None:
    client = house.stranger()
    for number in range(limits.GREMLIN_PENDING_MAX):
        [answer] = await house.send(client, asked("g.V()", f"r{number}"))
        assert answer["status"]["code"] == 407
    [answer] = await house.send(client, asked("g.V()", "one more"))
    assert answer["status"]["code"] == 401


async def test_a_connection_is_one_users(house: GremlinHouse) -> None:
    client = house.friend()
    [answer] = await house.send(client, credentials(user="/dbs/d/colls/other"))
    assert answer["status"]["code"] == 401


async def test_a_key_for_reading(house: GremlinHouse) -> None:
    client = house.stranger()
    await house.send(client, asked("g.V().count()"))
    [answer] = await house.send(client, credentials(key=READ_ONLY_KEY))
    assert answer["result"]["data"] == [0]
    status, code, _ = await house.refusal("g.addV('x').property('pk','a')", client)
    assert (status, code) == (500, 403)


async def _token(house: GremlinHouse, name_link: str, rid_link: str, mode: str = "All", **more: Any) -> str:
    catalog, database = house.account.catalog, house.account.database("d")
    user = await catalog.create(ResourceType.USER, database, f"u{mode}", {"id": f"u{mode}"})
    body = {"id": "p", "permissionMode": mode, "resource": name_link}
    permission = await catalog.create(ResourceType.PERMISSION, user, "p", body)
    given: dict[str, Any] = {"partition_key": None, "lifetime_s": 60, "permission_rid": permission.rid_text, **more}
    rid_link = rid_link.replace("dbs/x", f"dbs/{database.rid_text}")
    rids = rid_link.split("/")[1::2]
    return house.tokens.issue(mode=mode, name_link=name_link, rid_link=rid_link, rids=rids, grant="", **given)


async def test_resource_tokens(house: GremlinHouse) -> None:
    rid = house.account.container("d", "g").rid_text
    for mode, code in (("All", 200), ("Read", 403)):
        client = house.stranger()
        await house.send(client, asked("g.V().count()"))
        token = await _token(house, "dbs/d/colls/g", f"dbs/x/colls/{rid}", mode)
        [answer] = await house.send(client, credentials(key=token))
        assert answer["status"]["code"] == 200
        [answer] = await house.send(client, asked("g.addV('x').property('pk','a')"))
        assert answer["status"]["attributes"]["x-ms-status-code"] == code
        # It ends with its permission.
        await house.account.catalog.delete(house.account.find(ResourceType.PERMISSION, ("d", f"u{mode}", "p")))
        [answer] = await house.send(client, asked("g.V().count()"))
        assert answer["status"]["code"] == 401


@pytest.mark.parametrize(
    ("name_link", "rid", "more", "said"),
    [
        ("dbs/d/colls/other", "r", {}, "is not for /dbs/d/colls/g"),
        ("dbs/d/colls/g/docs/1", "r/docs/r2", {}, "is not for /dbs/d/colls/g"),
        ("dbs/d/colls/g", "r", {"partition_key": ["a"]}, "is for one partition key"),
        ("dbs/d/colls/g", "r", {}, "an earlier graph of this name"),
    ],
)
async def test_resource_tokens_that_are_not_good_for_it(
    house: GremlinHouse, name_link: str, rid: str, more: dict[str, Any], said: str
) -> None:
    client = house.stranger()
    await house.send(client, asked("g.V().count()"))
    token = await _token(house, name_link, f"dbs/x/colls/{rid}", **more)
    [answer] = await house.send(client, credentials(key=token))
    assert answer["status"]["code"] == 401 and said in answer["status"]["message"]


async def test_a_resource_token_ends() -> None:
    clock = MovableClock()
    house = await GremlinHouse.open(clock=clock)
    await house.graph()
    client = house.stranger()
    await house.send(client, asked("g.inject(1)"))
    token = await _token(house, "dbs/d", "dbs/x")
    [answer] = await house.send(client, credentials(key=token))
    assert answer["status"]["code"] == 200
    clock.advance(61)
    [answer] = await house.send(client, asked("g.inject(1)"))
    assert answer["status"]["code"] == 401 and "expired" in answer["status"]["message"]
    await house.close()


async def test_a_resource_token_ends_with_what_its_permission_allowed(house: GremlinHouse) -> None:
    """A partition key was added, or the database is another one of the same name by now."""
    client = house.stranger()
    await house.send(client, asked("g.inject(1)"))
    token = await _token(house, "dbs/d", "dbs/x")
    [answer] = await house.send(client, credentials(key=token))
    assert answer["status"]["code"] == 200
    catalog, permission = house.account.catalog, house.account.find(ResourceType.PERMISSION, ("d", "uAll", "p"))
    body = {**permission.body, "resource": "dbs/d/colls/g"}
    await catalog.replace(permission, body, state=permissions.regranting(house.account, permission, body))
    [answer] = await house.send(client, asked("g.inject(1)"))
    assert answer["status"]["code"] == 401 and "allows less" in answer["status"]["message"]
    await catalog.delete(house.account.find(ResourceType.USER, ("d", "uAll")))
    other = house.stranger()
    await house.send(other, asked("g.inject(1)"))
    token = await _token(house, "dbs/d", "dbs/AAAAAA==")
    [answer] = await house.send(other, credentials(key=token))
    assert answer["status"]["code"] == 401 and "earlier" in answer["status"]["message"]


async def test_a_resource_token_ends_with_the_key_that_it_was_sealed_for(house: GremlinHouse) -> None:
    token = await _token(house, "dbs/d", "dbs/x")
    client = house.stranger()
    await house.send(client, asked("g.inject(1)"))
    [answer] = await house.send(client, credentials(key=token))
    assert answer["status"]["code"] == 200
    another = b"another secret of so many bytes and more"
    house.tokens.use(b"a secret of at least so many bytes", another)
    house.keys.use((KEY,), (READ_ONLY_KEY,))
    [answer] = await house.send(client, asked("g.inject(1)"))  # it was the other key that changed
    assert answer["status"]["code"] == 200
    house.tokens.use(b"a third secret of as many bytes as that", another)
    house.keys.use((KEY,), (READ_ONLY_KEY,))
    [answer] = await house.send(client, asked("g.inject(1)"))
    assert answer["status"]["code"] == 407
    [answer] = await house.send(client, credentials(key=token))
    assert answer["status"]["code"] == 401


async def test_transactions_are_requests_by_themselves(house: GremlinHouse) -> None:
    """There is nothing open to commit, and nothing can be opened."""
    for name in ("commit", "rollback"):
        assert await house.run(f"g.tx().{name}()") == []
        [answer] = await house.send(house.friend(), _bytecode([["tx", name]], []), "application/vnd.gremlin-v3.0+json")
        assert answer["status"]["code"] == 204
    assert (await house.refusal("g.tx().begin()"))[0] == 597
    [answer] = await house.send(house.friend(), _bytecode([["tx", "begin"]], []), "application/vnd.gremlin-v3.0+json")
    assert answer["status"]["code"] == 597 and "Transactions of several requests" in answer["status"]["message"]


def _bytecode(source: list[list[Any]], steps: list[list[Any]]) -> dict[str, Any]:
    bytecode = {"@type": "g:Bytecode", "@value": {"source": source, "step": steps}}
    arguments = {"gremlin": bytecode, "aliases": {"g": "g"}}
    return {"requestId": "r1", "op": "bytecode", "processor": "traversal", "args": arguments}


# Where elements are.


@pytest.mark.parametrize(
    ("script", "fanout"),
    [
        ("g.V(['b','v1'])", 1),
        ("g.V().has('pk','b').has('id','v1')", 1),
        ("g.V().has('id','v1').has('pk','b')", 1),
        ("g.V('v1').has('pk','b')", 1),
        ("g.V().hasId('v1').has('pk','b')", 1),
        ("g.V().has(T.id,'v1').has('pk','b').has('name','n')", 1),
        ("g.V().has('pk','b').hasLabel('x').has('name','n')", 1),
        ("g.V().has('id','v1').has('pk',within('b','zz'))", 2),
        ("g.V().has('id','v1')", 4),
        ("g.V('v1')", 4),
        ("g.V().has('label','x').has('name','n')", 4),
        ("g.E(['b','e1']).outV().has('id','v1')", 1),
        ("g.E().has('pk','b').has('id','e1').outV()", 1),
    ],
)
async def test_what_is_asked_of_partitions(script: str, fanout: int) -> None:
    house = await GremlinHouse.open(partition_throughput_ru=200)
    container = await house.graph()
    assert len(container.partitions) == 4
    await house.run("g.addV('x').property('pk','b').property('id','v1').property('name','n')")
    await house.run("g.V(['b','v1']).addE('to').to(__.V(['b','v1'])).property('id','e1')")
    [found] = await house.run(script)
    assert found["id"] == "v1"
    [profile] = await house.run(f"{script}.executionProfile()")
    operations = profile["metrics"][0]["storeOps"]
    assert max(each["fanoutFactor"] for each in operations) == fanout
    await house.close()


async def test_profiles_tell_who_read_what(house: GremlinHouse) -> None:
    """Also where steps read by turns."""
    for number in range(30):
        await house.run(f"g.addV('x').property('pk','{number % 3}').property('id','{number}')")
    await house.run("g.V().as('a').V().where(neq('a')).addE('to').from('a').count()")
    [profile] = await house.run("g.V().out().out().count().executionProfile()")
    read = [sum(each["count"] for each in metric.get("storeOps", ())) for metric in profile["metrics"]]
    assert read == [30 + 30 * 29, 30 * 29, 0, 30 * 29, 0, 0]


async def test_many_places_of_many_ids(house: GremlinHouse) -> None:
    """More than are read at once."""
    keys = [f"k{number}" for number in range(40)]
    for number in range(0, 40, 8):
        await house.run(f"g.addV('x').property('pk','k{number}').property('id','v{number}')")
    ids = ",".join(f"'v{number}'" for number in range(40))
    found = await house.run(f"g.V({ids}).has('pk',within(keys)).id()", keys=keys)
    assert sorted(found) == ["v0", "v16", "v24", "v32", "v8"]


async def test_ids_and_labels_by_name(house: GremlinHouse) -> None:
    await house.run("g.addV('x').property('pk','b').property('id','v1')")
    await house.run("g.addV('y').property('pk','c').property('id','v2')")
    assert await house.run("g.V().has('id','v2').id()") == ["v2"]
    assert await house.run("g.V().has('id',within('v1','v2')).order().by('id',decr).values('id')") == ["v2", "v1"]
    assert await house.run("g.V().has('label','y').values('label','id')") == ["y", "v2"]
    assert await house.run("g.V().has('id',startingWith('v')).count()") == [2]
    assert await house.run("g.V().groupCount().by('label')") == [{"x": 1, "y": 1}]
    assert await house.run("g.V().has('id',null).count()") == [0]
    assert await house.run("g.V().project('id').by('id').has('id','v1')") == [{"id": "v1"}]


# Envelopes.


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (b"", 498),
        (b"\x10", 498),
        (b"\x10application/json", 498),
        (b"\x10application/json[]", 498),
        (b'\x10application/json{"requestId":7}', 498),
        (b'\x10application/json{"requestId":"r","op":3}', 498),
        (b'\x10application/json{"requestId":"r","op":"eval","args":[1]}', 498),
        (b'\x10application/json{"requestId":"r","op":"dance"}', 498),
        (b'\x10application/json{"requestId":"r","op":"eval","args":{}}', 499),
        (b'\x10application/json{"requestId":"r","op":"eval","args":{"gremlin":"g.V()","bindings":7}}', 499),
        (b'\x10application/json{"requestId":"r","op":"eval","args":{"gremlin":"g.V()","batchSize":0}}', 499),
        (b'\x10application/json{"requestId":"r","op":"eval","args":{"gremlin":"g.V()","language":"perl"}}', 597),
        (b'\x10application/json{"requestId":"r","op":"bytecode","args":{"gremlin":"g.V()"}}', 499),
        (b'\x10application/json{"requestId":"r","op":"eval","processor":"session","args":{"gremlin":"g.V()"}}', 597),
        (b"\x0bapplication", 497),
        (b"\x08text/xml<a/>", 497),
    ],
)
async def test_messages_that_mean_nothing(house: GremlinHouse, message: bytes, status: int) -> None:
    [answer] = await house.send(house.friend(), message)
    assert answer["status"]["code"] == status
    assert answer["status"]["attributes"]["x-ms-status-code"] == 1004


async def test_closing_is_answered(house: GremlinHouse) -> None:
    [answer] = await house.send(house.friend(), {"requestId": "r", "op": "close", "processor": "session", "args": {}})
    assert answer["status"]["code"] == 204


async def test_bindings_with_and_without_types(house: GremlinHouse) -> None:
    assert await house.run("g.inject(x).sum()", x=2) == [2]
    assert await house.run("g.inject(x).sum()", x={"@type": "g:Int32", "@value": 2}) == [2]
    request = asked("g.inject(x)", bindings={"x": 1})
    request["args"] = {
        "@type": "g:Map",
        "@value": ["gremlin", "g.inject(x)", "bindings", {"@type": "g:Map", "@value": ["x", 1]}],
    }
    [answer] = await house.send(house.friend(), request, "application/vnd.gremlin-v3.0+json")
    assert answer["result"]["data"] == {"@type": "g:List", "@value": [{"@type": "g:Int32", "@value": 1}]}
    assert answer["status"]["attributes"]["@type"] == "g:Map"


async def test_answers_in_parts(house: GremlinHouse) -> None:
    answers = await house.answers("g.inject(1,2,3,4,5)", batchSize=2)
    assert [each["status"]["code"] for each in answers] == [206, 206, 200]
    assert [each["result"]["data"] for each in answers] == [[1, 2], [3, 4], [5]]
    assert all(set(each["status"]["attributes"]) >= COSTS for each in answers)
    assert [each["status"]["attributes"]["x-ms-status-code"] for each in answers] == [206, 206, 200]
    [answer] = await house.answers("g.V()")
    assert (answer["status"]["code"], answer["result"]["data"]) == (204, [])
    script = f"g.inject({','.join(['1'] * 100)})"
    assert [len(each["result"]["data"]) for each in await house.answers(script)] == [64, 36]


async def test_several_statements(house: GremlinHouse) -> None:
    script = "g.addV('a').property('pk','x').property('id','1'); g.V('1').label()"
    assert await house.run(script) == ["a"]


# What is refused.


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ("g.V(", 597, 1004),
        ("g.V().nonsense()", 597, 1004),
        ("g.V().map{it}", 597, 1004),
        ("g.inject(1).fail('no')", 595, 500),
        ("g.addV('x')", 500, 500),
        ("g.addV('x').property('pk','a').property('_rid','b')", 500, 500),
        ("g.addV('x').property('pk','a').property('id','a/b')", 499, 1004),
        ("g.V('1').property('pk','other')", 500, 500),
        ("g.inject('a').sum()", 500, 500),
        (f"g.inject('{'x' * limits.GREMLIN_SCRIPT_BYTES_MAX}')", 597, 1004),
        ("g.with('evaluationTimeout',1).inject(1).repeat(identity()).until(constant(1).is(2))", 598, 1009),
    ],
)
async def test_scripts_that_fail(house: GremlinHouse, script: str, status: int, code: int) -> None:
    await house.run("g.addV('x').property('pk','a').property('id','1')")
    answer = (await house.answers(script))[-1]
    assert answer["status"]["code"] == status, answer
    assert answer["status"]["attributes"]["x-ms-status-code"] == code
    assert re.search(r"ActivityId : \S+\nExceptionType : \w+\nExceptionMessage :\n\t.", answer["status"]["message"])


async def test_graphs_that_are_not_there(house: GremlinHouse) -> None:
    status, code, message = await house.refusal("g.V()", house.friend(graph="other"))
    assert (status, code) == (500, 404)
    assert "Owner resource does not exist" in message


@pytest.mark.parametrize("path", ["/id", "/label", '/"label"'])
async def test_keys_that_graphs_cannot_have(path: str) -> None:
    house = await GremlinHouse.open()
    await house.graph(partitionKey={"paths": [path], "kind": "Hash", "version": 2})
    status, code, message = await house.refusal("g.V()")
    assert (status, code) == (499, 1004)
    assert f"'{path}'" in message and "partition key" in message
    with pytest.raises(Failure, match="not allowed"):
        await GremlinHouse.open(creates=path)
    await house.close()


async def test_graphs_made_on_first_use() -> None:
    for creates, script in (("/pk", "g.addV('x').property('pk','a')"), ("none", "g.addV('x')")):
        house = await GremlinHouse.open(creates=creates)
        status, code, _ = await house.refusal("g.V()", house.friend(is_read_only=True))
        assert (status, code) == (500, 403)
        await house.run(script)
        await house.run(script)
        assert await house.run("g.V().count()") == [2]
        await house.close()


WRITES = [
    "g.addV('p').property('id','2').property('pk','x')",
    "g.inject(1).addV('p').property('id','2').property('pk','x')",
    "g.V().map(__.addV('p').property('id','2').property('pk','x'))",
    "g.V('none').fold().coalesce(unfold(), addV('p').property('id','2').property('pk','x'))",
    "g.mergeV([id:'2',pk:'x'])",
    "g.V('1').addE('k').to(g.V('1'))",
    "g.V().drop()",
    "g.V().properties('n').drop()",
    "g.V().property('n',2)",
    "g.V().sideEffect(drop())",
    "g.V().union(drop())",
    "g.V().where(drop())",
    "g.V().not(property('n',2))",
    "g.V().choose(hasLabel('p'), drop(), identity())",
    "g.V().repeat(sideEffect(property('n',2))).times(1)",
    "g.V().until(drop()).repeat(identity())",
    "g.V().emit(property('n',2)).repeat(out())",
    "g.V().group().by(sideEffect(property('n',2)))",
    "g.V().order().by(sideEffect(property('n',2)).values('n'))",
    "g.V().match(__.as('a').property('n',2).as('b'))",
]


async def test_no_step_writes_with_a_read_only_key() -> None:
    house = await GremlinHouse.open()
    await house.graph(partitionKey={"paths": ["/pk"]})
    await house.run("g.addV('p').property('id','1').property('pk','x').property('n',1)")
    before = await house.run("g.V().valueMap(true)")
    for script in WRITES:
        assert (await house.refusal(script, house.friend(is_read_only=True)))[:2] == (500, 403), script
        assert await house.run("g.V().valueMap(true)") == before, script
    await house.close()


def test_every_kind_has_a_row() -> None:
    assert set(ROWS) == set(Kind)


def test_retry_after_is_a_time_span() -> None:
    told = attributes_of(Failure(Kind.THROTTLED, "", retry_after_ms=3950))
    assert (told["x-ms-status-code"], told["x-ms-retry-after-ms"]) == (429, "00:00:03.9500000")


# Storage.


async def test_point_reads_ask_one_partition() -> None:
    house = await GremlinHouse.open()
    container = await house.graph(throughput_ru=24_000)
    assert len(container.partitions) > 2
    for number in range(12):
        await house.run("g.addV('x').property('pk',k).property('id',i)", k=f"k{number}", i=f"i{number}")
    [profile] = await house.run("g.V(['k3','i3']).executionProfile()")
    assert [each["fanoutFactor"] for each in profile["metrics"][0]["storeOps"]] == [1]
    [profile] = await house.run("g.V('i3').executionProfile()")
    assert [each["fanoutFactor"] for each in profile["metrics"][0]["storeOps"]] == [len(container.partitions)]
    assert await house.run("g.V(['k3','i3'],['k4','i4'],['k3','i4']).id()") == ["i3", "i4"]
    assert await house.run("g.V().has('pk','k5').id()") == ["i5"]
    await house.close()


@pytest.mark.parametrize("mode", ["consistent", "none"])
async def test_with_and_without_an_index(mode: str) -> None:
    house = await GremlinHouse.open()
    policy = {"indexingMode": mode, "automatic": mode == "consistent"}
    await house.graph(indexingPolicy=policy)
    for number in range(8):
        await house.run(
            "g.addV('x').property('pk',k).property('id',i).property('n',n)",
            k=f"k{number % 3}",
            i=f"i{number}",
            n=number,
        )
    for number in range(8):
        await house.run("g.V(a).addE('to').to(__.V(b))", a=f"i{number}", b=f"i{(number + 1) % 8}")
    assert await house.run("g.V('i2').out().out().id()") == ["i4"]
    assert await house.run("g.V('i2').in('to').id()") == ["i1"]
    assert await house.run("g.V().has('n',gt(5)).id().order()") == ["i6", "i7"]
    assert await house.run("g.V().has('n',within(1,3)).id().order()") == ["i1", "i3"]
    assert await house.run("g.E().has('n',1).count()") == [0]
    assert await house.run("g.V().both().dedup().count()") == [8]
    await house.run("g.V('i3').drop()")
    assert await house.run("g.E().count()") == [6]
    await house.close()


async def test_long_ids_are_told_apart(house: GremlinHouse) -> None:
    one, other = "x" * 240 + "1", "x" * 240 + "2"
    for each in (one, other):
        await house.run("g.addV('x').property('pk','a').property('id',i)", i=each)
    await house.run("g.V(a).addE('to').to(__.V(b))", a=one, b=other)
    for script in ("g.V(i).out().id()", "g.V(i).outE().count()", "g.V(i).out().limit(1).id()"):
        assert await house.run(script, i=one) != await house.run(script, i=other), script
    assert await house.run("g.V(i).id()", i=one) == [one]
    assert await house.run("g.V(i).in().id()", i=other) == [one]
    assert await house.run("g.V(i).in().id()", i=one) == []


async def test_more_edges_than_are_loaded_at_once(house: GremlinHouse) -> None:
    await house.run("g.addV('hub').property('pk','a').property('id','hub')")
    ids = [f"n{number}" for number in range(700)]
    for begin in range(0, 700, 100):
        new = "addV('n').property('pk','b').property(id,select('i'))"
        await house.run(f"g.inject(x).unfold().as('i').{new}.addE('to').from(__.V('hub'))", x=ids[begin : begin + 100])
    assert await house.run("g.V('hub').out().dedup().count()") == [700]
    assert await house.run("g.V('hub').out().in().out().dedup().count()") == [700]
    assert await house.run("g.V().in('to').dedup().id()") == ["hub"]
    assert await house.run("g.V('hub').out().limit(3).count()") == [3]
    await house.run("g.V('hub').drop()")
    assert await house.run("g.E().count()") == [0]


VALUES = [
    "true",
    "1",
    "-5L",
    "2.5d",
    "'text'",
    "''",
    "9223372036854775808n",
    "2.50m",
    "NaN",
    "-Infinity",
    "datetime('2023-08-02T00:00:00Z')",
    "[1,'a',[2]]",
    "['k':['l':1]]",
    "{1,2}",
]


@pytest.mark.parametrize("value", VALUES)
async def test_values_come_back_as_they_were(house: GremlinHouse, value: str) -> None:
    await house.run(f"g.addV('v').property('pk','x').property('id','a').property('p',{value},'m',{value})")
    await house.run(f"g.V('a').addE('e').to(__.V('a')).property('p',{value})")
    form = "application/vnd.gremlin-v3.0+json"
    [sent] = await house.send(house.friend(), asked(f"g.inject({value})"), form)
    wanted = sent["result"]["data"]["@value"]
    if value == "-5L":
        wanted = [{"@type": "g:Int32", "@value": -5}]  # as in the service: JSON has one kind of number
    for script in ("g.V('a').values('p')", "g.V('a').properties('p').values('m')", "g.E().values('p')"):
        [answer] = await house.send(house.friend(), asked(script), form)
        assert answer["result"]["data"]["@value"] == wanted, script
    if value not in ("NaN",) and value[0] not in "[{":
        assert await house.run(f"g.V().has('p',{value}).id()") == ["a"]
        assert await house.run(f"g.E().has('p',{value}).count()") == [1]


async def test_writes_of_one_partition_are_one(house: GremlinHouse) -> None:
    """The second vertex of the batch is there already, so neither is written."""
    await house.run("g.addV('x').property('pk','a').property('id','2')")
    status, code, _ = await house.refusal("g.inject('1','2','3').addV('x').property('pk','a').property(id, identity())")
    assert (status, code) == (500, 409)
    assert await house.run("g.V().id()") == ["2"]


async def test_elements_that_live_for_a_time() -> None:
    house = await GremlinHouse.open()
    await house.graph(defaultTtl=-1)
    await house.run("g.addV('x').property('pk','a').property('id','1').property('ttl',1000)")
    assert await house.run("g.V('1').values('ttl')") == [1000]
    assert await house.run("g.V('1').property('ttl',2000L).values('ttl')") == [2000]
    assert (await house.refusal("g.V('1').property('ttl','soon')"))[:2] == (500, 500)
    assert (await house.run("g.V('1').out().count()")) == [0]
    await house.close()


async def test_system_properties_are_shown_when_asked_for(house: GremlinHouse) -> None:
    await house.run("g.addV('x').property('pk','a').property('id','1')")
    await house.run("g.V('1').addE('e').to(__.V('1'))")
    names = "'_ts','_etag','inVPartition'"
    source = f"g.withStrategies(ProjectionStrategy.build().IncludeSystemProperties({names}).create())"
    assert await house.run("g.V('1').properties().key()") == ["pk"]
    assert set(await house.run(f"{source}.V('1').properties().key()")) == {"pk", "_ts", "_etag"}
    assert set(await house.run(f"{source}.V('1').outE().properties().key()")) == {"_ts", "_etag", "inVPartition"}
    await house.run(f"{source}.V('1').property('name','n').outE().property('w',1)")
    assert await house.run("g.V('1').properties().key()") == ["pk", "name"]
    assert await house.run("g.E().properties().key()") == ["w"]
    status, code, message = await house.refusal(source.replace("_ts", "name") + ".V()")
    assert (status, code) == (597, 1004) and "'name' is not a system property" in message


# Budgets, faults.


async def test_budgets_are_enforced() -> None:
    house = await GremlinHouse.open(throughput_mode="enforce")
    await house.graph()
    client = house.friend()
    for number in range(1000):
        [answer] = await house.answers(
            "g.addV('x').property('pk','a').property('id',i)", client, bindings={"i": str(number)}
        )
        if answer["status"]["code"] != 200:
            break
    status = answer["status"]
    assert (status["code"], status["attributes"]["x-ms-status-code"]) == (429, 429)
    assert re.fullmatch(r"00:00:0\d\.\d{7}", status["attributes"]["x-ms-retry-after-ms"])
    await house.close()


@pytest.mark.parametrize(
    "script",
    [
        "g.V().repeat(both()).until(has('id','nobody'))",
        "g.V().repeat(both()).until(has('id','nobody')).path()",
        "g.V().repeat(out()).emit().path().count()",
        "g.V().repeat(both().as('a')).times(100000).select(all,'a').count()",
    ],
)
async def test_walks_without_end_end(house: GremlinHouse, script: str) -> None:
    """By time, or by what they hold."""
    await _ring(house)
    status, code, _ = await house.refusal(script, evaluationTimeout=300)
    assert (status, code) in ((598, 1009), (500, 1003))


async def test_walks_without_end_are_stopped_by_the_budget() -> None:
    house = await GremlinHouse.open(throughput_mode="enforce")
    await house.graph(throughput_ru=1000)
    await _ring(house)
    status, code, _ = await house.refusal("g.V().repeat(both()).until(has('id','nobody'))")
    assert (status, code) == (429, 429)
    await house.close()


async def _ring(house: GremlinHouse, size: int = 12) -> None:
    """Every vertex to every other: the number of ways grows with every step."""
    for number in range(size):
        await house.run(f"g.addV('x').property('pk','{number % 3}').property('id','{number}')")
    await house.run("g.V().as('a').V().where(neq('a')).addE('to').from('a').count()")


async def test_faults(house: GremlinHouse) -> None:
    await house.run("g.addV('x').property('pk','a').property('id','1')")
    house.account.faults.add(FaultRule(operations=frozenset({"create"}), kind=Kind.RETRY_WITH, count=1))
    assert (await house.refusal("g.addV('x').property('pk','a')"))[1] == 449
    await house.run("g.addV('x').property('pk','a')")
    house.account.faults.add(FaultRule(operations=frozenset({"read"}), kind=Kind.UNAVAILABLE, count=1))
    assert (await house.refusal("g.V(['a','1'])"))[1] == 503
    house.account.faults.add(FaultRule(operations=frozenset({"query"}), kind=Kind.TIMED_OUT, count=2))
    assert (await house.refusal("g.V().out()"))[:2] == (598, 1009)
    assert (await house.refusal("g.V()"))[:2] == (598, 1009)
    house.account.faults.add(FaultRule(operations=frozenset({"read"}), kind=Kind.DROPPED, count=1))
    client = house.friend()
    assert await house.answers("g.V(['a','1'])", client) == []
    assert isinstance(client.line, Wire) and client.line.is_hung_up


# A node of a cluster.


async def test_a_node_that_may_have_been_deposed_proves_first_that_it_leads(
    house: GremlinHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traversals that write nothing answer without a transaction: the row shows that no other node leads."""
    house.account.topology = FakeTopology(may_answer_strongly=False)
    settled = 0

    async def settle() -> None:
        nonlocal settled
        settled += 1
        raise not_leader()

    monkeypatch.setattr(house.account.catalog, "settle", settle)
    for script in ("g.V('missing').drop()", "g.V().count()"):
        assert (await house.refusal(script))[:2] == (500, 503)
    assert settled == 2
    house.account.topology = FakeTopology()
    assert await house.run("g.V().count()") == [0]
    house.account.topology = following()
    assert (await house.refusal("g.V().count()"))[:2] == (500, 503)
    house.account.topology = FakeTopology(is_silent=True)
    assert (await house.refusal("g.V().count()"))[1] == 503
