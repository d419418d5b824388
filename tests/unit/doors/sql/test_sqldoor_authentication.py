from __future__ import annotations

import base64
import hmac
import json
import random
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from azure.cosmos import _base as sdk
from azure.cosmos.auth import _get_authorization_header
from support.portions import Amount

from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys, Authenticator, credential_kind
from armillary.doors.sql.access.authorization import AAD, MASTER, READ_ONLY, SECONDARY, Role
from armillary.doors.sql.access.resource_tokens import TokenAuthority
from armillary.doors.sql.routes import parse_route, resolve
from armillary.errors import Failure, Kind

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
KEYS = AccountKeys(KEY, *(base64.b64encode(bytes([number]) * 64).decode() for number in (1, 2, 3)))
NOW_S = 1_700_000_000
DATE = formatdate(NOW_S, usegmt=True)


def authenticator(**options: Any) -> tuple[Authenticator, TokenAuthority, VirtualClock]:
    clock = VirtualClock(NOW_S)
    tokens = TokenAuthority("localhost", KEYS.token_secret(), clock)
    return Authenticator(KEYS, tokens, clock, **options), tokens, clock


AUTHENTICATOR, TOKENS, CLOCK = authenticator()


def signature(
    verb: str, resource_type: str, link: str, *, key: str = KEY, date: str = DATE, http_date: str = ""
) -> str:
    payload = f"{verb.lower()}\n{resource_type}\n{link}\n{date.lower()}\n{http_date.lower()}\n"
    return base64.b64encode(hmac.digest(base64.b64decode(key), payload.encode(), "sha256")).decode()


def master(verb: str, resource_type: str, link: str, **options: Any) -> bytes:
    return quote(f"type=master&ver=1.0&sig={signature(verb, resource_type, link, **options)}", safe="").encode()


def headers(authorization: bytes, date: str = DATE) -> dict[bytes, bytes]:
    return {b"authorization": authorization, b"x-ms-date": date.encode()}


def refusal(method: str, target: bytes, given: dict[bytes, bytes], who: Authenticator = AUTHENTICATOR) -> str:
    with pytest.raises(Failure) as caught:
        who.verify(method, parse_route(target), given)
    assert caught.value.kind is Kind.UNAUTHORIZED
    return caught.value.message


NAMES = ["a", "!@$%^&*()-~`'_[]{}|;:,.<>", "a b", "é你😀", "MixedCase", "100%25", "a+b=c&d"]
RIDS = ["AQAAAA==", "AQAAAJ0fgTc=", "AQAAAJ0fgTcBAAAAAAAAAA=="]


def sdk_requests() -> list[tuple[str, str, str, str]]:
    """verb, path, resource id or full name, type: as azure-cosmos builds each of its requests."""
    requests = [("get", "", "", ""), ("get", "/dbs", "", "dbs"), ("post", "/dbs", "", "dbs")]
    requests += [("get", "/offers", "", "offers"), ("post", "/offers", "", "offers")]
    requests += [(verb, "/offers/AbC+/", "AbC+", "offers") for verb in ("get", "put")]
    paths = [(name, name, name) for name in NAMES] + [(RIDS[0], RIDS[1], RIDS[2])]
    for database, container, item in paths:
        db, coll, user = f"dbs/{database}", f"dbs/{database}/colls/{container}", f"dbs/{database}/users/{container}"
        feeds = [(db, "colls"), (db, "users"), (db, "clientencryptionkeys"), (user, "permissions"), (coll, "pkranges")]
        feeds += [(coll, kind) for kind in ("docs", "sprocs", "triggers", "udfs", "conflicts")]
        resources = [(db, "dbs"), (coll, "colls"), (user, "users"), (f"{user}/permissions/{item}", "permissions")]
        resources += [(f"{coll}/{kind}/{item}", kind) for kind in ("docs", "sprocs", "triggers", "udfs", "conflicts")]
        for link, kind in feeds:
            path, name = sdk.GetPathFromLink(link, kind), sdk.GetResourceIdOrFullNameFromLink(link)
            requests += [("get", path, name, kind)] + [("post", path, name, kind)] * (kind != "pkranges")
        for link, kind in resources:
            path, name = sdk.GetPathFromLink(link), sdk.GetResourceIdOrFullNameFromLink(link)
            requests += [("get", path, name, kind)]
            if kind == "docs":
                requests += [(verb, path, name, kind) for verb in ("put", "patch", "delete")]
            if kind == "sprocs":
                requests += [("post", path, name, kind)]
        path = sdk.GetPathFromLink(coll) + "operations/partitionkeydelete"
        requests += [("post", path, sdk.GetResourceIdOrFullNameFromLink(coll), "partitionKey")]
    return requests


@pytest.mark.parametrize(("verb", "path", "name", "resource_type"), sdk_requests())
def test_what_the_sdk_signs_is_accepted(verb: str, path: str, name: str, resource_type: str) -> None:
    client = SimpleNamespace(master_key=KEY, resource_tokens=None)
    signed_type = sdk._internal_resourcetype(resource_type)
    text = _get_authorization_header(  # type: ignore[no-untyped-call]
        client, verb, path, name, sdk.IsNameBased(name), signed_type, {"x-ms-date": DATE}
    )
    given = headers(quote(text, "-_.!~*'()").encode())
    route = resolve(verb.upper(), (path or "/").encode())
    assert AUTHENTICATOR.verify(verb.upper(), route, given) is MASTER
    assert AUTHENTICATOR.verify(verb.upper(), route, headers(text.encode())) is MASTER  # not percent-encoded


TARGET = b"/dbs/MyDb/colls/c%201/docs/x"
LINK = "dbs/MyDb/colls/c 1/docs/x"


def test_each_key_has_its_role() -> None:
    for key, principal in zip(KEYS, (MASTER, SECONDARY, READ_ONLY, READ_ONLY), strict=True):
        assert key is not None
        given = headers(master("GET", "docs", LINK, key=key))
        assert AUTHENTICATOR.verify("GET", parse_route(TARGET), given) is principal
    alone = Authenticator(AccountKeys(KEY), TOKENS, CLOCK)
    assert KEYS.secondary is not None
    refusal("GET", TARGET, headers(master("GET", "docs", LINK, key=KEYS.secondary)), alone)


def test_other_forms_of_the_link() -> None:
    rid_link = f"dbs/{RIDS[0]}/colls/{RIDS[1]}"
    route = parse_route(f"/{rid_link}/docs".encode())
    for link in (RIDS[1].lower(), rid_link, rid_link.lower()):  # JavaScript signs the whole path of a rid
        assert AUTHENTICATOR.verify("GET", route, headers(master("GET", "docs", link))) is MASTER
    refusal("GET", f"/{rid_link}/docs".encode(), headers(master("GET", "docs", RIDS[1])))


@pytest.mark.parametrize("key", [key for key in KEYS if key])
@pytest.mark.parametrize(
    ("signed", "sent"),
    [
        ("dbs/shop", b"/dbs/Shop"),
        ("dbs/shop/colls/orders", b"/dbs/shop/colls/Orders"),
        ("dbs/shop/colls/orders/docs/a", b"/dbs/shop/colls/orders/docs/A"),
        ("dbs/shop/colls/orders/docs/ss", "/dbs/shop/colls/orders/docs/\u00df".encode()),
        ("dbs/Shop", b"/dbs/shop"),
    ],
)
def test_a_signature_is_for_one_name(key: str, signed: str, sent: bytes) -> None:
    """No client folds the case of names; what several of them fold are rids."""
    route = parse_route(sent)
    refusal("GET", sent, headers(master("GET", route.resource_type, signed, key=key)))
    AUTHENTICATOR.verify("GET", route, headers(master("GET", route.resource_type, route.link, key=key)))


def test_date_header_takes_the_place_of_x_ms_date() -> None:
    authorization = master("GET", "docs", LINK, date="", http_date=DATE)
    route = parse_route(TARGET)
    assert AUTHENTICATOR.verify("GET", route, {b"authorization": authorization, b"date": DATE.encode()}) is MASTER
    both = headers(master("GET", "docs", LINK)) | {b"date": b"whatever a proxy adds"}
    assert AUTHENTICATOR.verify("GET", route, both) is MASTER
    assert "x-ms-date" in refusal("GET", TARGET, {b"authorization": authorization})


@pytest.mark.parametrize("sign", [1, -1])
def test_date_boundary_is_exact(sign: int) -> None:
    who, _, clock = authenticator()
    route = parse_route(TARGET)
    date = formatdate(NOW_S + sign * 900, usegmt=True)
    assert who.verify("GET", route, headers(master("GET", "docs", LINK, date=date), date)) is MASTER
    late = formatdate(NOW_S + sign * 901, usegmt=True)
    assert "not valid at the current time" in refusal(
        "GET", TARGET, headers(master("GET", "docs", LINK, date=late), late), who
    )
    clock.advance(0.001)  # remembered dates are compared with the clock of each request
    if sign < 0:
        refusal("GET", TARGET, headers(master("GET", "docs", LINK, date=date), date), who)
    else:
        assert who.verify("GET", route, headers(master("GET", "docs", LINK, date=date), date)) is MASTER


@pytest.mark.parametrize(
    "date",
    [
        "", "now", "2023-11-14T22:13:20Z", "Tue, 31 Feb 2023 22:13:20 GMT", "Tue, 14 Nov 2023 24:13:20 GMT", DATE + " ",
        DATE[:-4], DATE.replace("GMT", "CET"), "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", "é",
    ],
)  # fmt: skip
def test_other_dates_are_refused(date: str) -> None:
    refusal("GET", TARGET, headers(master("GET", "docs", LINK, date=date), date))


def test_tampering_is_noticed() -> None:
    given = headers(master("GET", "docs", LINK))
    assert AUTHENTICATOR.verify("GET", parse_route(TARGET), given) is MASTER
    refusal("PUT", TARGET, given)
    refusal("GET", b"/dbs/MyDb/colls/c%201/docs/y", given)
    refusal("GET", b"/dbs/MyDb/colls/c%201/sprocs/x", given)
    refusal("GET", b"/dbs/MyDb/colls/c%201/docs", given)
    refusal("GET", b"/dbs/mydb/colls/c%201/docs/x", given)
    refusal("GET", TARGET, headers(given[b"authorization"], formatdate(NOW_S + 1, usegmt=True)))
    text = f"type=master&ver=1.0&sig={signature('GET', 'docs', LINK)}"
    for position in range(text.index("sig=") + 4, len(text)):
        for replacement in "Aa0+/=%&":
            if replacement != text[position]:
                changed = text[:position] + replacement + text[position + 1 :]
                refusal("GET", TARGET, headers(quote(changed, safe="").encode()))
                refusal("GET", TARGET, headers(changed.encode()))
    for changed in (text[:-1], text + "=", text + "&", text.replace("1.0", "1.1"), text.replace("master", "Master")):
        refusal("GET", TARGET, headers(quote(changed, safe="").encode()))
    refusal("GET", TARGET, headers(quote(quote(text, safe=""), safe="").encode()))  # decoded once only


def test_message_shows_the_payload() -> None:
    message = refusal("GET", TARGET, headers(master("PUT", "docs", LINK)))
    assert message.startswith("The input authorization token can't serve the request.")
    assert f"get\\ndocs\\n{LINK}\\n{DATE.lower()}\\n\\n" in message
    assert KEY not in message


def test_missing_and_unknown_forms() -> None:
    assert "Required Header authorization is missing" in refusal("GET", b"/", {})
    assert "missing" in refusal("GET", b"/", {b"authorization": b""})
    for text in (b"x", b"Bearer abc", b"type=master", b"type=master&ver=1.0", b"type=master&type=master&ver=1.0&sig=",
                 b"type=nobody&ver=1.0&sig=x", b"type=master&ver=2.0&sig=x", b"type=master&ver=1.0&sig=\xc3\xa9",
                 b"type%3Dmaster%26ver%3D1.0%26sig%3D%ff", b"type=master&ver=1.0&sig=%C3%A9", b"&", b"%"):  # fmt: skip
        refusal("GET", b"/", headers(text))


def sas_token(key: str, *, resource: str = "/dbs/db1/colls/coll1/", reader: str = "FFFFFFFF") -> str:
    """A SAS token of the account as the client for JavaScript makes it, valid now."""
    lines = ["user1", "", resource, "", f"{NOW_S:X}", f"{NOW_S + 7200:X}", "0", "60", "0", reader, "0", ""]
    payload = base64.b64encode("\n".join(lines).encode()).decode()
    mac = hmac.digest(base64.b64decode(key), payload.encode(), "sha256")
    return f"type=sas&ver=1.0&sig={base64.b64encode(mac).decode()};{payload}"


# The client's own sample token, of the emulator's key.
SAS_OF_THE_CLIENT = (
    "type=sas&ver=1.0&sig=pCgZFxV9JQN1i3vzYNTfQldW1No7I+MSgN628TZcJAI=;"
    "dXNlcjEKCi9kYnMvZGIxL2NvbGxzL2NvbGwxLwoKNUZFRTY2MDEKNjIxM0I3MDEKMAo2MAowCkZGRkZGRkZGCjAK"
)


def test_sas_tokens_are_refused_by_name() -> None:
    """By whichever key they are signed and whatever they ask for; so are broken ones."""
    whole = [SAS_OF_THE_CLIENT, *(sas_token(key) for key in KEYS if key)]
    whole += [sas_token(KEY, resource="/"), sas_token(KEY, reader="0")]
    broken = ["type=sas", "type=sas&ver=1.0", "type=sas&ver=2&sig=x", "type=sas&ver=1.0&sig=", "sig=x&type=sas&a=b"]
    for token in whole + broken:
        for text in (token, quote(token, "-_.!~*'()"), quote(token, safe="")):
            for target in (b"/", b"/dbs/db1/colls/coll1", b"/dbs/db1/colls/coll1/docs/x"):
                message = refusal("GET", target, headers(text.encode()))
                assert "SAS tokens of the account (type=sas)" in message
                assert ";" not in token or token.rpartition("sig=")[2] not in message
            if text.startswith("type"):
                assert credential_kind(headers(text.encode())) == "sas token"
    # Its payload and its seal are no resource token and no key's signature either.
    for kind in ("resource", "master", "aad"):
        changed = SAS_OF_THE_CLIENT.replace("type=sas", f"type={kind}")
        refusal("GET", b"/dbs/db1/colls/coll1", headers(quote(changed, safe="").encode()))


def test_resource_token_is_accepted_raw_and_percent_encoded() -> None:
    token = TOKENS.issue(permission_rid="p", mode="Read", name_link="dbs/a/colls/b", rid_link="", partition_key=["x"],
                         lifetime_s=60, rids=[], grant="1")  # fmt: skip
    for given in (token, quote(token, "-_.!~*'()"), quote(token, safe="")):
        principal = AUTHENTICATOR.verify("GET", parse_route(b"/"), {b"authorization": given.encode()})
        assert principal.role is Role.RESOURCE_TOKEN
        assert principal.claims is not None
        assert principal.claims.partition_key == ["x"]


def aad_token(header: dict[str, Any] | None = None, key: str = KEY, **changes: Any) -> bytes:
    claims = {"aud": "https://localhost.localhost", "iat": NOW_S, "nbf": NOW_S, "exp": NOW_S + 7200,
              "tid": "EmulatorFederation"} | changes  # fmt: skip
    kid = "CosmosEmulatorPrimaryMaster"
    parts = [json.dumps(header or {"typ": "JWT", "alg": "RS256", "x5t": kid, "kid": kid}), json.dumps(claims), key]
    encoded = ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return f"type=aad&ver=1.0&sig={encoded}".encode()


def test_aad_of_the_emulator() -> None:
    route = parse_route(b"/dbs/a/colls/b")
    for given in (aad_token(), quote(aad_token().decode(), safe="").encode()):
        assert AUTHENTICATOR.verify("GET", route, {b"authorization": given}) is AAD
    off, _, _ = authenticator(accepts_aad=False)
    refusal("GET", b"/", {b"authorization": aad_token()}, off)
    secondary = KEYS.secondary
    assert secondary is not None
    for bad in (
        aad_token(key=secondary), aad_token(key=""), aad_token(key=KEY + "x"), aad_token({"alg": "none"}),
        aad_token(exp=NOW_S), aad_token(exp="9999999999"), aad_token(exp=True), aad_token(exp=None),
        aad_token(nbf=NOW_S + 901), aad_token(aud="https://other"), aad_token(tid="other"), aad_token()[:-1],
        aad_token() + b".x", b"type=aad&ver=1.0&sig=..",
        b"type=aad&ver=1.0&sig=a.b." + base64.urlsafe_b64encode(KEY.encode()).rstrip(b"="),
    ):  # fmt: skip
        refusal("GET", b"/", {b"authorization": bad})


def test_fuzz_is_always_unauthorized(amount: Amount) -> None:
    seed = 20_240_603
    print("seed", seed)
    dice = random.Random(seed)
    valid = [headers(master("GET", "docs", LINK)), headers(aad_token())]
    valid.append(headers(f"type=master&ver=1.0&sig={signature('GET', 'docs', LINK)}".encode()))
    token = TOKENS.issue(
        permission_rid="p",
        mode="All",
        name_link="dbs/a",
        rid_link="",
        partition_key=None,
        lifetime_s=60,
        rids=[],
        grant="1",
    )
    valid.append(headers(token.encode()))
    route = parse_route(TARGET)
    for _ in range(amount(20_000)):
        given = dict(dice.choice(valid))
        name = dice.choice((b"authorization", b"authorization", b"authorization", b"x-ms-date"))
        text = bytearray(given[name])
        for _ in range(dice.randrange(1, 4)):
            position = dice.randrange(len(text))
            choice = dice.randrange(3)
            if choice == 0:
                text[position] = dice.randrange(256)
            elif choice == 1:
                del text[position : position + dice.randrange(1, 9)]
                text = text or bytearray(b"%")
            else:
                text[position:position] = dice.choice((b"&", b"=", b"%", b"%26", b".", b";", b"\x00", b"\xff", b"sig="))
        before = given[name]
        given[name] = bytes(text)
        try:
            principal = AUTHENTICATOR.verify("GET", route, given)
        except Failure as failure:
            assert failure.kind is Kind.UNAUTHORIZED  # noqa: PT017
            continue
        if principal is MASTER:
            assert text.lower() == before.lower()  # hexadecimal digits of an escape, or letters of the date
        elif principal is not AAD:  # whose claims are not sealed: who has the key may write any
            assert principal.claims == TOKENS.verify(token)
