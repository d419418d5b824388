"""Authorization: what a principal may do on a route. The principal comes from `authentication.py`; whether the resource
exists is checked later, by the account.

Keys: the read-write keys may do everything; read-only keys GET, query and plan, permissions excepted, whose answers
contain tokens that may write. Resource tokens reach the permission's resource and all below it; one that is for a
partition key works on items alone. AAD identities work on items and do not change the control plane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from operator import contains
from typing import Any, NamedTuple

from armillary.doors.sql.access.resource_tokens import Claims
from armillary.doors.sql.routes import Route, RouteKind
from armillary.errors import Failure, Kind
from armillary.model.keys import Key, PartitionKeyDefinition


class Role(Enum):
    """The value names its credential in the security log."""

    MASTER = "key"
    READ_ONLY = "read-only key"
    AAD = "aad token"
    RESOURCE_TOKEN = "resource token"


class Principal(NamedTuple):
    role: Role
    claims: Claims | None = None  # of a resource token
    is_secondary: bool = False  # tokens are sealed for the key that asks for them


MASTER = Principal(Role.MASTER)
SECONDARY = Principal(Role.MASTER, None, True)
READ_ONLY = Principal(Role.READ_ONLY)
AAD = Principal(Role.AAD)

_AAD_SUB_STATUS = 5300
_AAD_WRITABLE = ("docs", "conflicts")
_ITEM_LEVELS = 3  # of its link
_ITEM_OPERATIONS = (RouteKind.KEY_DELETE, RouteKind.EXECUTE)


def authorize(principal: Principal, route: Route, method: str, is_query: bool = False) -> None:
    """Refuse with FORBIDDEN what the principal may not do. `is_query`: a POST that reads (query or query plan)."""
    if principal is MASTER:
        return
    is_read = method == "GET" or (is_query and method == "POST" and route.kind is RouteKind.FEED)
    match principal.role:
        case Role.MASTER:
            return
        case Role.READ_ONLY:
            if not is_read:
                raise _forbidden(f"a read-only key does not allow {method} on {_place(route)}; use a read-write key")
            if route.resource_type == "permissions":
                raise _forbidden("a read-only key does not give access to permissions; use a read-write key")
        case Role.AAD:
            if not (is_read or route.resource_type in _AAD_WRITABLE or route.kind in _ITEM_OPERATIONS):
                raise _forbidden(
                    f"{method} on {_place(route)} cannot be authorized by AAD token in data plane; use a key",
                    sub_status=_AAD_SUB_STATUS,
                )
        case Role.RESOURCE_TOKEN:
            assert principal.claims is not None, "a resource token has claims"
            _authorize_token(principal.claims, route, method, is_read)


def check_key(
    principal: Principal, route: Route, definition: PartitionKeyDefinition | None, keys: Iterable[Key | None]
) -> None:
    """Refuse with FORBIDDEN another logical partition than the token's. `keys`: of the request's header, and of the
    item that it brings; None: every partition. Callers ask for each operation on items, each member of a batch."""
    claims = principal.claims
    if claims is None or claims.partition_key is None or _is_container_read(route):
        return
    # Read as the container reads keys; one without a key has no partitions that a token could be for.
    allowed = definition.key_of_parts(claims.partition_key) if definition is not None else None
    for key in keys:
        if key is None or allowed is None or not key.begins_with(allowed) or (not allowed and key):
            raise _forbidden("the resource token is for another partition key than the request's")


def check_incarnation(claims: Claims, route: Route, rid_of: Callable[[str, str, str], str | None]) -> None:
    """Refuse with FORBIDDEN a token for an earlier resource of the same name: permissions are for one resource.
    `rid_of` finds by the type, the owner's rid and the name; None: there is none now, or its rid is not known."""
    owner = ""
    for rid, (type_word, name) in zip(claims.rids, _levels(route.link), strict=False):
        found = rid_of(type_word, owner, name)
        if found is None:
            return
        if found != rid:
            raise _forbidden(f"the resource token is for an earlier {type_word} '{name}'; read its permission again")
        owner = found


def _authorize_token(claims: Claims, route: Route, method: str, is_read: bool) -> None:
    if route.kind is RouteKind.ACCOUNT:
        return
    if route.resource_type == "permissions":
        raise _forbidden("a resource token does not give access to permissions; use a key")
    path, scope = _levels(route.link), _scope(claims)
    # The SDKs read the container and its key ranges before any item, with whatever token they have inside it.
    is_deep_enough = len(path) >= len(scope) or (_is_container_read(route) and method == "GET")
    is_covered = all(level in forms for level, forms in zip(path, scope, strict=False))
    if not is_deep_enough or not (is_covered or names_item_otherwise(claims, route)):
        raise _forbidden(f"the resource token does not cover {_place(route)}")
    if claims.partition_key is not None and not _is_of_items(route) and not (_is_container_read(route) and is_read):
        raise _forbidden(f"the resource token is for the items of one partition key, not for {_place(route)}")
    if not is_read and claims.mode != "All":
        raise _forbidden(f"the resource token allows reading only, not {method} on {_place(route)}")


def names_item_otherwise(claims: Claims, route: Route) -> bool:
    """Whether a token is for an item by its id and the path names one by its rid, or the other way round: then only the
    item tells whether it is the same (`check_token_item` of `items/documents.py`)."""
    if route.kind is not RouteKind.RESOURCE or route.resource_type != "docs":
        return False
    scope = _scope(claims)
    if len(scope) != _ITEM_LEVELS or len(scope[-1]) != 2:
        return False
    *owners, (item_type, _) = _levels(route.link)
    by_name, by_rid = scope[-1]
    is_unknown = not (by_rid if route.is_rid_based else by_name)[1]
    return item_type == by_name[0] and is_unknown and all(map(contains, scope, owners))


def is_for_item(claims: Claims, item_id: str, rid: str) -> bool:
    """Whether a token for an item is for this one."""
    by_name, by_rid = _scope(claims)[-1]
    return by_name[1] == item_id if by_name[1] else by_rid[1] == rid


def refuse_item(route: Route) -> Failure:
    return _forbidden(f"the resource token does not cover {_place(route)}")


def _is_of_items(route: Route) -> bool:
    """Whether a partition key is asked of it."""
    return route.resource_type == "docs" or route.kind in _ITEM_OPERATIONS


def _levels(link: str) -> list[tuple[str, str]]:
    """`dbs/a/colls/b` as (dbs, a), (colls, b)."""
    words = link.split("/") if link else []
    return list(zip(words[::2], words[1::2], strict=True))


def _scope(claims: Claims) -> list[tuple[tuple[str, str], ...]]:
    """Each level of the token's resource, by name and by rid: paths may mix the two."""
    forms = [_levels(link) for link in (claims.name_link, claims.rid_link) if link]
    return list(zip(*forms, strict=True))


def _is_container_read(route: Route) -> bool:
    if route.kind is RouteKind.RESOURCE:
        return route.resource_type == "colls"
    return route.resource_type == "pkranges"


def _place(route: Route) -> str:
    words = (route.link, route.resource_type) if route.kind is RouteKind.FEED else (route.link,)
    return "/" + "/".join(word for word in words if word)


def _forbidden(reason: str, **details: Any) -> Failure:
    return Failure(Kind.FORBIDDEN, f"The request is not permitted: {reason}.", details=details)
