"""The object model as scripts see it: operations and their options, queries in JavaScript, request and response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio
from support.house import House

from armillary.account.container import Container
from armillary.account.items import procedures
from armillary.errors import Failure, Kind
from armillary.model.key_values import Key
from armillary.model.resources import ResourceType

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house() -> AsyncIterator[House]:
    house = await House.open()
    yield house
    await house.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seven(house: House) -> Container:
    """A house with seven documents, which no test changes."""
    container = await house.container()
    tags = [["x", ["y"]], ["z"], [], ["x"], None, ["q", "r"], ["s"]]
    await house.put(container, *[{"id": str(n), "pk": "a", "n": n, "tags": tags[n]} for n in range(7)])
    return container


async def run(house: House, container: Container, body: str, *arguments: Any) -> Any:
    name = f"p{abs(hash(body))}"
    record = house.account.catalog.find(ResourceType.PROCEDURE, container.record.rid, name)
    if record is None:
        definition = {"id": name, "body": body}
        record = await house.account.catalog.create(ResourceType.PROCEDURE, container.record, name, definition)
    answer = await procedures.execute(house.account, container, record, arguments, Key(("a",)))
    return orjson.loads(answer.body) if answer.body else None


QUERIES = [
    ("__.filter(d => d.n > 4)", [5, 6]),
    ("__.filter(getContext().getCollection(), d => d.n > 4)", [5, 6]),
    ("getContext().getCollection().filter(d => d.n > 5)", [6]),
    ("__.filter(d => d.n > 1, {pageSize: 2})", [2, 3]),
    ("__.filter(d => d.n >= 5, {pageSize: 1})", [5]),
    ("__.map(d => ({n: d.n * 2}), {pageSize: 3})", [0, 2, 4]),
    ("__.chain().filter(d => d.n < 3).sortByDescending(d => d.n).value()", [2, 1, 0]),
    ("__.chain().sortBy(d => -d.n).map(d => ({n: d.n})).value({pageSize: 2})", [6, 5]),
    ("__.sortBy(d => d.tags === null ? null : d.tags[0] ? d.tags[0] : undefined, {pageSize: 4})", [2, 4, 5, 6]),
    ("__.sortBy(d => d.n % 2, {pageSize: -1})", [0, 2, 4, 6, 1, 3, 5]),
    ("__.chain().filter(d => d.n === 1).map(d => [{n: 1}, [{n: 2}]]).flatten().value()", [1, 2]),
    ("__.chain().filter(d => d.n === 1).unwind(d => [1, 2], (d, i) => ({n: d.n + i})).value()", [2, 3]),
    (
        "__.chain().map(d => ({n: d.n, t: d.tags})).unwind(d => d.t).filter(t => t === 'x').map(t => ({n: 1})).value()",
        [1, 1],
    ),
    ("__.unwind(d => d.tags, (d, t) => ({n: d.n}))", [0, 0, 1, 3, 5, 5, 6]),
    ("__.filter(d => d.n === 3, (e, rows) => __.response.setBody(rows.concat(rows)))", [3, 3]),
    ("__.chain().filter(d => d.n === 3).value((e, rows) => __.response.setBody(rows), {pageSize: 1})", [3]),
    ("__.chain().value({pageSize: -1})", [0, 1, 2, 3, 4, 5, 6]),
    ("__.chain().value({pageSize: 0, continuation: null})", [0, 1, 2, 3, 4, 5, 6]),
]


@pytest.mark.parametrize(("body", "expected"), QUERIES)
async def test_queries(house: House, seven: Container, body: str, expected: list[int]) -> None:
    rows = await run(house, seven, f"function () {{ if (!{body}.isAccepted) throw 1; }}")
    assert [row["n"] for row in rows] == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("__.pluck('n')", [0, 1, 2, 3, 4, 5, 6]),
        ("__.pluck('none')", []),
        ("__.chain().pluck('tags').flatten().value()", ["x", "y", "z", "x", None, "q", "r", "s"]),
        ("__.chain().pluck('tags').flatten(true).value({pageSize: 3})", ["x", ["y"], "z"]),
        ("__.unwind(d => d.tags)", ["x", ["y"], "z", "x", "q", "r", "s"]),
        ("__.flatten({pageSize: 1}, (e, rows) => __.response.setBody(rows.length))", 1),
        ("__.flatten(true, (e, rows) => __.response.setBody(rows.length))", 7),
    ],
)
async def test_values_of_queries(house: House, seven: Container, body: str, expected: Any) -> None:
    assert await run(house, seven, f"function () {{ {body}; }}") == expected


@pytest.mark.parametrize(
    "chain",
    [
        "filter(d => d.n !== 3)",
        "filter(d => d.n > 4)",
        "sortByDescending(d => d.n)",
        "filter(d => d.n % 2).sortBy(d => -d.n).map(d => d.n)",
        "unwind(d => [d.n, d.n])",
    ],
)
@pytest.mark.parametrize("page_size", [1, 2, 3, 7])
async def test_queries_go_on(house: House, seven: Container, chain: str, page_size: int) -> None:
    whole = await run(house, seven, f"function () {{ __.chain().{chain}.value({{pageSize: -1}}); }}")
    body = f"""function (continuation, pageSize) {{
        __.chain().{chain}.value({{continuation, pageSize}}, (error, rows, told) => {{
            if (error) throw error;
            __.response.setBody([rows, told.continuation]);
        }});
    }}"""
    found, continuation = [], None
    while True:
        rows, continuation = await run(house, seven, body, continuation, page_size)
        assert 0 < len(rows) <= max(2, page_size)  # what one document makes is not divided
        found += rows
        if continuation is None:
            break
    assert found == whole


@pytest.mark.parametrize(
    "call",
    [
        "__.filter(1)",
        "__.chain().filter(d => d, {pageSize: 1})",
        "__.chain().map(d => d, () => 1)",
        "__.pluck('')",
        "__.unwind([])",
        "__.chain().value({pageSize: -2})",
        "__.chain().value({continuation: 'x'})",
        "__.chain().value({unknown: 1})",
        "__.spatial.distance({}, {})",
        "__.response.setValue('x-ms-new', 1)",
        "__.request.getValue('none')",
        "__.request.setBody({})",
        "__.response.getMaxResourceQuota()",
        "createDocument()",
    ],
)
async def test_refused(house: House, seven: Container, call: str) -> None:
    with pytest.raises(Failure) as caught:
        await run(house, seven, f"function () {{ {call}; }}")
    assert caught.value.kind is Kind.SCRIPT_FAILED


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("'x'", "Invalid document link"),
        ("5", "Invalid document link"),
        ("__.getAltLink()", "Invalid document link"),
        ("__.getSelfLink() + 'sprocs/1'", "Invalid document link"),
        ("'dbs/other/colls/c/docs/1'", "is not of it"),
        ("__.getAltLink() + 'c/docs/1'", "is not of it"),
    ],
)
async def test_wrong_links_are_the_errors_of_whoever_gives_them(
    house: House, seven: Container, link: str, reason: str
) -> None:
    """Not the callback's."""
    body = f"""function () {{
        try {{ __.readDocument({link}, () => __.response.setBody("called")); }}
        catch (error) {{ __.response.setBody([error.number, error.message]); }}
    }}"""
    number, message = await run(house, seven, body)
    assert number == 400
    assert reason in message


@pytest.mark.parametrize(
    "body",
    [
        "function () { __.response.setBody(1); }; // a remark",
        "function () { __.response.setBody(1); };;\n/* the end */\n",
        "// a remark\nfunction named() { __.response.setBody(1); }; // another",
        "() => __.response.setBody(1); // a remark",
        "async function () { __.response.setBody(1); }; // a remark",
    ],
)
async def test_remarks_before_and_behind(house: House, seven: Container, body: str) -> None:
    assert await run(house, seven, body) == 1


@pytest.mark.parametrize("body", ["function () { This is not JavaScript! }", "function ({", "5", "'x'"])
async def test_what_does_not_compile_has_a_sub_status_of_its_own(house: House, seven: Container, body: str) -> None:
    with pytest.raises(Failure, match="while compiling Javascript") as caught:
        await run(house, seven, body)
    assert caught.value.details["sub_status"] == 0xFFFF


async def test_an_error_of_a_predicate_goes_to_the_callback(house: House, seven: Container) -> None:
    body = """function () {
        __.filter(d => d.none.none, (error, rows) => __.response.setBody([error.name, rows === void 0]));
    }"""
    assert await run(house, seven, body) == ["TypeError", True]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("__.response.setBody('a'); __.response.appendBody('b'); __.response.appendBody({c: 1})", 'ab{"c":1}'),
        ("__.response.setBody(1); __.response.appendBody(2)", 3),
        ("__.response.appendBody('x')", "x"),
        ("for (var i = 0; i < 3; i++) __.response.appendValue('Body', i)", "012"),
        ("__.response.setValue('Body', [1]); __.response.setBody(__.response.getValue('body').concat(2))", [1, 2]),
        ("__.response.appendValue('Body', 'y')", "y"),
        ("__.response.setBody(ErrorCodes.RetryWith)", 449),
        (
            "__.response.setBody([__.getSelfLink() === getContext().getCollection().getSelfLink(), __.getAltLink()])",
            None,
        ),
        ("try { __.response.setBody('x'.repeat(5e6)); } catch (e) { __.response.setBody(e.number); }", 413),
        ("try { throw new Error(403, 'no'); } catch (e) { __.response.setBody([e.number, e.message]); }", [403, "no"]),
        (
            "class E extends Error {} ; __.response.setBody([new E('x') instanceof Error, new E('x').message])",
            [True, "x"],
        ),
    ],
)
async def test_request_and_response(house: House, seven: Container, body: str, expected: Any) -> None:
    answered = await run(house, seven, f"function () {{ {body}; }}")
    assert answered == (expected if expected is not None else [True, seven.link])


async def test_callbacks_are_told_what_was_done(house: House) -> None:
    container = await house.container(500)
    body = """function () {
        var told = [], link = __.getAltLink() + "/docs/1";
        __.createDocument(__.getSelfLink(), JSON.stringify({id: "1", pk: "a"}), (e, d, o) => {
            told.push(o.statusCode);
            __.upsertDocument(__.getSelfLink(), {id: "1", pk: "a", n: 1}, {etag: d._etag}, (e, d, o) => {
                told.push(o.statusCode);
                __.readDocument(link, {ifNoneMatch: d._etag}, (e, none, o) => told.push(none === void 0, o.statusCode));
                __.upsertDocument(__.getSelfLink(), {id: "1", pk: "a"}, {etag: '"other"'}, (e) => told.push(e.number));
                __.readDocument(link + "x", (e, d) => told.push(e.number, d === undefined, e.body === e.message));
                __.createDocument(__.getSelfLink(), {id: null, pk: "a"}, (e, d) => told.push(d.id.length));
                __.deleteDocument(link, (e, o) => { told.push(o.statusCode); __.response.setBody(told); });
            });
        });
    }"""
    assert await run(house, container, body) == [201, 200, True, 304, 412, 404, True, True, 36, 204]


async def test_promises_and_async_functions(house: House, seven: Container) -> None:
    body = """async function () {
        const query = (text) => new Promise((done, failed) => {
            __.queryDocuments(__.getSelfLink(), text, (error, rows) => (error ? failed(error) : done(rows)));
        });
        const texts = ["SELECT VALUE c.n FROM c WHERE c.n > 4", "SELECT VALUE COUNT(1) FROM c"];
        const [some, all] = await Promise.all(texts.map(query));
        let refused;
        try { await query("SELEKT"); } catch (error) { refused = error.number; }
        for await (const n of (async function* () { yield 1; yield 2; })()) some.push(n);
        __.response.setBody({some, all, refused});
    }"""
    assert await run(house, seven, body) == {"some": [5, 6, 1, 2], "all": [7], "refused": 400}


async def test_a_rejected_promise_fails_and_abort_ends_it_anywhere(house: House, seven: Container) -> None:
    for body in (
        "async function () { await null; throw new Error(499, 'no'); }",
        "function () { Promise.resolve().then(() => getContext().abort(new Error(499, 'no'))); }",
    ):
        with pytest.raises(Failure) as caught:
            await run(house, seven, body)
        assert caught.value.details["sub_status"] == 499


async def test_too_much_memory_is_said_to_be_it(house: House, seven: Container) -> None:
    for body in (
        "function () { var a = []; for (;;) a.push('x'.repeat(30_000_000) + a.length); }",
        "function () { new Uint8Array(2 ** 29).fill(1); }",
    ):
        with pytest.raises(Failure) as caught:
            await run(house, seven, body)
        assert "memory" in caught.value.message or "128 MB" in caught.value.message
