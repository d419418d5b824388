"""The Table door in process: what requests are answered, byte for byte where clients look closely."""

from __future__ import annotations

import base64
import hmac
import itertools
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from support.process import KEY
from support.tables import READ_ONLY_KEY, TableHouse, error_of, header

from armillary.account import containers
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.registry import AccountSettings
from armillary.account.throughput.offers import offer_of
from armillary.account.throughput.provisioning import Throughput
from armillary.doors.table.access.grants import KeyRange
from armillary.doors.table.errors import ROWS, refusal_of
from armillary.errors import Failure, Kind
from armillary.languages.odata.compile import compile_filter
from armillary.model import edm
from armillary.model.key_values import Key

ENTITY = "/people(PartitionKey='p',RowKey='r')"
ANY = {"If-Match": "*"}


@pytest.fixture
async def house() -> AsyncIterator[TableHouse]:
    made = await TableHouse.open()
    assert (await made.ask("POST", "/Tables", {"TableName": "people"})).status == 201
    yield made
    await made.close()


@pytest.fixture
async def storage() -> AsyncIterator[TableHouse]:
    made = await TableHouse.open(flavor="storage")
    assert (await made.ask("POST", "/Tables", {"TableName": "people"})).status == 201
    yield made
    await made.close()


async def insert(house: TableHouse, **properties: Any) -> str:
    """Returns the etag."""
    answer = await house.ask("POST", "/people", {"PartitionKey": "p", "RowKey": "r", **properties})
    assert answer.status == 201, answer.body
    etag = header(answer, "etag")
    assert etag is not None
    return etag


def test_every_kind_has_a_row() -> None:
    assert set(ROWS) == set(Kind)
    for is_storage in (False, True):
        for kind in Kind:
            refusal = refusal_of(Failure(kind, "Words."), "id", "now", is_storage=is_storage)
            assert 400 <= refusal.status < 600
            assert orjson.loads(refusal.json())["odata.error"]["code"] == refusal.code
            assert refusal.code.encode() in refusal.xml()


async def test_errors_look_as_clients_read_them(house: TableHouse) -> None:
    answer = await house.ask("GET", ENTITY)
    status, code, message = error_of(answer)
    assert (status, code) == (404, "ResourceNotFound")
    assert message.startswith("The specified resource does not exist.")
    assert "\nRequestId:" in message and "\nTime:" in message
    assert header(answer, "x-ms-error-code") == code
    answer = await house.ask("GET", "/nobody?comp=acl")
    assert answer.body.startswith(b"<?xml") and b"<code>ResourceNotFound</code>" in answer.body


async def test_the_three_levels_of_metadata(house: TableHouse) -> None:
    etag = await insert(house, Big=5, **{"Big@odata.type": "Edm.Int64"}, Even=3.0, Half=0.5)
    bodies = {}
    for level in ("nometadata", "minimalmetadata", "fullmetadata"):
        answer = await house.ask("GET", ENTITY, headers={"Accept": f"application/json;odata={level}"})
        assert header(answer, "etag") == etag
        assert header(answer, "content-type") == f"application/json;odata={level};streaming=true;charset=utf-8"
        bodies[level] = orjson.loads(answer.body)
    moment = bodies["nometadata"]["Timestamp"]
    assert etag == f"W/\"datetime'{quote(moment)}'\""  # as the Python client makes it of the Timestamp
    plain = {"PartitionKey": "p", "RowKey": "r", "Timestamp": moment, "Big": "5", "Even": 3.0, "Half": 0.5}
    assert bodies["nometadata"] == plain
    typed = {"Big@odata.type": "Edm.Int64", "Even@odata.type": "Edm.Double"}
    minimal = {"odata.metadata": "http://localhost/$metadata#people/@Element", "odata.etag": etag, **typed, **plain}
    assert bodies["minimalmetadata"] == minimal
    assert bodies["fullmetadata"] == {
        **minimal,
        "odata.type": "localhost.people",
        "odata.id": "http://localhost/people(PartitionKey='p',RowKey='r')",
        "odata.editLink": "people(PartitionKey='p',RowKey='r')",
        "Timestamp@odata.type": "Edm.DateTime",
    }
    names = list(bodies["minimalmetadata"])
    assert names.index("Big@odata.type") == names.index("Big") - 1


async def test_preferences_are_applied_where_they_are_said(house: TableHouse) -> None:
    for number, (prefer, status) in enumerate({"return-content": 201, "return-no-content": 204, "": 201}.items()):
        headers = {"Prefer": prefer} if prefer else {}
        answer = await house.ask("POST", "/people", {"PartitionKey": "p", "RowKey": str(number)}, headers)
        assert (answer.status, header(answer, "preference-applied")) == (status, prefer or None)
        assert bool(answer.body) == (status == 201)
        assert header(answer, "location") == f"http://localhost/people(PartitionKey='p',RowKey='{number}')"


async def test_verbs_and_if_match_decide_what_a_write_is(house: TableHouse) -> None:
    for method, headers in (("PUT", ANY), ("MERGE", ANY), ("PATCH", ANY), ("POST", {**ANY, "X-HTTP-Method": "MERGE"})):
        assert error_of(await house.ask(method, ENTITY, {"a": 1}, headers))[0] == 404
    assert (await house.ask("PATCH", ENTITY, {"a": 1})).status == 204
    assert (await house.ask("MERGE", ENTITY, {"b": 2})).status == 204
    assert (await house.ask("POST", ENTITY, {"c": None, "a": None}, {"X-HTTP-Method": "MERGE"})).status == 204
    got = orjson.loads((await house.ask("GET", ENTITY, headers={"Accept": "application/json;odata=nometadata"})).body)
    assert (got["a"], got["b"]) == (1, 2) and "c" not in got
    assert (await house.ask("PUT", ENTITY, {"z": 1})).status == 204
    got = orjson.loads((await house.ask("GET", f"{ENTITY}?$select=z,missing")).body)
    assert got["z"] == 1 and "a" not in got and "PartitionKey" not in got and "odata.etag" in got
    assert error_of(await house.ask("DELETE", ENTITY))[:2] == (400, "MissingRequiredHeader")
    assert (await house.ask("DELETE", ENTITY, headers=ANY)).status == 204
    assert error_of(await house.ask("PUT", ENTITY, {}, {"X-HTTP-Method": "MERGE"}))[1] == "XMethodNotUsingPost"
    assert error_of(await house.ask("POST", ENTITY, {}, {"X-HTTP-Method": "GET"}))[1] == "XMethodIncorrectValue"


async def test_etags_hold_for_one_write_and_in_either_spelling(house: TableHouse) -> None:
    etag = await insert(house)
    plain = {"If-Match": etag.replace("%3A", ":")}
    assert (await house.ask("PUT", ENTITY, {"n": 1}, plain)).status == 204
    for method in ("PUT", "MERGE", "DELETE"):
        assert error_of(await house.ask(method, ENTITY, {"n": 2}, {"If-Match": etag}))[:2] == (
            412,
            "UpdateConditionNotSatisfied",
        )
    etags = {header(await house.ask("PUT", ENTITY, {"n": n}), "etag") for n in range(50)}
    assert len(etags) == 50  # within one second of the clock


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"PartitionKey": "p"}, "PropertiesNeedValue"),
        ({"PartitionKey": "p", "RowKey": 1}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": ""}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": "a/b"}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": "x" * 256}, "InvalidInput"),
        ({"PartitionKey": "p" * 1025, "RowKey": "r"}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": "r", "1st": 1}, "PropertyNameInvalid"),
        ({"PartitionKey": "p", "RowKey": "r", "x" * 256: 1}, "PropertyNameTooLong"),
        ({"PartitionKey": "p", "RowKey": "r", "a": 2**31}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": "r", "a": []}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": "r", "a": {"$t": 2, "$v": ""}}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": "r", "a": "x", "a@odata.type": "Edm.Int64"}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": "r", "a": "x", "a@odata.type": "Edm.Stream"}, "InvalidInput"),
        ({"PartitionKey": "p", "RowKey": "r", "a": "1600-12-31", "a@odata.type": "Edm.DateTime"}, "InvalidInput"),
        ([], "InvalidInput"),
    ],
)
async def test_what_is_no_entity_is_refused(house: TableHouse, body: Any, code: str) -> None:
    assert error_of(await house.ask("POST", "/people", body))[:2] == (400, code)


async def test_keys_at_their_limits(house: TableHouse) -> None:
    body = {"PartitionKey": "é" * 512, "RowKey": "ü" * 127}
    assert (await house.ask("POST", "/people", body)).status == 201
    target = f"/people(RowKey='{quote(body['RowKey'])}',PartitionKey='{quote(body['PartitionKey'])}')"
    assert (await house.ask("GET", target)).status == 200


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/people/Tables", (400, "InvalidInput")),
        ("/people/$batch", (400, "InvalidInput")),
        ("///", (400, "InvalidInput")),
        ("/people(PartitionKey='p')", (400, "InvalidInput")),
        ("/people(PartitionKey='p',PartitionKey='p')", (400, "InvalidInput")),
        ("/people(PartitionKey=p,RowKey='r')", (400, "InvalidInput")),
        ("/people('p')", (400, "InvalidInput")),
        ("/%ff", (400, "InvalidInput")),
        ("/a%5Cb", (400, "InvalidInput")),
        ("/nobody()", (404, "ResourceNotFound")),
        ("/people()?$orderby=a", (501, "NotImplemented")),
        ("/people()?unknown=1", (400, "UnsupportedQueryParameter")),
        ("/people()?$top=0", (400, "InvalidInput")),
        ("/people()?$top=1&$top=2", (400, "InvalidQueryParameterValue")),
        ("/people()?NextPartitionKey=x", (400, "InvalidQueryParameterValue")),
        ("/people()?$filter=startswith(a,'b')", (501, "NotImplemented")),
        ("/people()?$filter=a%20eq", (400, "InvalidInput")),
        ("/people()?$format=atom", (415, "AtomFormatNotSupported")),
        ("/Tables()?NextTableName=x", (400, "InvalidQueryParameterValue")),
    ],
)
async def test_addresses_that_name_nothing(house: TableHouse, target: str, expected: tuple[int, str]) -> None:
    status, code, message = error_of(await house.ask("GET", target))
    assert (status, code) == expected
    if target.startswith("/people/"):
        assert message.startswith("Request url is invalid.")


async def test_what_would_be_ignored_is_refused(house: TableHouse) -> None:
    answer = await house.ask("PUT", ENTITY, {}, {"If-None-Match": "*"})
    assert error_of(answer)[:2] == (400, "ConditionHeadersNotSupported")
    answer = await house.ask("POST", "/people", {"PartitionKey": "p", "RowKey": "r"}, {"If-Match": "*"})
    assert error_of(answer)[:2] == (400, "ConditionHeadersNotSupported")
    for method, target in (
        ("GET", f"{ENTITY}?$filter=a%20eq%201"),
        ("GET", f"{ENTITY}?$top=1"),
        ("PUT", f"{ENTITY}?$select=a"),
        ("GET", "/people()?NextTableName=x"),
        ("POST", "/Tables?$top=1"),
    ):
        status, code, _ = error_of(await house.ask(method, target, {}))
        assert (status, code) == (400, "UnsupportedQueryParameter"), (method, target)
    assert error_of(await house.ask("GET", "/people()?timeout=soon"))[:2] == (400, "InvalidQueryParameterValue")
    assert (await house.ask("GET", "/people()?timeout=30")).status == 200
    assert error_of(await house.ask("POST", "/Tables", {"TableName": "Tables"}))[:2] == (400, "InvalidResourceName")
    assert error_of(await house.ask("POST", "/Tables", {"TableName": "x", "Throughput": 400}))[:2] == (
        400,
        "InvalidInput",
    )
    assert error_of(await house.ask("POST", "/people", {}, {"Prefer": "speed"}))[:2] == (400, "InvalidHeaderValue")
    assert error_of(await house.ask("GET", "/people()", headers={"x-ms-version": "1.0"}))[:2] == (
        400,
        "InvalidHeaderValue",
    )
    atom = {"Content-Type": "application/atom+xml"}
    assert error_of(await house.ask("POST", "/people", b"<entry/>", atom))[:2] == (415, "AtomFormatNotSupported")


async def test_verbs_that_are_not_allowed(house: TableHouse) -> None:
    answer = await house.ask("DELETE", "/people()")
    assert error_of(answer)[:2] == (405, "MethodNotAllowed")
    assert header(answer, "allow") == "GET, POST"


async def test_continuations_are_bound_to_their_query(house: TableHouse) -> None:
    for number in range(5):
        await house.ask("POST", "/people", {"PartitionKey": "p", "RowKey": str(number)})
    first = await house.ask("GET", "/people()?$top=2")
    token = header(first, "x-ms-continuation-nextpartitionkey")
    assert token is not None
    more = f"NextPartitionKey={quote(token)}&NextRowKey={header(first, 'x-ms-continuation-nextrowkey')}"
    second = await house.ask("GET", f"/people()?$top=2&{more}")
    rows = [row["RowKey"] for page in (first, second) for row in orjson.loads(page.body)["value"]]
    assert rows == ["0", "1", "2", "3"]
    other = await house.ask("GET", f"/people()?$filter=RowKey%20gt%20'0'&{more}")
    assert error_of(other)[:2] == (400, "InvalidQueryParameterValue")


# Who is asking.


async def test_signatures_of_keys(house: TableHouse) -> None:
    lite = house.signed("GET", "/people()", {}, is_lite=True)
    assert (await house.send("GET", b"/people()", lite)).status == 200
    good = house.signed("GET", "/people()", {})
    for name, value in (
        (b"authorization", b"SharedKey localhost:" + base64.b64encode(bytes(32))),
        (b"x-ms-date", formatdate(house.account.clock.now_s() - 60, usegmt=True).encode()),
    ):
        assert error_of(await house.send("GET", b"/people()", {**good, name: value}))[:2] == (401, "Unauthorized")
    late = formatdate(house.account.clock.now_s() - 1000, usegmt=True)
    answer = await house.ask("GET", "/people()", headers={"x-ms-date": late})
    assert error_of(answer)[:2] == (403, "AuthenticationFailed")
    answer = await house.send("GET", b"/people()", {b"host": b"localhost"})
    assert error_of(answer)[:2] == (401, "NoAuthenticationInformation")
    assert (header(answer, "www-authenticate") or "").startswith("Bearer authorization_uri=")
    for given, status in ((b"Bearer x", 401), (b"SharedKey nonsense", 400), (b"Basic eA==", 400)):
        assert (await house.send("GET", b"/people()", {**good, b"authorization": given})).status == status


async def test_paths_may_be_signed_in_other_spellings(house: TableHouse) -> None:
    sent = b"/people(PartitionKey=%27p%27,RowKey=%27a%20b%27)"
    for signed in (
        sent,
        b"/people(PartitionKey='p',RowKey='a%20b')",
        b"/people%28PartitionKey%3D%27p%27%2CRowKey%3D%27a%20b%27%29",
    ):
        assert (await house.send("GET", sent, house.signed("GET", signed, {}))).status == 404


async def test_read_only_keys_read(house: TableHouse) -> None:
    def signed(method: str, path: bytes) -> dict[bytes, bytes]:
        date = formatdate(house.account.clock.now_s(), usegmt=True).encode()
        mac = hmac.digest(base64.b64decode(READ_ONLY_KEY), date + b"\n/localhost" + path, "sha256")
        return {b"host": b"h", b"date": date, b"authorization": b"SharedKeyLite localhost:" + base64.b64encode(mac)}

    assert (await house.send("GET", b"/people()", signed("GET", b"/people()"))).status == 200
    answer = await house.send("POST", b"/people", signed("POST", b"/people"), b'{"PartitionKey":"p","RowKey":"r"}')
    assert error_of(answer)[:2] == (403, "AuthorizationPermissionMismatch")


async def test_the_account_in_the_path_and_in_the_host(house: TableHouse) -> None:
    assert (await house.ask("GET", "/localhost/people()")).status == 200
    signed = house.signed("GET", "/people()", {"Host": "localhost-secondary.table.cosmos.azure.com"})
    answer = await house.send("GET", b"/people()", signed)
    assert orjson.loads(answer.body)["odata.metadata"].startswith("http://localhost-secondary.table.cosmos.azure.com/")


def table_signature(house: TableHouse, key: str = KEY, **given: str) -> bytes:
    """A signature for the table, as a query string."""
    terms = {"tn": "people", "sp": "raud", "se": "2033-01-01T00:00:00Z", "sv": "2019-02-02", **given}
    fields = [terms.get("sp", ""), terms.get("st", ""), terms.get("se", ""), f"/table/localhost/{terms['tn'].lower()}"]
    fields += [terms.get(name, "") for name in ("si", "sip", "spr", "sv", "spk", "srk", "epk", "erk")]
    mac = hmac.digest(base64.b64decode(key), "\n".join(fields).encode(), "sha256")
    terms["sig"] = base64.b64encode(mac).decode()
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in terms.items()).encode()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (200, "")),
        ({"sp": "aud"}, (403, "AuthorizationPermissionMismatch")),
        ({"sp": "rx"}, (403, "AuthenticationFailed")),
        ({"se": "2023-01-01"}, (403, "AuthenticationFailed")),
        ({"st": "2032-01-01"}, (403, "AuthenticationFailed")),
        ({"se": "soon"}, (403, "AuthenticationFailed")),
        ({"spr": "https"}, (403, "AuthorizationProtocolMismatch")),
        ({"spr": "https,http"}, (200, "")),
        ({"sip": "127.0.0.0-127.0.0.2"}, (200, "")),
        ({"sip": "127.0.0.2"}, (403, "AuthorizationSourceIPMismatch")),
        ({"sip": "nowhere"}, (403, "AuthenticationFailed")),
        ({"tn": "others"}, (403, "AuthorizationFailure")),
        ({"tn": "PEOPLE"}, (200, "")),
        ({"spk": "p", "srk": "r", "epk": "p", "erk": "r"}, (200, "")),
        ({"spk": "p", "srk": "s"}, (403, "AuthorizationFailure")),
        ({"epk": "o"}, (403, "AuthorizationFailure")),
        ({"srk": "r"}, (403, "AuthenticationFailed")),
        ({"sv": "2013-08-15"}, (403, "AuthenticationFailed")),
        ({"si": "nobody", "sp": ""}, (403, "AuthenticationFailed")),
        ({"key": base64.b64encode(b"another key, no less long").decode()}, (403, "AuthenticationFailed")),
    ],
)
async def test_signatures_of_a_table(house: TableHouse, given: dict[str, str], expected: tuple[int, str]) -> None:
    await insert(house)
    key = given.pop("key", KEY)
    target = ENTITY.encode() + b"?" + table_signature(house, key, **given)
    answer = await house.send("GET", target, {b"host": b"localhost"})
    assert (answer.status, header(answer, "x-ms-error-code") or "") == expected


@pytest.mark.parametrize(
    ("method", "target", "body", "more"),
    [
        ("GET", "/people(PartitionKey=%27a%27,RowKey='1')", "", {}),
        ("GET", "/people(RowKey='1',PartitionKey='a')", "", {}),
        ("GET", "/people(PartitionKey='b',RowKey='1',PartitionKey='a')", "", {}),
        ("GET", "/people(PartitionKey='b%27%27',RowKey='1')", "", {}),
        ("GET", "/people(PartitionKey='a',RowKey='1')", "", {"spk": "a"}),  # twice in the query
        ("GET", "/people(PartitionKey='a',RowKey='1')", "", {"SPK": "a", "EPK": "a"}),
        ("GET", "/people()", "", {"NextPartitionKey": "a", "NextRowKey": "1"}),
        ("POST", "/people", '{"PartitionKey":"a","RowKey":"9"}', {}),
        ("POST", "/people", '{"PartitionKey":"b","RowKey":"9","PartitionKey":"a"}', {}),
        ("PUT", "/people(PartitionKey='b',RowKey='1')", '{"PartitionKey":"a","RowKey":"1","x":1}', {}),
        ("POST", "/people(PartitionKey='a',RowKey='1')", "", {"x-http-method": "DELETE"}),
        ("GET", "/people", "", {"comp": "acl"}),
        ("DELETE", "/Tables('people')", "", {}),
    ],
)
async def test_no_way_leads_out_of_the_keys_of_a_signature(
    house: TableHouse, method: str, target: str, body: str, more: dict[str, str]
) -> None:
    for key in "ab":
        await house.ask("POST", "/people", {"PartitionKey": key, "RowKey": "1"})
    headers = {b"host": b"localhost", b"content-type": b"application/json", b"if-match": b"*"}
    headers |= {name.encode(): value.encode() for name, value in more.items() if name.startswith("x-")}
    query = table_signature(house, spk="b", epk="b")
    query += "".join(f"&{name}={value}" for name, value in more.items() if not name.startswith("x-")).encode()
    answer = await house.send(method, target.encode() + b"?" + query, headers, body.encode())
    assert answer.status in (400, 403), answer.body
    left = orjson.loads((await house.ask("GET", "/people()")).body)["value"]
    assert sorted((each["PartitionKey"], each["RowKey"], "x" in each) for each in left) == [
        ("a", "1", False),
        ("b", "1", False),
    ]


async def test_a_signature_limits_a_query_to_its_keys(house: TableHouse) -> None:
    for key in "abc":
        for row in "12":
            await house.ask("POST", "/people", {"PartitionKey": key, "RowKey": row})
    query = table_signature(house, spk="a", srk="2", epk="c", erk="1")
    answer = await house.send("GET", b"/people()?" + query, {b"host": b"localhost"})
    found = {(each["PartitionKey"], each["RowKey"]) for each in orjson.loads(answer.body)["value"]}
    assert found == {("a", "2"), ("b", "1"), ("b", "2"), ("c", "1")}


@pytest.mark.parametrize(
    ("signed", "sent"),
    [
        ("/people(PartitionKey='p',RowKey='a%20b')", "/people(PartitionKey='p',RowKey='a%2520b')"),
        ("/people(PartitionKey='p',RowKey='%25')", "/people(PartitionKey='p',RowKey='%2525')"),
        ("/people(PartitionKey='p',RowKey='a')", "/people(PartitionKey='p',RowKey='A')"),
        ("/people(PartitionKey='p',RowKey='a')", "/People(PartitionKey='p',RowKey='a')"),
        ("/people(PartitionKey='p',RowKey='a%20b')", "/people(PartitionKey='p',RowKey='a+b')"),
    ],
)
async def test_a_signature_is_for_one_entity(house: TableHouse, signed: str, sent: str) -> None:
    headers = house.signed("GET", signed, {})
    assert (await house.send("GET", sent.encode(), headers)).status == 401
    assert (await house.send("GET", signed.encode(), headers)).status == 404  # known, and there is none


ESCAPES = [
    "PartitionKey ge '') or (PartitionKey eq 'a'",
    "true) or (true",
    "PartitionKey ge '' or PartitionKey ge ''",
    "not (PartitionKey eq 'b')",
    "(PartitionKey ge ''",
    "PartitionKey ge '')",
    "PartitionKey ge '' or",
    "PartitionKey ge ''--",
    "PartitionKey ge ''\n) or (PartitionKey ge ''",
    "PartitionKey eq 'a') or (RowKey eq '1'",
    "",
    "   ",
    ")",
    "(",
    "'",
]


@pytest.mark.parametrize("filter_text", ESCAPES)
@pytest.mark.parametrize(
    "keys", [{"spk": "b", "epk": "b"}, {"spk": "b", "srk": "1", "epk": "b", "erk": "2"}, {"spk": "b", "epk": "b'"}]
)
async def test_no_filter_escapes_from_the_keys_of_a_signature(
    house: TableHouse, filter_text: str, keys: dict[str, str]
) -> None:
    """The range of the signature and the filter are joined as trees: what the filter's text closes or opens is a
    syntax error, never a way out."""
    for key in "abc":
        for row in "12":
            await house.ask("POST", "/people", {"PartitionKey": key, "RowKey": row})
    query = table_signature(house, **keys) + b"&$filter=" + quote(filter_text, safe="").encode()
    answer = await house.send("GET", b"/people()?" + query, {b"host": b"localhost"})
    assert answer.status in (200, 400, 501), answer.body
    if answer.status == 200:
        assert {each["PartitionKey"] for each in orjson.loads(answer.body)["value"]} <= {"b"}
    answer = await house.ask("GET", "/people()?$filter=" + quote(filter_text, safe=""))
    # Whether a filter is well-formed does not depend on who asks.
    assert (answer.status == 200) == (
        (await house.send("GET", b"/people()?" + query, {b"host": b"localhost"})).status == 200
    )


def test_the_keys_of_a_signature_mean_the_same_to_queries_and_to_single_entities() -> None:
    texts = ["", "a", "a'", "b", "\uffff", "\ud7ff", "\U00010000"]
    bounds = [None, *texts[1:]]
    for first_key, last_key in itertools.product(bounds, bounds):
        for first_row, last_row in ((None, None), ("b", "\uffff"), ("\U00010000", "a'")):
            keys = KeyRange(
                (first_key, first_row if first_key is not None else None),
                (last_key, last_row if last_key is not None else None),
            )
            condition = keys.condition
            if condition is None:
                continue
            predicate = compile_filter("", condition).predicate
            for partition_key, row_key in itertools.product(texts, texts):
                document = {edm.PARTITION_KEY: partition_key, edm.ROW_KEY: row_key}
                assert predicate(document) == keys.holds(partition_key, row_key), (keys, partition_key, row_key)


@pytest.mark.parametrize(
    ("signed", "sent"),
    [
        ({}, {"epk": ""}),  # reads like no bound at all
        ({"epk": "p"}, {"epk": "p", "erk": ""}),
        ({"srk": "r"}, {"spk": "", "srk": "r"}),
        ({"epk": "o\nx"}, {"epk": "o\nx"}),  # could be another signature's two fields
    ],
)
async def test_one_signature_has_one_meaning(house: TableHouse, signed: dict[str, str], sent: dict[str, str]) -> None:
    await insert(house)
    signature = table_signature(house, **signed).rpartition(b"sig=")[2]
    terms = {"tn": "people", "sp": "raud", "se": "2033-01-01T00:00:00Z", "sv": "2019-02-02", **sent}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in terms.items()).encode()
    answer = await house.send("GET", ENTITY.encode() + b"?" + query + b"&sig=" + signature, {b"host": b"localhost"})
    assert (answer.status, header(answer, "x-ms-error-code")) == (403, "AuthenticationFailed")


# Beside entities.


async def test_cross_origin_requests_follow_the_rules(house: TableHouse) -> None:
    origin = {"Origin": "https://example.com", "Access-Control-Request-Method": "GET"}
    assert error_of(await house.ask("OPTIONS", "/people", headers=origin))[0] == 403
    rule = (
        "<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>https://example.com</AllowedOrigins><AllowedMethods>"
        "GET</AllowedMethods><MaxAgeInSeconds>7</MaxAgeInSeconds><ExposedHeaders>x-ms-*</ExposedHeaders><AllowedHeaders>"
        "x-ms-*</AllowedHeaders></CorsRule></Cors></StorageServiceProperties>"
    )
    headers = {"Content-Type": "application/xml"}
    assert (await house.ask("PUT", "/?restype=service&comp=properties", rule.encode(), headers)).status == 202
    answer = await house.ask("OPTIONS", "/people", headers={**origin, "Access-Control-Request-Headers": "x-ms-date"})
    assert (answer.status, header(answer, "access-control-max-age")) == (200, "7")
    answer = await house.ask("GET", "/people()", headers={"Origin": "https://example.com"})
    assert header(answer, "access-control-allow-origin") == "https://example.com"
    answer = await house.ask("GET", "/people()", headers={"Origin": "https://other.example"})
    assert header(answer, "access-control-allow-origin") is None


@pytest.mark.parametrize(
    "body",
    [
        b"<StorageServiceProperties>",
        b"<Other/>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><StorageServiceProperties/>',
        b"<StorageServiceProperties><Unknown/></StorageServiceProperties>",
        b"<StorageServiceProperties><Logging><Read>perhaps</Read></Logging></StorageServiceProperties>",
        b"<StorageServiceProperties>" + b"<a>" * 20 + b"</a>" * 20 + b"</StorageServiceProperties>",
    ],
)
async def test_service_properties_that_are_none(house: TableHouse, body: bytes) -> None:
    answer = await house.ask("PUT", "/?restype=service&comp=properties", body, {"Content-Type": "application/xml"})
    assert (answer.status, header(answer, "x-ms-error-code")) == (400, "InvalidXmlDocument")


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "cp037"]
)
@pytest.mark.parametrize(
    "declared", ["", '<?xml version="1.0" encoding="{}"?>', '<?xml version="1.0" encoding="utf-8"?>']
)
async def test_no_encoding_brings_a_declaration_past_the_guard(house: TableHouse, encoding: str, declared: str) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "bbbb"><!ENTITY c "&a;&a;">]>'
    policies = "<SignedIdentifiers><SignedIdentifier><Id>{}</Id></SignedIdentifier></SignedIdentifiers>"
    head = declared.format(encoding.removesuffix("-sig"))
    hostile = (head + bomb + policies.format("&c;")).encode(encoding)
    answer = await house.ask("PUT", "/people?comp=acl", hostile, {"Content-Type": "application/xml"})
    assert (answer.status, header(answer, "x-ms-error-code")) == (400, "InvalidXmlDocument"), answer.body
    if encoding in ("utf-8", "utf-8-sig", "utf-16"):
        plain = (head + policies.format("good")).encode(encoding)
        answer = await house.ask("PUT", "/people?comp=acl", plain, {"Content-Type": "application/xml"})
        assert answer.status == 204, answer.body


async def test_items_of_other_doors_are_entities_if_they_look_so(house: TableHouse) -> None:
    table = house.account.container("TablesDB", "people")
    typed = {"$t": 9, "$v": "00638400960000000000"}
    for document in (
        {"id": "good", "$id": "good", "$pk": "p", "Born": typed, "$_ttl": {"$t": 16, "$v": 5}},
        {"id": "plain", "$pk": "p", "Age": 3},
        {"id": "other", "$id": "another", "$pk": "p"},
        {"id": "untyped", "$id": "untyped", "$pk": "p", "Age": 3},
        {"id": "mistyped", "$id": "mistyped", "$pk": "p", "Age": {"$t": 16, "$v": "3"}},
    ):
        await items.create(table, document, ItemOptions(key=Key(("p",))), house.account.clock)
    answer = orjson.loads((await house.ask("GET", "/people()")).body)["value"]
    assert [(each["RowKey"], each["Born"], each["ttl"]) for each in answer] == [("good", "2024-01-06T00:00:00Z", 5)]
    assert (await house.ask("GET", "/people(PartitionKey='p',RowKey='plain')")).status == 404


async def test_what_fails_after_it_was_read_is_counted_once(house: TableHouse) -> None:
    await house.ask("PUT", ENTITY, {"n": 1})
    container = house.account.owner_container("TablesDB", "people")
    (partition,) = container.partitions.values()
    counted, metadata = partition.meter.totals.charged, house.account.budgets.metadata.totals
    answer = await house.ask("GET", ENTITY, headers={"If-Match": "W/\"datetime'2001-01-01T00%3A00%3A00Z'\""})
    assert answer.status == 412
    assert partition.meter.totals.charged_ru - counted / 100 == float(header(answer, "x-ms-request-charge") or 0) == 1
    assert house.account.budgets.metadata.totals == metadata


@pytest.mark.parametrize(
    ("method", "target", "body", "what"),
    [
        ("POST", "/people", {"PartitionKey": "p", "RowKey": "new"}, ["write the item", "add index terms"]),
        ("PUT", ENTITY, {"n": 2}, ["remove the old item", "write the new item", "change index terms"]),
        ("PATCH", ENTITY, {"m": 2}, ["remove the old item", "write the new item", "change index terms"]),
        ("GET", ENTITY, b"", ["read the item"]),
        ("GET", "/people()?$filter=n%20eq%201", b"", ["visit partitions", "index seeks", "return results"]),
        ("GET", "/Tables", b"", ["metadata"]),
        ("GET", "/people(PartitionKey='p',RowKey='none')", b"", ["refuse"]),
    ],
)
async def test_charges_are_explained(house: TableHouse, method: str, target: str, body: Any, what: list[str]) -> None:
    await house.ask("PUT", ENTITY, {"n": 1})
    answer = await house.ask(method, target, body, {"x-armillary-explain": "true"})
    parts = orjson.loads(header(answer, "x-armillary-charge") or b"")
    assert [part["what"] for part in parts] == what
    assert sum(part["ru"] for part in parts) == pytest.approx(float(header(answer, "x-ms-request-charge") or 0))
    assert header(await house.ask(method, target, body), "x-armillary-charge") is None
    refusal = error_of(await house.ask("GET", ENTITY, headers={"x-armillary-explain": "maybe"}))
    assert refusal[:2] == (400, "InvalidHeaderValue")


async def test_a_spent_budget_is_said_with_the_time_to_wait() -> None:
    house = await TableHouse.open(account_settings=AccountSettings(throughput_mode="enforce"))
    await house.ask("POST", "/Tables", {"TableName": "people"})
    answers = [await house.ask("PUT", ENTITY, {"n": number}) for number in range(200)]
    refused = [answer for answer in answers if answer.status != 204]
    assert 0 < len(refused) < 200
    assert {error_of(answer)[:2] for answer in refused} == {(429, "TooManyRequests")}
    assert 0 < int(header(refused[0], "x-ms-retry-after-ms") or 0) <= 1000
    # Python's client repeats a PUT by itself, and these only where they have a header that speaks of whole seconds.
    assert header(refused[0], "retry-after") is None
    merged = await house.ask("PATCH", ENTITY, {"n": 1})
    inserted = await house.ask("POST", "/people", {"PartitionKey": "p", "RowKey": "new"})
    assert [(answer.status, header(answer, "retry-after")) for answer in (merged, inserted)] == [(429, "1")] * 2
    await house.close()


async def test_tables_where_nothing_is_provisioned_for_each() -> None:
    serverless = await TableHouse.open(account_settings=AccountSettings(is_serverless=True))
    assert (await serverless.ask("POST", "/Tables", {"TableName": "people"})).status == 201
    await serverless.close()
    shared = await TableHouse.open()
    await containers.create_database(shared.account, {"id": "TablesDB"}, Throughput.manual(1000))
    assert (await shared.ask("POST", "/Tables", {"TableName": "people"})).status == 201
    own = {"x-ms-offer-throughput": "500"}
    assert (await shared.ask("POST", "/Tables", {"TableName": "own"}, own)).status == 201
    offers = [offer_of(shared.account, each.record) is not None for each in shared.account.containers]
    assert offers == [False, True]
    await shared.close()


# The storage flavour.


async def test_storage_takes_empty_keys_and_names_of_any_case(storage: TableHouse) -> None:
    assert (await storage.ask("POST", "/People", {"PartitionKey": "", "RowKey": "", "a": 1})).status == 201
    assert (await storage.ask("GET", "/PEOPLE(PartitionKey='',RowKey='')")).status == 200
    await storage.ask("POST", "/people", {"PartitionKey": "", "RowKey": "x"})
    for text, expected in (
        ("RowKey eq ''", [""]),
        ("RowKey le ''", [""]),
        ("RowKey gt ''", ["x"]),
        ("RowKey ne 'x' and PartitionKey eq ''", [""]),
        ("RowKey lt 'z'", ["", "x"]),
    ):
        answer = await storage.ask("GET", f"/people()?$filter={quote(text)}")
        assert [each["RowKey"] for each in orjson.loads(answer.body)["value"]] == expected, text
    assert error_of(await storage.ask("GET", "/nobody()"))[:2] == (404, "TableNotFound")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({f"p{n}": 1 for n in range(253)}, "TooManyProperties"),
        ({"a": "x" * 32_769}, "PropertyValueTooLarge"),
        ({f"p{n}": "x" * 32_000 for n in range(20)}, "EntityTooLarge"),
        ({"RowKey": "x" * 513}, "OutOfRangeInput"),
    ],
)
async def test_storage_has_narrower_limits(storage: TableHouse, body: dict[str, Any], code: str) -> None:
    answer = await storage.ask("POST", "/people", {"PartitionKey": "p", "RowKey": "r", **body})
    assert error_of(answer)[:2] == (400, code)


@pytest.mark.parametrize(
    ("name", "code"), [("ab", "OutOfRangeInput"), ("a_b", "InvalidResourceName"), ("tables", "InvalidResourceName")]
)
async def test_storage_names_of_tables(storage: TableHouse, name: str, code: str) -> None:
    assert error_of(await storage.ask("POST", "/Tables", {"TableName": name}))[:2] == (400, code)
