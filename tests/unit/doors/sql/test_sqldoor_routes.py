from __future__ import annotations

import random
from urllib.parse import quote

import pytest
from azure.cosmos import _base as sdk
from support.portions import Amount

from armillary.doors.sql import routes
from armillary.doors.sql.routes import RouteKind, parse_route, resolve
from armillary.errors import Failure, Kind
from armillary.limits import ROUTES_REMEMBERED_MAX

ODD_NAMES = ["!@$%^&*()-~`'_[]{}|;:,.<>", "a b", "é你😀", "100%", "%2F", "a+b", ".", "..", "docs", "dbs", "x" * 255]

# path, kind, type, segments, link, verbs
TABLE = [
    ("/", RouteKind.ACCOUNT, "", (), "", "GET"),
    ("/dbs", RouteKind.FEED, "dbs", (), "", "GET POST"),
    ("/dbs/a", RouteKind.RESOURCE, "dbs", ("a",), "dbs/a", "GET DELETE"),
    ("/dbs/a/colls", RouteKind.FEED, "colls", ("a",), "dbs/a", "GET POST"),
    ("/dbs/a/colls/b", RouteKind.RESOURCE, "colls", ("a", "b"), "dbs/a/colls/b", "GET PUT DELETE"),
    ("/dbs/a/colls/b/pkranges", RouteKind.FEED, "pkranges", ("a", "b"), "dbs/a/colls/b", "GET"),
    ("/dbs/a/colls/b/docs", RouteKind.FEED, "docs", ("a", "b"), "dbs/a/colls/b", "GET POST"),
    (
        "/dbs/a/colls/b/docs/c",
        RouteKind.RESOURCE,
        "docs",
        ("a", "b", "c"),
        "dbs/a/colls/b/docs/c",
        "GET PUT PATCH DELETE",
    ),
    (
        "/dbs/a/colls/b/operations/partitionkeydelete",
        RouteKind.KEY_DELETE,
        "colls",
        ("a", "b"),
        "dbs/a/colls/b",
        "POST",
    ),
    *(
        (f"/dbs/a/colls/b/{kind}", RouteKind.FEED, kind, ("a", "b"), "dbs/a/colls/b", "GET POST")
        for kind in ("sprocs", "triggers", "udfs", "conflicts")
    ),
    *(
        (f"/dbs/a/colls/b/{kind}/c", RouteKind.RESOURCE, kind, ("a", "b", "c"), f"dbs/a/colls/b/{kind}/c", verbs)
        for kind, verbs in (
            ("sprocs", "GET PUT DELETE POST"),
            ("triggers", "GET PUT DELETE"),
            ("udfs", "GET PUT DELETE"),
            ("conflicts", "GET DELETE"),
        )
    ),
    ("/dbs/a/users", RouteKind.FEED, "users", ("a",), "dbs/a", "GET POST"),
    ("/dbs/a/users/u", RouteKind.RESOURCE, "users", ("a", "u"), "dbs/a/users/u", "GET PUT DELETE"),
    ("/dbs/a/users/u/permissions", RouteKind.FEED, "permissions", ("a", "u"), "dbs/a/users/u", "GET POST"),
    (
        "/dbs/a/users/u/permissions/p",
        RouteKind.RESOURCE,
        "permissions",
        ("a", "u", "p"),
        "dbs/a/users/u/permissions/p",
        "GET PUT DELETE",
    ),
    ("/dbs/a/clientencryptionkeys", RouteKind.FEED, "clientencryptionkeys", ("a",), "dbs/a", "GET POST"),
    (
        "/dbs/a/clientencryptionkeys/k",
        RouteKind.RESOURCE,
        "clientencryptionkeys",
        ("a", "k"),
        "dbs/a/clientencryptionkeys/k",
        "GET PUT",
    ),
    ("/offers", RouteKind.FEED, "offers", (), "", "GET POST"),
    ("/offers/AbCd", RouteKind.RESOURCE, "offers", ("AbCd",), "offers/AbCd", "GET PUT"),
]


@pytest.fixture(autouse=True)
def _forget_routes() -> None:
    routes._feeds.clear()


@pytest.mark.parametrize(("path", "kind", "resource_type", "segments", "link", "verbs"), TABLE)
def test_table(
    path: str, kind: RouteKind, resource_type: str, segments: tuple[str, ...], link: str, verbs: str
) -> None:
    for target in (path, path + "/", "/" + path, path) if path != "/" else ("/", "//"):
        route = parse_route(target.encode())
        assert route[:4] == (kind, resource_type, segments, link), target
        assert route.verbs == tuple(verbs.split())
        assert route.is_rid_based is (path == "/offers/AbCd")
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"):
            if method in route.verbs:
                expected = RouteKind.EXECUTE if (method, resource_type) == ("POST", "sprocs") and segments[2:] else kind
                assert resolve(method, target.encode()).kind is expected
            else:
                with pytest.raises(Failure) as caught:
                    resolve(method, target.encode())
                assert caught.value.kind is Kind.METHOD_NOT_ALLOWED
                assert caught.value.details["allowed"] == route.verbs


@pytest.mark.parametrize(
    "target",
    [
        "", "x", "*", "/x", "/dbs/a/x", "/dbs/a/docs", "/colls", "/docs/a", "/dbs/a/colls/b/pkranges/0",
        "/dbs/a/colls/b/operations", "/dbs/a/colls/b/operations/x", "/dbs/a/users/b/operations/partitionkeydelete",
        "/dbs//colls", "/dbs/a//", "/dbs/a/colls//docs", "/dbs/a/colls//operations/partitionkeydelete",
        "/dbs/a/colls/b/docs/c/d", "/dbs/a/colls/b/docs/c/attachments",
        "/DBS", "///dbs", "/dbs/a/colls/b/docs/c//", "/offers/a/b",
    ],
)  # fmt: skip
def test_unknown_paths(target: str) -> None:
    for _ in range(2):  # the second time with feeds remembered
        with pytest.raises(Failure) as caught:
            parse_route(target.encode())
        assert caught.value.kind is Kind.NOT_FOUND, target
        parse_route(b"/dbs/a/colls/b/docs")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_decoded_once(name: str) -> None:
    link = f"dbs/{name}/colls/{name}/docs/{name}"
    for path in (sdk.GetPathFromLink(link), "/" + "/".join(quote(word, safe="") for word in link.split("/"))):
        for _ in range(2):
            route = parse_route(path.encode())
            assert route.segments == (name, name, name)
            assert route.link == link


@pytest.mark.parametrize(
    "segment",
    [
        "a%2Fb", "a%5Cb", "a\\b", "a%3Fb", "a%23b", "a#b", "a%09", "a%0d", "a%0A", "%", "%4", "a%zz", "%ff", "%C3%28",
        "%ED%A0%80",
    ],
)  # fmt: skip
def test_bad_segments(segment: str) -> None:
    for target in (f"/dbs/{segment}", f"/dbs/{segment}/colls", f"/dbs/a/colls/{segment}/docs/x", f"/offers/{segment}"):
        for _ in range(2):
            with pytest.raises(Failure) as caught:
                parse_route(target.encode())
            assert caught.value.kind is Kind.BAD_REQUEST
            parse_route(b"/dbs")


def test_item_ids_take_more_than_names() -> None:
    for segment, name in (("a%3Fb", "a?b"), ("a%09", "a\t"), ("a%0d", "a\r"), ("a%0A", "a\n"), ("a%20", "a ")):
        assert parse_route(f"/dbs/a/colls/b/docs/{segment}".encode()).segments[2] == name
    for segment in ("a%2Fb", "a%5Cb", "a\\b", "a%23b", "a#b", "%", "%4", "a%zz", "%ff", "%C3%28", "%ED%A0%80"):
        with pytest.raises(Failure) as caught:
            parse_route(f"/dbs/a/colls/b/docs/{segment}".encode())
        assert caught.value.kind is Kind.BAD_REQUEST


def test_a_question_mark_in_an_item_s_path_belongs_to_its_id() -> None:
    for _ in range(2):
        assert parse_route(b"/dbs/a/colls/b/docs/why?not%20").segments == ("a", "b", "why?not ")
    for target in (b"/dbs/a/colls/b/docs/why?a/b", b"/dbs/a/colls/b/sprocs/why?not", b"/dbs/a/colls/b/docs?x"):
        with pytest.raises(Failure) as caught:
            parse_route(target)
        assert caught.value.kind is Kind.BAD_REQUEST


def test_the_link_of_an_offer_is_not_its_rid() -> None:
    with pytest.raises(Failure) as caught:
        parse_route(b"/offers/offers/AAAB/")
    assert caught.value.kind is Kind.BAD_REQUEST


def test_query_strings() -> None:
    with pytest.raises(Failure) as caught:
        parse_route(b"/dbs/a?x=1")
    assert caught.value.kind is Kind.BAD_REQUEST
    parse_route(b"/dbs")
    with pytest.raises(Failure, match="query string"):
        parse_route(b"/dbs/a?x=/1")
    for target in (
        b"/addresses/?$resolveFor=dbs%2fa%2fcolls%2fb%20c%2fdocs&$filter=protocol%20eq%20rntbd",
        b"//addresses/?$resolveFor=dbs/a/colls/b%20c/docs/",
    ):
        route = parse_route(target)
        assert route[:4] == (RouteKind.ADDRESSES, "docs", ("a", "b c"), "dbs/a/colls/b c")
        assert route.verbs == ("GET",)
    for target in (b"/addresses", b"/addresses?$resolveFor=", b"/addresses?$resolveFor=%ff", b"/addresses?\xff"):
        with pytest.raises(Failure) as caught:
            parse_route(target)
        assert caught.value.kind is Kind.BAD_REQUEST


def test_rid_detection_is_the_sdks() -> None:
    seed = 20_240_601
    print("seed", seed)
    dice = random.Random(seed)
    alphabet = "ABab09+-=_!~. "
    names = ["AQAAAA==", "AQAAAA=", "AQAAAAA=", "AQ-AAA==", "abcdefgh", "+-+-+-=="]
    names += ["".join(dice.choices(alphabet, k=6)) + "==" for _ in range(3_000)]
    names += ["".join(dice.choices(alphabet, k=dice.choice((7, 8, 8, 8, 9)))) for _ in range(3_000)]
    for name in names:
        route = parse_route(f"/dbs/{quote(name, safe='')}/colls/x".encode())
        assert route.is_rid_based is not sdk.IsNameBased(f"dbs/{name}/colls/x"), name
        assert parse_route(f"/dbs/{quote(name, safe='')}".encode()).is_rid_based is route.is_rid_based


def test_remembered_feeds_are_bounded() -> None:
    for number in range(ROUTES_REMEMBERED_MAX + 10):
        parse_route(b"/dbs/d%d/colls/c/docs/x" % number)
        assert len(routes._feeds) <= ROUTES_REMEMBERED_MAX
    parse_route(b"/dbs/" + b"l" * 5000 + b"/colls")
    assert all(len(path) <= 1024 for path in routes._feeds)


def test_fuzz_only_client_failures_and_memory_changes_nothing(amount: Amount) -> None:
    seed = 20_240_602
    print("seed", seed)
    dice = random.Random(seed)
    words = [
        b"dbs", b"colls", b"docs", b"users", b"permissions", b"offers", b"pkranges", b"sprocs", b"operations",
        b"addresses", b"partitionkeydelete", b"a", b"b", b"", b"%41", b"%", b"%ff", b"AQAAAA==", b"?x",
        b"?$resolveFor=dbs/a/colls", b"\xff", b"\x00", "é".encode(), b"#", b"..",
    ]  # fmt: skip
    for _ in range(amount(20_000)):
        if dice.random() < 0.2:
            target = dice.randbytes(dice.randrange(40))
        else:
            target = b"/" + b"/".join(dice.choices(words, k=dice.randrange(8)))
        outcomes = []
        for _ in range(2):
            try:
                outcomes.append(repr(resolve("GET", target)))
            except Failure as failure:
                assert failure.kind in (Kind.BAD_REQUEST, Kind.NOT_FOUND, Kind.METHOD_NOT_ALLOWED)  # noqa: PT017
                outcomes.append(repr(failure))
        assert outcomes[0] == outcomes[1], target
