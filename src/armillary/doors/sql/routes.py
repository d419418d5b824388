"""Which resource a request's path names: the route table of the SQL door, by name or by rid. Whether the resource
exists is the account's to say; what a verb does on it is decided where requests are dispatched.

Every path is a feed (`/dbs/a/colls/b/docs`) or a feed and one name. Feeds are few and names are many, so parsed feeds
are remembered and the path of an item costs two lookups and one decoded name.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote_to_bytes

from armillary.errors import Failure, Kind, bad_request
from armillary.limits import ROUTE_REMEMBERED_BYTES_MAX, ROUTES_REMEMBERED_MAX
from armillary.model.items import find_illegal_in_item_id, find_illegal_in_name

# Looked for as ints: bytes in bytes makes an exception on its way, which takes a microsecond.
_QUESTION_MARK, _PERCENT = b"?%"


class RouteKind(Enum):
    __hash__ = object.__hash__  # every request looks one up, and an Enum's own hash is computed in Python

    ACCOUNT = auto()  # GET /
    FEED = auto()  # a list: read it, query it, create in it
    RESOURCE = auto()  # one thing
    EXECUTE = auto()  # POST on a stored procedure
    KEY_DELETE = auto()  # POST .../operations/partitionkeydelete
    ADDRESSES = auto()  # .NET's direct mode asking where replicas are


class Route(NamedTuple):
    kind: RouteKind
    resource_type: str  # as it is signed: "dbs", "colls", "docs", ...; "" for the account
    segments: tuple[str, ...]  # the decoded names or rids: (database, container, item)
    link: str  # decoded path of the resource; of the parent for a feed: what clients sign
    is_rid_based: bool  # clients sign the last rid alone then
    verbs: tuple[str, ...]


_FEEDS_BELOW: dict[str, tuple[str, ...]] = {
    "": ("dbs", "offers"),
    "dbs": ("colls", "users", "clientencryptionkeys"),
    "colls": ("docs", "sprocs", "triggers", "udfs", "conflicts", "pkranges"),
    "users": ("permissions",),
}

_FEED_VERBS: dict[str, tuple[str, ...]] = {
    "dbs": ("GET", "POST"),
    "colls": ("GET", "POST"),
    "docs": ("GET", "POST"),
    "pkranges": ("GET",),
    "sprocs": ("GET", "POST"),
    "triggers": ("GET", "POST"),
    "udfs": ("GET", "POST"),
    "conflicts": ("GET", "POST"),
    "users": ("GET", "POST"),
    "permissions": ("GET", "POST"),
    "clientencryptionkeys": ("GET", "POST"),
    "offers": ("GET", "POST"),
}

_RESOURCE_VERBS: dict[str, tuple[str, ...]] = {
    "dbs": ("GET", "DELETE"),
    "colls": ("GET", "PUT", "DELETE"),
    "docs": ("GET", "PUT", "PATCH", "DELETE"),
    "sprocs": ("GET", "PUT", "DELETE", "POST"),
    "triggers": ("GET", "PUT", "DELETE"),
    "udfs": ("GET", "PUT", "DELETE"),
    "conflicts": ("GET", "DELETE"),
    "users": ("GET", "PUT", "DELETE"),
    "permissions": ("GET", "PUT", "DELETE"),
    "clientencryptionkeys": ("GET", "PUT"),
    "offers": ("GET", "PUT"),
}

_RESOURCE = RouteKind.RESOURCE
_ACCOUNT = Route(RouteKind.ACCOUNT, "", (), "", False, ("GET",))
_KEY_DELETE = (b"operations", b"partitionkeydelete")

# 8 characters that decode to 4 bytes: exactly how the SDKs tell a database's rid from its name.
_DATABASE_RID = re.compile(r"[A-Za-z0-9+/-]{6}==")
is_plain_name = re.compile(rb"[A-Za-z0-9_.~=-]+").fullmatch  # ids that need neither decoding nor checking
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class _Feed(NamedTuple):
    route: Route
    link_prefix: str  # the link of a resource in it, up to the name
    resource_verbs: tuple[str, ...]  # empty: its members are not addressable


_feeds: dict[bytes, _Feed] = {}


def resolve(method: str, target: bytes) -> Route:
    """The route of a request, its verb checked. METHOD_NOT_ALLOWED carries the verbs that would do."""
    route = parse_route(target)
    if method not in route.verbs:
        raise Failure(
            Kind.METHOD_NOT_ALLOWED,
            f"{method} is not possible on {_shown(target)}; this path takes {', '.join(route.verbs)}.",
            details={"allowed": route.verbs},
        )
    if method == "POST" and route.kind is RouteKind.RESOURCE:
        return route._replace(kind=RouteKind.EXECUTE)  # only stored procedures take POST
    return route


def parse_route(target: bytes) -> Route:
    """The route of a request target (path and optional query string), whatever the verb."""
    path = target[:-1] if target.endswith(b"/") else target
    feed = _feeds.get(path)
    if feed is not None:
        return feed.route
    head, _, name = path.rpartition(b"/")
    feed = _feeds.get(head)
    if feed is None or not feed.resource_verbs or not name or _QUESTION_MARK in name:
        return _parse_unknown(target)
    return _resource(feed, name)


def _resource(feed: _Feed, raw_name: bytes) -> Route:
    # Unpacked, not by attribute: this runs for every request on an item.
    (_, resource_type, segments, _, is_rid_based, _), link_prefix, verbs = feed
    name = (
        raw_name.decode("ascii") if is_plain_name(raw_name) else _decode_name(raw_name, is_item=resource_type == "docs")
    )
    if not segments:
        is_rid_based = resource_type == "offers" or is_database_rid(name)
    return Route(_RESOURCE, resource_type, (*segments, name), link_prefix + name, is_rid_based, verbs)


def is_database_rid(name: str) -> bool:
    return len(name) == 8 and _DATABASE_RID.fullmatch(name) is not None


def _parse_unknown(target: bytes) -> Route:
    """The first request to a feed, and everything unusual: query strings, doubled slashes, wrong paths."""
    path, _, query = target.partition(b"?")
    if not path.startswith(b"/"):
        raise Failure(Kind.NOT_FOUND, f"There is nothing at {_shown(target)}; a path starts with /.")
    path = path[2:] if path.startswith(b"//") else path[1:]
    path = path.removesuffix(b"/")
    if path == b"addresses":
        return _addresses(query)
    if query:
        *owners, name = path.split(b"/")
        feed = _feed(owners) if owners[-1:] == [b"docs"] and len(owners) % 2 else None
        if feed is not None:
            # JavaScript leaves a question mark in an item's id as it is, and no query string belongs to an item.
            return _resource(feed, name + b"?" + query)
        raise bad_request(f"The query string of {_shown(target)} is not understood; this path takes none.")
    if not path:
        return _ACCOUNT
    words = path.split(b"/")
    if len(words) == 6 and (words[4], words[5]) == _KEY_DELETE:
        container = parse_route(b"/" + b"/".join(words[:4]))
        if container.resource_type == "colls" and container.kind is RouteKind.RESOURCE:
            return container._replace(kind=RouteKind.KEY_DELETE, verbs=("POST",))
    if words[:2] == [b"offers", b"offers"]:
        # A client that takes an offer's link for its rid asks for this, and hears of a bad request from the service.
        raise bad_request(f"An offer is addressed as /offers/<its rid>, not as {_shown(target)}.")
    feed = _feed(words if len(words) % 2 else words[:-1])
    if feed is None or (len(words) % 2 == 0 and not (feed.resource_verbs and words[-1])):
        raise Failure(Kind.NOT_FOUND, f"There is nothing at {_shown(target)}; see the route table for known paths.")
    return feed.route if len(words) % 2 else _resource(feed, words[-1])


def _feed(words: list[bytes]) -> _Feed | None:
    """A feed from its words (type, name, type, ...), remembered; None when no such feed is known."""
    resource_type = ""
    segments: list[str] = []
    link_words: list[str] = []
    for index, word in enumerate(words):
        if index % 2 == 0:
            owner, resource_type = resource_type, word.decode("latin-1")
            if resource_type not in _FEEDS_BELOW.get(owner, ()):
                return None
        else:
            if not word:
                return None
            segments.append(_decode_name(word))
            link_words += (resource_type, segments[-1])
    link = "/".join(link_words)
    is_rid_based = bool(segments) and is_database_rid(segments[0])
    route = Route(RouteKind.FEED, resource_type, tuple(segments), link, is_rid_based, _FEED_VERBS[resource_type])
    prefix = f"{link}/{resource_type}/" if link else f"{resource_type}/"
    feed = _Feed(route, prefix, _RESOURCE_VERBS.get(resource_type, ()))
    path = b"/" + b"/".join(words)
    if len(path) <= ROUTE_REMEMBERED_BYTES_MAX:
        if len(_feeds) >= ROUTES_REMEMBERED_MAX:
            _feeds.clear()
        _feeds[path] = feed
    return feed


def _addresses(query: bytes) -> Route:
    """`/addresses/?$resolveFor=dbs/a/colls/b/docs`: signed like the feed that it asks about."""
    try:
        wanted = parse_qs(query.decode("ascii"), errors="strict", max_num_fields=16).get("$resolveFor", [""])[0]
        words = [quote(word, safe="").encode() for word in wanted.strip("/").split("/")]
    except ValueError:
        raise bad_request("The query string of /addresses cannot be read; it must be percent-encoded UTF-8.") from None
    feed = _feed(words) if len(words) % 2 else None
    if feed is None:
        raise bad_request("/addresses needs $resolveFor=<path of a feed>, such as dbs/a/colls/b/docs.")
    return feed.route._replace(kind=RouteKind.ADDRESSES, verbs=("GET",))


def _decode_name(raw: bytes, *, is_item: bool = False) -> str:
    """One path segment, percent-decoded once."""
    if _PERCENT in raw:
        if _BROKEN_ESCAPE.search(raw):
            raise bad_request(f"The path segment {_shown(raw)} has a % without two hexadecimal digits after it.")
        raw = unquote_to_bytes(raw)
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise bad_request(f"The path segment {_shown(raw)} is not UTF-8; percent-encode the UTF-8 bytes.") from None
    if find_illegal_in_item_id(name) if is_item else find_illegal_in_name(name):
        forbidden = "/ \\ #" if is_item else "/ \\ ? # tab CR LF"
        raise bad_request(f"The id in the path segment {_shown(raw)} has one of {forbidden}, which no such id has.")
    return name


def _shown(raw: bytes) -> str:
    """A piece of a request for a message: printable and not endless."""
    text = raw[:200].decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
