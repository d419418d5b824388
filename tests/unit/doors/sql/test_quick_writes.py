"""The fast path of creates and upserts against the general path: random requests to two accounts with the same history,
one of which is asked by the general path alone. Answers are compared byte for byte, and so is what was counted and what
was stored. Then what may come between a write and its answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.divided import ALLOWED, Spread, divide
from support.topology import FRESH, FakeTopology, following
from support.two_paths import (
    CONTAINERS,
    IDS,
    KEYS,
    OPTIONAL,
    House,
    disturb,
    key_text,
    pass_time,
    shown,
    signed_headers,
    twice,
)

from armillary import limits
from armillary.account.faults import FaultRule
from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.model.binary_json.binary_writer import encode
from armillary.model.key_values import Key
from armillary.net.http import Later, Request, Response
from armillary.partition.operations import Operation
from armillary.partition.partition import Partition
from armillary.partition.writing.plain_writes import PlainWrites
from armillary.storage.disk_errors import unknown_outcome
from armillary.storage.engine import Engine, View
from armillary.storage.replication.group_commit import log_is_late, not_leader
from armillary.storage.rocks import RocksEngine

_CONTAINERS: dict[str, dict[str, Any]] = {
    **CONTAINERS,
    "unique": {
        "partitionKey": {"paths": ["/pk"], "version": 2},
        "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/number"]}]},
    },
    "unindexed": {"partitionKey": {"paths": ["/pk"]}, "indexingPolicy": {"indexingMode": "none", "automatic": False}},
}
_OPTIONAL: dict[bytes, tuple[bytes, ...]] = {
    **OPTIONAL,
    b"content-type": (b"application/json", b"application/json; charset=utf-8", b"application/query+json", b""),
    b"x-ms-indexing-directive": (b"Exclude", b"Include", b"2", b"x"),
    b"x-ms-documentdb-pre-trigger-include": (b"missing", b""),
    b"x-ms-documentdb-isquery": (b"False", b"True"),
    b"x-ms-cosmos-is-batch-request": (b"True", b"no"),
    b"x-ms-documentdb-disable-ru-per-minute-usage": (b"True", b"False"),
}
_BODIES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"id":"\xff"}',
    b'{"id":"1"} ',
    b'\xef\xbb\xbf{"id":"1"}',
    encode({"id": "1"}, 10),
)


@pytest.fixture(params=["Session", "Strong", "Eventual"])
def settings(request: pytest.FixtureRequest) -> AccountSettings:
    return AccountSettings(consistency=request.param, logical_partition_bytes_max=27_000)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[RocksEngine]:
    opened = await RocksEngine.open(tmp_path, "relaxed", reserve_bytes=0)
    yield opened
    await opened.close()


async def test_both_paths_answer_count_and_store_alike(
    settings: AccountSettings,
    engine: RocksEngine,
    seed: int,
    amount: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain: list[int] = []  # the numbers of keys of transactions that needed no overlay

    def write(self: PlainWrites, operation: Operation, get: Any, prefix: bytes) -> Any:
        prepared = general(self, operation, get, prefix)
        plain.append(len(prepared[1]) if prepared is not None else 0)
        return prepared

    general = PlainWrites.write
    monkeypatch.setattr(PlainWrites, "write", write)
    statuses = await _compare(settings, random.Random(seed), count := amount(17_000), engine=engine)
    assert statuses >= {200, 201, 400, 401, 403, 409, 429}
    assert len([each for each in plain if each]) > count // 20


@pytest.mark.parametrize(
    "topology",
    [FakeTopology(), FakeTopology(may_answer_strongly=False), following(staleness=FRESH), following(is_silent=True)],
    ids=["leader", "without its lease", "follower", "silent"],
)
async def test_on_nodes_of_a_cluster_too(
    topology: FakeTopology, settings: AccountSettings, seed: int, amount: Callable[[int], int]
) -> None:
    await _compare(settings, random.Random(seed), amount(3_000), topology, is_taken=topology.may_answer_strongly)


async def test_of_other_processes_too(
    settings: AccountSettings, seed: int, amount: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    divide(monkeypatch, Spread(places=2, has_own=True, allowed=ALLOWED))
    await _compare(settings, random.Random(seed), amount(3_000))


async def _compare(
    settings: AccountSettings,
    dice: random.Random,
    count: int,
    topology: FakeTopology | None = None,
    *,
    engine: Engine | None = None,
    is_taken: bool = True,
) -> set[int]:
    """Returns the statuses of the answers."""
    quick, general = await House.make(settings, _CONTAINERS, engine), await House.make(settings, _CONTAINERS)
    quick.account.topology = general.account.topology = topology
    taken, statuses = 0, set()
    for _ in range(count):
        pass_time(dice, quick, general)
        requests = _made(dice, quick.clock)
        answer = await _quick_answer(quick, requests[0])
        taken += answer is not None
        if answer is None:
            answer = await quick.door.answer(requests[0])
        expected = await general.door.answer(requests[1])
        statuses.add(expected.status)
        assert shown(answer) == shown(expected), (requests[0], requests[0].headers)
        assert answer.kind is expected.kind
        assert requests[0].operation == requests[1].operation
        assert requests[0].is_known == requests[1].is_known
        assert quick.counted == general.counted
    assert taken > count // 5 if is_taken else not taken
    assert await _stored(quick) == await _stored(general)
    await quick.account.close()
    await general.account.close()
    return statuses


def _begun(house: House, request: Request) -> asyncio.Future[Any] | Response | None:
    """The request on the fast path: what it will be answered, or was; None: it is left to the general path."""
    answer = house.door.answer_at_once(request)
    if asyncio.iscoroutine(answer):
        if b"x-ms-documentdb-isquery" in request.headers:  # test_quick_queries.py is about these
            answer.close()
            return None
        return asyncio.ensure_future(answer)  # of another process
    if not isinstance(answer, Later):
        assert answer is None or isinstance(answer, Response)
        return answer
    given: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.give = given.set_result  # fails if it is given twice
    return given


async def _quick_answer(house: House, request: Request) -> Response | None:
    begun = _begun(house, request)
    found = await begun if isinstance(begun, asyncio.Future) else begun
    assert found is None or isinstance(found, Response), found
    return found


async def _stored(house: House) -> list[list[tuple[bytes, bytes]]]:
    def everything(view: View) -> list[tuple[bytes, bytes]]:
        return list(view.scan(b"", b"\xff" * 32))

    return [
        await partition.read(everything)
        for container in house.account.containers
        for partition in container.partitions.values()
    ]


def _made(dice: random.Random, clock: VirtualClock) -> list[Request]:
    """A write, in most cases as a client sends it, for both houses."""
    container = dice.choice((*_CONTAINERS, *["plain", "old", "deep"] * 2, "gone"))
    target = f"/dbs/db/colls/{container}/docs".encode()
    item = _item(dice)
    headers = signed_headers(dice, clock, "post", f"dbs/db/colls/{container}")
    if container != "fixed":
        key = dice.choice((*[item.get("pk")] * 30, *KEYS))
        headers[b"x-ms-documentdb-partitionkey"] = key_text(container, key, str(item.get("id"))).encode(
            "latin-1", "replace"
        )
    if dice.randrange(3) == 0:
        headers[b"x-ms-documentdb-is-upsert"] = dice.choice((b"True", b"True", b"true", b"False", b"TRUE", b"x"))
    disturb(dice, headers, _OPTIONAL)
    if not dice.randrange(40):
        target = dice.choice((target + b"/", b"/" + target, target + b"?x=1", b"/dbs/db/colls/plain/docs/1", b"/"))
    body = dice.choice(_BODIES) if not dice.randrange(40) else orjson.dumps(item)
    return twice("POST", target, headers, body, not dice.randrange(9))


def _item(dice: random.Random) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": dice.choice((*IDS, *[f"new {dice.randrange(10**6)}"] * 5)),
        "pk": dice.choice(KEYS),
        "number": dice.randrange(20),
        "filler": "z" * dice.choice((0, 10, 900, 2000)),
    }
    if not dice.randrange(5):
        item["inner"] = {"list": [1, "two", None, {"x": dice.random()}], "empty": {}, "none": []}
    if not dice.randrange(10):
        item["ttl"] = dice.choice((5, 50, -1, 10.0, 0, "x", None))
    if not dice.randrange(20):
        item["id"] = dice.choice(("", 5, None, "a/b", "a#b", "y" * 300, "y" * 1100, "q?\t"))
    if not dice.randrange(20):
        del item[dice.choice(("id", "pk"))]
    if not dice.randrange(20):
        item |= {"_ts": 1, "_etag": "mine", "_rid": "x", "_other": 1}
    if not dice.randrange(30):
        item["filler"] = "z" * dice.choice((limits.WORK_AT_ONCE_BYTES, limits.ITEM_BYTES_MAX))
    if not dice.randrange(30):
        deep: Any = 1
        for _ in range(dice.choice((5, 126, 127, 200))):
            deep = [deep]
        item["deep"] = deep
    return item


# What may come between a write and its answer.


@pytest.fixture
async def house() -> AsyncIterator[House]:
    made = await House.make(AccountSettings(), {"plain": CONTAINERS["plain"]})
    assert await _created(made, "first") is not None  # names and dates are known from now on
    yield made
    await made.account.close()


def _request(house: House, item_id: str, **headers: str) -> Request:
    dice = random.Random(1)
    signed = signed_headers(dice, house.clock, "post", "dbs/db/colls/plain")
    signed |= {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return Request("POST", b"/dbs/db/colls/plain/docs", signed, orjson.dumps({"id": item_id, "pk": "a"}), False, "peer")


async def _created(house: House, item_id: str) -> Response | None:
    """A create by the fast path; if that does not take it, by the general path."""
    return await _quick_answer(house, _request(house, item_id)) or await house.door.answer(_request(house, item_id))


def _partition(house: House) -> Partition:
    """That these items are in."""
    container = house.account.container("db", "plain")
    return container.partition_for(container.effective_key(Key(("a",))))


async def test_creates_and_upserts_take_the_fast_path(house: House) -> None:
    for headers, status in (({}, 201), ({"x_ms_documentdb_is_upsert": "True"}, 200), ({}, 409)):
        answer = await _quick_answer(house, _request(house, "new", **headers))
        assert answer is not None
        assert answer.status == status


async def test_rules_of_faults_captures_and_a_read_only_account_are_for_the_general_path(house: House) -> None:
    house.account.faults.add(FaultRule(operations=frozenset(["create"]), kind=Kind.THROTTLED))
    assert house.door.answer_at_once(_request(house, "new")) is None
    assert (await house.door.answer(_request(house, "new"))).status == 429
    house.account.faults.clear()
    house.account.is_read_only = True
    assert house.door.answer_at_once(_request(house, "new")) is None
    house.account.is_read_only = False
    house.account.captures.is_on = True
    assert house.door.answer_at_once(_request(house, "new")) is None
    house.account.captures.is_on = False
    assert _begun(house, _request(house, "new")) is not None


async def test_a_write_that_meets_a_cut_over_is_given_back_and_done_once(house: House) -> None:
    partition, before = _partition(house), house.counted
    item_count = partition.head.item_count
    begun = _begun(house, _request(house, "new"))
    assert isinstance(begun, asyncio.Future)
    partition.hold()
    assert await begun is None
    assert house.counted == before
    assert house.door.answer_at_once(_request(house, "new")) is None
    answering = asyncio.ensure_future(house.door.answer(_request(house, "new")))
    await asyncio.sleep(0)
    partition.release()
    assert (await answering).status == 201
    assert _partition(house).head.item_count == item_count + 1


class Silence:
    """An engine that answers when the test says."""

    def __init__(self, house: House) -> None:
        self.partition = _partition(house)
        self.partition._store.deliver = self._deliver  # type: ignore[method-assign, assignment]
        self.receiver: Any = None

    def _deliver(self, fn: Any, receiver: Any, quick: Any) -> None:
        self.receiver = receiver


@pytest.mark.parametrize(
    ("failure", "status"), [(log_is_late(), 503), (unknown_outcome(log_is_late()), 503), (not_leader(), None)]
)
async def test_failures_of_storage_are_told_unless_nothing_was_stored(
    house: House, failure: Failure, status: int | None
) -> None:
    silence, before = Silence(house), house.counted
    begun = _begun(house, _request(house, "new"))
    assert isinstance(begun, asyncio.Future)
    silence.receiver.set_exception(failure)
    answer = await begun
    assert (answer and answer.status) == status
    assert (house.counted == before) == (answer is None)
    # A log that was late may still confirm the group: the engine asks before it answers again.
    assert silence.receiver.done()


async def test_a_defect_is_told_and_the_deposit_given_back(house: House) -> None:
    silence = Silence(house)
    budget = silence.partition.meter.budget
    assert budget is not None
    spent = budget.spent
    begun = _begun(house, _request(house, "new"))
    error = RuntimeError("broken on purpose")
    silence.receiver.set_exception(error)
    assert isinstance(begun, asyncio.Future)
    assert await begun is error
    assert budget.spent == spent
    begun = _begun(house, _request(house, "new"))
    silence.receiver.set_result((None, None))  # not what a transaction returns
    assert isinstance(begun, asyncio.Future)
    assert isinstance(await begun, AttributeError)


async def test_an_engine_that_is_closed_takes_nothing(house: House) -> None:
    before = house.counted
    await house.account.engine.close()
    assert house.door.answer_at_once(_request(house, "new")) is None
    assert house.counted == before
