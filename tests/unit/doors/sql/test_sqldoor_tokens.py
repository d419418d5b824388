from __future__ import annotations

import random
from typing import Any
from urllib.parse import quote

import pytest
from support.caller import Caller
from support.portions import Amount
from support.refusals import refused
from unit.doors.sql.test_sqldoor_door import call  # noqa: F401 (a fixture)

from armillary.clock import VirtualClock
from armillary.doors.sql.access.authorization import AAD, MASTER, READ_ONLY, Principal, Role, authorize, check_key
from armillary.doors.sql.access.resource_tokens import TokenAuthority
from armillary.doors.sql.routes import resolve
from armillary.errors import Failure, Kind
from armillary.model.keys import MULTI_HASH, Key, PartitionKeyDefinition
from armillary.model.values import UNDEFINED

NOW_S = 1_700_000_000
SECRET = b"s" * 32


def authority(account: str = "localhost", secret: bytes = SECRET) -> tuple[TokenAuthority, VirtualClock]:
    clock = VirtualClock(NOW_S)
    return TokenAuthority(account, secret, clock), clock


def issue(tokens: TokenAuthority, **changes: Any) -> str:
    given: dict[str, Any] = {
        "permission_rid": "AQAAAA==",
        "mode": "Read",
        "name_link": "dbs/db/colls/c 1",
        "rid_link": "dbs/AQAAAA==/colls/AQAAAJ0fgTc=",
        "partition_key": None,
        "lifetime_s": 3600,
        "rids": ["AQAAAA==", "AQAAAJ0fgTc="],
        "grant": "g",
    }
    return tokens.issue(**(given | changes))


def refused_token(tokens: TokenAuthority, text: str) -> str:
    return refused(lambda: tokens.verify(text), kind=Kind.UNAUTHORIZED)


def test_claims_come_back() -> None:
    tokens, _ = authority()
    text = issue(tokens, mode="All", name_link="dbs/é/colls/b", partition_key=["x", 5, None, {}, True])
    assert text.startswith("type=resource&ver=1&sig=")
    assert text.endswith(";")
    assert "&" not in text.split("sig=")[1]
    claims = tokens.verify(text)
    assert claims.account == "localhost"
    assert claims.permission_rid == "AQAAAA=="
    assert claims.mode == "All"
    assert claims.name_link == "dbs/é/colls/b"
    assert claims.rid_link == "dbs/AQAAAA==/colls/AQAAAJ0fgTc="
    assert claims.partition_key == ["x", 5, None, {}, True]
    assert claims.expires_s == NOW_S + 3600


def test_each_token_is_new() -> None:
    tokens, _ = authority()
    assert len({issue(tokens) for _ in range(100)}) == 100


def test_expiry_is_exact() -> None:
    tokens, clock = authority()
    text = issue(tokens, lifetime_s=10)
    clock.advance(9.999)
    tokens.verify(text)
    clock.advance(0.001)
    assert "expired" in refused_token(tokens, text)


def test_other_account_and_other_secret() -> None:
    tokens, _ = authority()
    text = issue(tokens)
    refused_token(authority(account="other")[0], text)
    refused_token(authority(secret=b"t" * 32)[0], text)


def test_every_changed_character_is_noticed() -> None:
    tokens, _ = authority()
    text = issue(tokens)
    for position in range(len(text) - 1):
        for replacement in "Aa0;":
            if text[position] != replacement:
                refused_token(tokens, text[:position] + replacement + text[position + 1 :])
    tokens.verify(text[:-1])  # the last semicolon is ornament
    for changed in ("", text + ";", text + "x", text[:-2], text.upper()):
        refused_token(tokens, changed)


def test_fuzz_is_always_unauthorized(amount: Amount) -> None:
    seed = 20_240_604
    print("seed", seed)
    dice = random.Random(seed)
    tokens, _ = authority()
    valid = issue(tokens)
    for _ in range(amount(20_000)):
        text = list(valid)
        for _ in range(dice.randrange(1, 5)):
            text[dice.randrange(len(text) - 1)] = dice.choice("\x00;=&aA-_é\ud800")
        if "".join(text) != valid:
            refused_token(tokens, "".join(text))


# What each may do: method, target, whether it is a query.
READS = [
    ("GET", "/", False),
    ("GET", "/dbs", False),
    ("GET", "/dbs/db", False),
    ("GET", "/dbs/db/colls/c", False),
    ("GET", "/dbs/db/colls/c/docs", False),
    ("GET", "/dbs/db/colls/c/docs/x", False),
    ("GET", "/dbs/db/colls/c/pkranges", False),
    ("POST", "/dbs/db/colls/c/docs", True),
    ("POST", "/offers", True),
    ("GET", "/offers/abcd", False),
]
ITEM_WRITES = [
    ("POST", "/dbs/db/colls/c/docs", False),
    ("PUT", "/dbs/db/colls/c/docs/x", False),
    ("PATCH", "/dbs/db/colls/c/docs/x", False),
    ("DELETE", "/dbs/db/colls/c/docs/x", False),
    ("POST", "/dbs/db/colls/c/operations/partitionkeydelete", False),
    ("POST", "/dbs/db/colls/c/sprocs/s", False),
    ("POST", "/dbs/db/colls/c/sprocs/s", True),  # a flag does not make an execution a query
]
CONTROL_WRITES = [
    ("POST", "/dbs", False),
    ("DELETE", "/dbs/db", False),
    ("POST", "/dbs/db/colls", False),
    ("PUT", "/dbs/db/colls/c", False),
    ("POST", "/dbs/db/colls/c/sprocs", False),
    ("PUT", "/offers/abcd", False),
    ("POST", "/dbs/db/users", False),
]


def is_allowed(principal: Principal, method: str, target: str, is_query: bool = False) -> bool:
    route = resolve(method, target.encode())
    try:
        authorize(principal, route, method, is_query)
    except Failure as failure:
        assert failure.kind is Kind.FORBIDDEN  # noqa: PT017
        return False
    return True


def test_keys() -> None:
    for request in READS + ITEM_WRITES + CONTROL_WRITES:
        assert is_allowed(MASTER, *request)
        assert is_allowed(READ_ONLY, *request) is (request in READS), request
        assert is_allowed(AAD, *request) is (request not in CONTROL_WRITES), request
    assert not is_allowed(READ_ONLY, "GET", "/dbs/db/users/u/permissions")
    assert not is_allowed(READ_ONLY, "GET", "/dbs/db/users/u/permissions/p")
    assert not is_allowed(READ_ONLY, "POST", "/dbs/db/users/u/permissions", True)
    with pytest.raises(Failure) as caught:
        authorize(AAD, resolve("POST", b"/dbs"), "POST")
    assert caught.value.details["sub_status"] == 5300


def bearer(mode: str = "Read", name_link: str = "dbs/db/colls/c", rid_link: str = "", key: Any = None) -> Principal:
    tokens, _ = authority()
    text = issue(tokens, mode=mode, name_link=name_link, rid_link=rid_link, partition_key=key)
    return Principal(Role.RESOURCE_TOKEN, tokens.verify(text))


def test_container_token() -> None:
    for mode in ("Read", "All"):
        token = bearer(mode)
        inside = [request for request in READS if request[1].startswith("/dbs/db/colls/c") or request[1] == "/"]
        for request in READS:
            assert is_allowed(token, *request) is (request in inside), request
        for request in ITEM_WRITES:
            assert is_allowed(token, *request) is (mode == "All"), request
        # All is everything on the resource itself too: the JavaScript suite deletes its container with such a token.
        assert is_allowed(token, "DELETE", "/dbs/db/colls/c") is (mode == "All")
        for target in ("/dbs/db/colls/c2", "/dbs/db2/colls/c", "/dbs/db/colls/c2/docs/x", "/dbs/db/colls", "/dbs/db",
                       "/dbs/db/colls/cc/pkranges", "/dbs/db/users", "/dbs/db/users/c", "/dbs/db/colls/C"):  # fmt: skip
            assert not is_allowed(token, "GET", target), target


def test_item_token_reads_its_container_too() -> None:
    token = bearer("All", "dbs/db/colls/c/docs/x")
    for target in ("/", "/dbs/db/colls/c", "/dbs/db/colls/c/pkranges", "/dbs/db/colls/c/docs/x"):
        assert is_allowed(token, "GET", target), target
    assert is_allowed(token, "DELETE", "/dbs/db/colls/c/docs/x")
    for method, target, is_query in (
        ("GET", "/dbs/db/colls/c/docs", False),
        ("POST", "/dbs/db/colls/c/docs", True),
        ("POST", "/dbs/db/colls/c/docs", False),
        ("GET", "/dbs/db/colls/c/docs/y", False),
        ("GET", "/dbs/db/colls/c/sprocs/x", False),
        ("PUT", "/dbs/db/colls/c", False),
        ("DELETE", "/dbs/db/colls/c", False),
        ("GET", "/dbs/db/colls/d", False),
        ("GET", "/dbs/db/colls/d/pkranges", False),
        ("GET", "/dbs/db", False),
    ):
        assert not is_allowed(token, method, target, is_query), (method, target)


def test_names_rids_and_mixtures() -> None:
    token = bearer("Read", "dbs/db/colls/c", "dbs/AQAAAA==/colls/AQAAAJ0fgTc=")
    for database in ("db", "AQAAAA=="):
        for container in ("c", "AQAAAJ0fgTc="):
            assert is_allowed(token, "GET", f"/dbs/{database}/colls/{container}/docs/x")
    assert not is_allowed(token, "GET", "/dbs/AQAAAB==/colls/c")
    assert is_allowed(bearer("Read", "", "dbs/AQAAAA==/colls/AQAAAJ0fgTc="), "GET", "/dbs/AQAAAA==/colls/AQAAAJ0fgTc=")


def test_permissions_are_out_of_reach_of_tokens() -> None:
    for link in ("dbs/db", "dbs/db/users/u"):
        token = bearer("All", link)
        assert not is_allowed(token, "GET", "/dbs/db/users/u/permissions")
        assert not is_allowed(token, "PUT", "/dbs/db/users/u/permissions/p")
        assert is_allowed(token, "GET", "/dbs/db/users/u")
    assert is_allowed(bearer("Read", "dbs/db"), "GET", "/dbs/db/colls/c")


def test_a_scope_that_is_no_resource_is_never_issued() -> None:
    tokens, _ = authority()
    for links in (("", ""), ("dbs", ""), ("dbs/a/colls", ""), ("dbs/a/colls/b/", ""), ("dbs/a", "dbs/x/colls/y")):
        with pytest.raises(ValueError, match="no token"):
            issue(tokens, name_link=links[0], rid_link=links[1])


@pytest.mark.parametrize(
    ("allowed", "key", "expected"),
    [
        (["x"], ("x",), True), (["x"], ("y",), False), (["x"], None, False), (["x"], (), False), ([1], (1.0,), True),
        ([1], (True,), False), ([0], (False,), False), ([False], (False,), True), ([None], (None,), True),
        ([0], (-0.0,), False), ([-0.0], (0,), False), ([-0.0], (-0.0,), True), ([2**53 + 1], (2.0**53,), True),
        ([None], (UNDEFINED,), False), ([{}], (UNDEFINED,), True), ([{}], ("x",), False), ([], ("x",), False),
        (["1"], (1,), False), (["a"], ("a", "b"), True), (["a", "b"], ("a",), False), (["a", "b"], ("a", "b"), True),
        (None, None, True), (None, ("y",), True),
    ],
)  # fmt: skip
def test_partition_key_of_a_token(allowed: Any, key: Any, expected: bool) -> None:
    token = bearer("All", key=allowed)
    route = resolve("GET", b"/dbs/db/colls/c/docs/x")
    keys = [Key(key) if key is not None else None]
    definition = PartitionKeyDefinition(("/a", "/b"), MULTI_HASH)
    if expected:
        check_key(token, route, definition, keys)
    else:
        with pytest.raises(Failure) as caught:
            check_key(token, route, definition, keys)
        assert caught.value.kind is Kind.FORBIDDEN
    check_key(token, resolve("GET", b"/dbs/db/colls/c"), definition, [None])
    check_key(token, resolve("GET", b"/dbs/db/colls/c/pkranges"), definition, [None])
    check_key(MASTER, route, definition, keys)


@pytest.mark.parametrize("form", ["name", "rid"])
@pytest.mark.parametrize("path_form", ["name", "rid"])
async def test_a_token_for_an_item_in_either_form(call: Caller, form: str, path_form: str) -> None:  # noqa: F811
    """The link of a permission, and those of the requests, may each have names or rids."""
    key = {"x-ms-documentdb-partitionkey": '["a"]'}
    made = {}
    for name, value in (("1", "a"), ("2", "a"), ("1", "b")):
        item = {"id": name, "pk": value}
        headers = {"x-ms-documentdb-partitionkey": f'["{value}"]'}
        _, made[name, value], _ = await call("POST", "/dbs/db/colls/c/docs", item, **headers)
    await call("POST", "/dbs/db/users", {"id": "ann"})
    resource = "dbs/db/colls/c/docs/1" if form == "name" else made["1", "a"]["_self"]
    permission = {"id": "p", "permissionMode": "All", "resource": resource}
    status, granted, _ = await call("POST", "/dbs/db/users/ann/permissions", permission)
    assert status == 201
    token = {"authorization": quote(granted["_token"], safe="")}

    def path(name: str, value: str) -> str:
        return f"/dbs/db/colls/c/docs/{name}" if path_form == "name" else "/" + made[name, value]["_self"].rstrip("/")

    container = "/dbs/db/colls/c" if path_form == "name" else path("1", "a").rpartition("/docs/")[0]
    assert (await call("GET", container, None, **token))[0] == 200
    assert (await call("GET", f"{container}/pkranges", None, **token))[0] == 200
    status, read, _ = await call("GET", path("1", "a"), None, **token, **key)
    assert (status, read) == (200, made["1", "a"])
    for method, body in (("GET", None), ("PUT", {"id": "2", "pk": "a"}), ("DELETE", None)):
        assert (await call(method, path("2", "a"), body, **token, **key))[0] == 403
    assert (await call("GET", f"{container}/docs", None, **token, **key))[0] == 403
    # A name is that of one item in each logical partition, a rid that of one item.
    other = {"x-ms-documentdb-partitionkey": '["b"]'}
    assert (await call("GET", path("1", "b"), None, **token, **other))[0] == (200 if form == "name" else 403)
    status, replaced, _ = await call("PUT", path("1", "a"), {"id": "1", "pk": "a", "n": 1}, **token, **key)
    assert (status, replaced["n"]) == (200, 1)
    patch = {"operations": [{"op": "incr", "path": "/n", "value": 1}]}
    assert (await call("PATCH", path("1", "a"), patch, **token, **key))[0] == 200
    assert (await call("DELETE", path("1", "a"), None, **token, **key))[0] == 204
    status, made["1", "a"], _ = await call("POST", "/dbs/db/colls/c/docs", {"id": "1", "pk": "a"}, **key)
    assert (await call("GET", path("1", "a"), None, **token, **key))[0] == (200 if form == "name" else 403)
