"""Stored procedures as transactions: what they see, what is left of them, and what happens when others write, when they
are stopped, and when the process that they run in is killed in the middle.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from support.house import House
from support.limits import WithLimits
from support.portions import Amount

from armillary import limits
from armillary.account.container import Container
from armillary.account.items import items, procedures
from armillary.account.items.items import ItemOptions
from armillary.account.queries import item_pages
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.model.key_values import Key
from armillary.model.resources import ResourceType
from armillary.partition.check import check_partition
from armillary.scripts.jail import Begin, Ended, Jail, Perform

BULK = """function (documents) {
    var count = 0;
    next();
    function next() {
        if (count === documents.length) return __.response.setBody(count);
        if (!__.createDocument(__.getSelfLink(), documents[count], created)) __.response.setBody(count);
    }
    function created(error) { if (error) throw error; count++; next(); }
}"""
INCREMENT = """function (id) {
    __.readDocument(__.getAltLink() + "/docs/" + id, function (error, found) {
        if (error) throw error;
        found.n++;
        __.replaceDocument(found._self, found, function (error, made) { __.response.setBody(made.n); });
    });
}"""


class Interrupted(Jail):
    """A jail in which something happens before the operations of a script are done, counted from 1."""

    def __init__(self, happen: Callable[[int], Awaitable[None]]) -> None:
        super().__init__()
        self._happen = happen
        self.count = 0

    async def run(self, begin: Begin, perform: Perform) -> Ended:
        async def interrupted(asked: Any) -> Any:
            self.count += 1
            await self._happen(self.count)
            return await perform(asked)

        return await super().run(begin, interrupted)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House.open()
    yield house
    await house.close()


async def run(house: House, container: Container, body: str, *arguments: Any, key: str = "a") -> Any:
    name = f"p{abs(hash(body))}"
    record = house.account.catalog.find(ResourceType.PROCEDURE, container.record.rid, name)
    if record is None:
        definition = {"id": name, "body": body}
        try:
            record = await house.account.catalog.create(ResourceType.PROCEDURE, container.record, name, definition)
        except Failure:  # another run has made it meanwhile
            record = house.account.catalog.find(ResourceType.PROCEDURE, container.record.rid, name)
            assert record is not None
    answer = await procedures.execute(house.account, container, record, arguments, Key((key,)))
    return orjson.loads(answer.body) if answer.body else None


async def use(house: House, happen: Callable[[int], Awaitable[None]]) -> Interrupted:
    await house.account.jail.close()
    house.account.jail = jail = Interrupted(happen)
    return jail


async def stored(house: House, container: Container) -> list[dict[str, Any]]:
    page = await item_pages.read_feed(house.account, container, FeedOptions(page_items=1000))
    return [orjson.loads(row) for row in page.rows]


def documents(count: int, key: str = "a") -> list[dict[str, Any]]:
    return [{"id": str(number), "pk": key, "n": number} for number in range(count)]


async def test_a_path_that_others_number_meanwhile(house: House) -> None:
    """The path is new to the script's layer and is then given a number in the store: the script goes on by its own."""
    container = await house.container()
    body = """function () {
        __.createDocument(__.getSelfLink(), {id: "one", pk: "a", fresh: 7}, () => {
            __.createDocument(__.getSelfLink(), {id: "two", pk: "a", fresh: 7}, () => {
                __.queryDocuments(__.getSelfLink(), "SELECT VALUE c.id FROM c WHERE c.fresh = 7", (_, ids) => {
                    __.response.setBody(ids);
                });
            });
        });
    }"""

    async def happen(count: int) -> None:
        if count == 2:
            await house.put(container, {"id": "x", "pk": "b", "fresh": 7})

    await use(house, happen)
    assert await run(house, container, body) == ["one", "two"]


async def test_own_writes_are_seen(house: House) -> None:
    container = await house.container()
    await house.put(container, *documents(3), {"id": "x", "pk": "b", "n": 9})
    body = """function () {
        __.createDocument(__.getSelfLink(), {id: "new", pk: "a", n: 7});
        __.deleteDocument(__.getAltLink() + "/docs/0");
        __.queryDocuments(__.getSelfLink(), "SELECT VALUE c.id FROM c WHERE c.n > 0 ORDER BY c.n DESC", (_, ids) => {
            __.queryDocuments(__.getSelfLink(), "SELECT VALUE COUNT(1) FROM c", (error, counts) => {
                __.response.setBody([ids, counts]);
            });
        });
    }"""
    assert await run(house, container, body) == [["new", "2", "1"], [3]]
    assert sorted(each["id"] for each in await stored(house, container)) == ["1", "2", "new", "x"]


async def test_pages_go_on_inside_and_between_runs(house: House) -> None:
    container = await house.container()
    await house.put(container, *documents(7))
    body = """function (continuation, pageSize) {
        __.queryDocuments(__.getSelfLink(), "SELECT VALUE c.n FROM c", {continuation, pageSize}, (no, rows, told) => {
            if (no) throw no;
            __.response.setBody([rows, told.continuation || null]);
        });
    }"""
    found, continuation, pages = [], None, 0
    while True:
        rows, continuation = await run(house, container, body, continuation, 2)
        found += rows
        pages += 1
        if continuation is None:
            break
    assert (found, pages) == (list(range(7)), 4)


async def test_an_error_that_is_handled_leaves_nothing_of_its_operation(house: House) -> None:
    container = await house.container(uniqueKeyPolicy={"uniqueKeys": [{"paths": ["/n"]}]})
    body = """function () {
        __.createDocument(__.getSelfLink(), {id: "1", pk: "a", n: 1});
        __.createDocument(__.getSelfLink(), {id: "2", pk: "a", n: 1}, (error) => {
            __.createDocument(__.getSelfLink(), {id: "2", pk: "a", n: 2}, (again) => {
                __.response.setBody([error.number, again === undefined]);
            });
        });
    }"""
    assert await run(house, container, body) == [409, True]
    assert [(each["id"], each["n"]) for each in await stored(house, container)] == [("1", 1), ("2", 2)]
    for partition in container.partitions.values():
        assert await partition.read(lambda view: list(check_partition(view, container.schema, partition.range))) == []  # noqa: B023


@pytest.mark.parametrize(
    "end",
    ["throw new Error('no')", "getContext().abort()", "try { __.abort(new Error('x')); } catch (e) {}", "null.x"],
)
async def test_a_script_that_fails_leaves_nothing(house: House, end: str) -> None:
    container = await house.container()
    lsns = [partition.lsn for partition in container.partitions.values()]
    body = f"function () {{ __.createDocument(__.getSelfLink(), {{id: '1', pk: 'a'}}, () => {{ {end}; }}); }}"
    with pytest.raises(Failure) as caught:
        await run(house, container, body)
    assert caught.value.kind is Kind.SCRIPT_FAILED
    assert await stored(house, container) == []
    assert [partition.lsn for partition in container.partitions.values()] == lsns


async def test_others_that_write_to_the_key_are_not_overwritten(house: House) -> None:
    container = await house.container()
    await house.put(container, {"id": "c", "pk": "a", "n": 0})

    async def write(count: int) -> None:
        if count <= 4:  # twice before the reading, twice between reading and writing
            await house.put(container, {"id": "c", "pk": "a", "n": count * 100})

    await use(house, write)
    assert await run(house, container, INCREMENT, "c") == 401
    assert (await stored(house, container))[0]["n"] == 401


# What a script looks at before others write, what they do, and whether the script must run again.
LOOKS = [
    ("readDocument(__.getAltLink() + '/docs/0', then)", "other", False),
    ("readDocument(__.getAltLink() + '/docs/0', then)", "same", True),
    ("readDocument(__.getAltLink() + '/docs/0', then)", "renamed", True),
    ("readDocument(__.getAltLink() + '/docs/0', then)", "deleted", True),
    ("readDocument(__.getAltLink() + '/docs/new', then)", "other", False),
    ("readDocument(__.getAltLink() + '/docs/new', then)", "created", True),
    ("readDocument(__.getAltLink() + '/docs/named', then)", "renamed", True),
    ("readDocuments(__.getSelfLink(), then)", "other", True),
    ("queryDocuments(__.getSelfLink(), 'SELECT * FROM c WHERE c.id = \\'0\\'', then)", "other", True),
    ("filter(function (each) { return each.id === '0'; }, then)", "deleted", True),
]


@pytest.mark.parametrize(("look", "change", "is_again"), LOOKS)
async def test_only_what_was_looked_at_matters(house: House, look: str, change: str, is_again: bool) -> None:
    container = await house.container()
    await house.put(container, *documents(3))

    async def happen(count: int) -> None:
        if count != 2:
            return
        match change:
            case "other":
                await house.put(container, {"id": "1", "pk": "a", "n": 7})
            case "same":
                await house.put(container, {"id": "0", "pk": "a", "n": 7})
            case "created":
                await house.put(container, {"id": "new", "pk": "a"})
            case "deleted":
                await house.delete(container, {"id": "0", "pk": "a"})
            case "renamed":
                options = ItemOptions(key=Key(("a",)))
                await items.replace(container, "0", {"id": "named", "pk": "a"}, options, house.clock)

    jail = await use(house, happen)
    body = f"""function () {{
        __.{look};
        function then() {{ __.upsertDocument(__.getSelfLink(), {{id: "mine", pk: "a"}}); }}
    }}"""
    await run(house, container, body)
    assert jail.count == (4 if is_again else 2)
    assert "mine" in [each["id"] for each in await stored(house, container)]


async def test_scripts_that_get_in_each_others_way_take_turns(house: House) -> None:
    container = await house.container()
    await house.put(container, {"id": "c", "pk": "a", "n": 0})
    found = await asyncio.gather(*[run(house, container, INCREMENT, "c") for _ in range(40)])
    assert sorted(found) == list(range(1, 41))
    assert not house.account.script_queue.is_taken(container.record.rid + container.effective_key(Key(("a",))))


async def test_others_that_write_elsewhere_do_not_matter(house: House) -> None:
    container = await house.container()
    await house.put(container, {"id": "c", "pk": "a", "n": 0})
    runs = []

    async def write(count: int) -> None:
        runs.append(count)
        await house.put(container, {"id": str(count), "pk": "b", f"path{count}": 1})

    await use(house, write)
    body = INCREMENT.replace("__.response.setBody(made.n)", "__.response.setBody(made)")
    answered = await run(house, container, body, "c")
    assert runs == [1, 2]
    assert answered == orjson.loads((await items.read(container, "c", ItemOptions(key=Key(("a",))))).payload or b"")


async def test_who_never_gets_through_is_told_to_come_again(house: House) -> None:
    container = await house.container()
    await house.put(container, {"id": "c", "pk": "a", "n": 0})

    async def write(count: int) -> None:
        await house.put(container, {"id": "c", "pk": "a", "n": count})

    await use(house, write)
    with pytest.raises(Failure) as caught:
        await run(house, container, INCREMENT, "c")
    assert caught.value.kind is Kind.RETRY_WITH


async def test_increments_at_the_same_time(house: House) -> None:
    container = await house.container()
    await house.put(container, {"id": "c", "pk": "a", "n": 0})
    await run(house, container, INCREMENT, "c")
    tries = [run(house, container, INCREMENT, "c") for _ in range(12)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    done = [each for each in outcomes if not isinstance(each, BaseException)]
    assert all(each.kind is Kind.RETRY_WITH for each in outcomes if isinstance(each, Failure))
    assert sorted(done) == list(range(2, len(done) + 2))
    assert (await stored(house, container))[0]["n"] == len(done) + 1


async def test_kills_in_the_middle_leave_no_trace(house: House, seed: int, amount: Amount) -> None:
    """Many of them, four at the same time: neither items nor index nor feed know of any."""
    container = await house.container()
    await house.put(container, {"id": "kept", "pk": "a", "n": 1})
    before = await state(container)
    await house.account.jail.close()
    house.account.jail = killing = Killing(random.Random(seed))
    turns = amount(50)
    for turn in range(turns):
        tries = [run(house, container, BULK, documents(12, key), key=key) for key in "abcd"]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert [getattr(each, "kind", each) for each in outcomes] == [Kind.SCRIPT_FAILED] * 4
        if turn % 10 == 0:
            assert await state(container) == before
    assert killing.kills == 4 * turns
    assert await state(container) == before
    for partition in container.partitions.values():
        assert await partition.read(lambda view: list(check_partition(view, container.schema, partition.range))) == []  # noqa: B023
    house.account.jail = Jail()
    await killing.close()
    assert await run(house, container, BULK, documents(12)) == 12


class Killing(Jail):
    """A jail whose scripts wait for each other in the middle; when all four places are taken, all are killed."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self._waiting = 0
        self._killed = asyncio.Event()
        self.kills = 0

    async def run(self, begin: Begin, perform: Perform) -> Ended:
        count, at = 0, self._dice.randrange(1, 12)

        async def interrupted(asked: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                await self._wait()
            return await perform(asked)

        return await super().run(begin, interrupted)

    async def _wait(self) -> None:
        self._waiting += 1
        if self._waiting < limits.SCRIPT_CELLS_MAX:
            await self._killed.wait()
            return
        for process_id in self.process_ids:
            os.kill(process_id, signal.SIGKILL)
            self.kills += 1
        killed, self._killed, self._waiting = self._killed, asyncio.Event(), 0
        killed.set()


async def state(container: Container) -> Any:
    """All that is stored, key by key."""
    return [
        await partition.read(lambda view: list(view.scan(b"", b"\xff"))) for partition in container.partitions.values()
    ]


async def test_near_the_bound_nothing_is_accepted(house: House, with_limits: WithLimits) -> None:
    container = await house.container()
    with_limits(SCRIPT_OPERATIONS_MAX=5)
    assert await run(house, container, BULK, documents(12)) == 5
    assert len(await stored(house, container)) == 5
    with_limits(SCRIPT_ACCEPTED_SECONDS=0.0)
    assert await run(house, container, BULK, documents(12)) == 0


async def test_the_budget_of_units_ends_a_run_too(house: House) -> None:
    """Where throughput is enforced, a run has what its partition gets in five seconds; others go on from there."""
    container = await house.container()
    await house.account.budgets.set_mode(container, "enforce")
    left, runs = documents(600), 0
    while left:
        house.clock.advance(20.0)
        count = await run(house, container, BULK, left)
        assert 0 < count < 400
        left, runs = left[count:], runs + 1
    assert runs >= 2
    house.clock.advance(20.0)
    assert len(await stored(house, container)) == 600


async def test_what_is_queued_counts_before_it_is_paid(house: House, with_limits: WithLimits) -> None:
    with_limits(SCRIPT_UNITS_MAX_RU=100.0)
    container = await house.container()
    body = """function () {
        var accepted = 0;
        for (var i = 0; i < 100; i++)
            if (__.createDocument(__.getSelfLink(), {id: String(i), pk: "a"})) accepted++;
        __.response.setBody(accepted);
    }"""
    assert await run(house, container, body) == 20
    assert len(await stored(house, container)) == 20


async def test_promises(house: House) -> None:
    container = await house.container()
    body = """async function () {
        const create = (item) => new Promise((done, failed) => {
            __.createDocument(__.getSelfLink(), item, (error, made) => (error ? failed(error) : done(made)));
        });
        await create({id: "1", pk: "a"});
        try { await create({id: "1", pk: "a"}); } catch (error) { __.response.setBody(error.number); }
    }"""
    assert await run(house, container, body) == 409


@pytest.mark.parametrize(
    "call",
    [
        "createDocument('dbs/x/colls/y', {id: '1', pk: 'a'})",
        "createDocument(__.getSelfLink(), {id: '1', pk: 'a'}, {unknown: 1})",
        "readDocument(__.getSelfLink())",
        "readDocument('dbs/x/colls/y/docs/1')",
        "createDocument(__.getSelfLink(), [1])",
        "queryDocuments(__.getSelfLink(), 'SELEKT')",
        "queryDocuments(__.getSelfLink(), {query: 1})",
        "readDocuments(__.getSelfLink(), {pageSize: 1.5})",
        "readDocuments(__.getSelfLink(), {continuation: 'x'})",
        "createAttachment('x', {})",
    ],
)
async def test_refused(house: House, call: str) -> None:
    container = await house.container()
    with pytest.raises(Failure) as caught:
        await run(house, container, f"function () {{ __.{call}; }}")
    assert caught.value.kind is Kind.SCRIPT_FAILED
    assert await stored(house, container) == []


@pytest.mark.parametrize("what", ["split", "merge"])
async def test_a_partition_that_is_reshaped_while_a_script_runs(house: House, what: str) -> None:
    container = await house.container()
    reshaper = house.account.reshaper
    await house.put(container, *[{"id": f"x{number}", "pk": str(number)} for number in range(50)])
    if what == "merge":
        await reshaper.finished(await reshaper.split(container, 0))
    before = dict(container.partitions)

    async def reshape(count: int) -> None:
        if count == 6:
            if what == "split":
                await reshaper.finished(await reshaper.split(container, 0))
            else:
                await reshaper.finished(await reshaper.merge(container, *sorted(container.partitions)))

    await use(house, reshape)
    assert await run(house, container, BULK, documents(12)) == 12
    assert container.partitions.keys() != before.keys()
    found = [each["id"] for each in await stored(house, container) if each["pk"] == "a"]
    assert found == [str(number) for number in range(12)]


async def test_pages_go_on_in_another_run_after_items_that_the_first_one_wrote(house: House) -> None:
    """Their numbers were others while it ran. Items may come twice; none is left out."""
    container = await house.container()
    await house.put(container, *[{"id": f"before {n}", "pk": "a"} for n in range(2)])
    write = """function (seen) {
        for (var n = 0; n < 6; n++) __.createDocument(__.getSelfLink(), {id: "own " + n, pk: "a"});
        next(undefined);
        function next(continuation) {
            __.readDocuments(__.getSelfLink(), {pageSize: 1, continuation: continuation}, function (error, page, told) {
                seen.push(page[0].id);
                if (seen.length < 5) next(told.continuation);
                else __.response.setBody([seen, told.continuation]);
            });
        }
    }"""
    seen, continuation = await run(house, container, write, [])
    assert seen == ["before 0", "before 1", "own 0", "own 1", "own 2"]
    read = """function (continuation) {
        __.readDocuments(__.getSelfLink(), {continuation: continuation}, function (error, page) {
            __.response.setBody(page.map(function (each) { return each.id; }));
        });
    }"""
    assert {f"own {n}" for n in range(3, 6)} <= set(await run(house, container, read, continuation))


async def test_logs_tell_the_etags_that_items_have(house: House) -> None:
    container = await house.container()
    body = """function () {
        __.createDocument(__.getSelfLink(), {id: "1", pk: "a"}, function (error, made) { console.log(made._etag); });
    }"""
    record = await house.account.catalog.create(
        ResourceType.PROCEDURE, container.record, "log", {"id": "log", "body": body}
    )
    answer = await procedures.execute(house.account, container, record, [], Key(("a",)))
    item = await items.read(container, "1", ItemOptions(key=Key(("a",))))
    assert answer.log == item.etag


@pytest.mark.parametrize(
    ("call", "trips"),
    [
        ("readDocument(__.getAltLink() + '/docs/big', then)", 4),
        ("readDocuments(__.getSelfLink(), then)", 4),
        ("upsertDocument(__.getSelfLink(), {id: 'i' + i, pk: 'a', s: 'x'.repeat(2e4)}, then)", 5),
    ],
)
async def test_much_at_once_goes_in_parts(house: House, with_limits: WithLimits, call: str, trips: int) -> None:
    """Neither side is handed more than it has memory for."""
    with_limits(SCRIPT_ANSWER_BYTES=100_000, SCRIPT_BATCH_CHARACTERS=100_000)

    async def happen(count: int) -> None: ...

    jail = await use(house, happen)
    container = await house.container()
    await house.put(container, {"id": "big", "pk": "a", "s": "x" * 20_000})
    body = f"""function () {{
        var count = 0;
        for (var i = 0; i < 20; i++) __.{call};
        function then(error) {{ if (error) throw error; __.response.setBody(++count); }}
    }}"""
    assert await run(house, container, body) == 20
    assert jail.count == trips


async def test_a_document_that_cannot_be_is_refused_at_once(house: House) -> None:
    body = """function () {
        try { __.createDocument(__.getSelfLink(), {pk: "a", s: "x".repeat(9e6)}); }
        catch (error) { __.response.setBody(error.number); }
    }"""
    assert await run(house, await house.container(), body) == 413
