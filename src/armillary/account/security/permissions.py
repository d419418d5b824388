"""Users, permissions and client encryption keys as resources. What a resource token allows is decided by the SQL
door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from armillary.account.account import Account
from armillary.account.catalog.container_state import Body
from armillary.account.catalog.records import Record
from armillary.errors import Failure, Kind, bad_request
from armillary.model.items import strip_system_properties, validate_name
from armillary.model.resources import ResourceType, rid_bytes

_MODES = ("Read", "All")  # each allows what those before it do
_GRANT, _GRANT_BYTES = "grant", 8  # in the state of a permission

# What a permission may be for: the types in its link, outermost first.
_IN_CONTAINER = ("docs", "sprocs", "triggers", "udfs", "conflicts")
_RESOURCES = {("dbs",), ("dbs", "colls"), ("dbs", "clientencryptionkeys")} | {
    ("dbs", "colls", each) for each in _IN_CONTAINER
}


def user_body(given: Any) -> tuple[str, Body]:
    if not isinstance(given, dict):
        raise bad_request("A user must be a JSON object with 'id'.")
    name = validate_name(given.get("id"))
    body = strip_system_properties(given)
    _refuse_unknown(body, {"id", "_permissions"}, f"user '{name}'")
    return name, {"id": name}


def permission_body(given: Any) -> tuple[str, Body]:
    if not isinstance(given, dict):
        raise bad_request("A permission must be a JSON object with 'id', 'permissionMode' and 'resource'.")
    name = validate_name(given.get("id"))
    body = strip_system_properties(given)
    _refuse_unknown(
        body, {"id", "permissionMode", "resource", "resourcePartitionKey", "_token"}, f"permission '{name}'"
    )
    mode = body.get("permissionMode")
    if not isinstance(mode, str) or mode.lower() not in ("read", "all"):
        raise bad_request(f"'permissionMode' must be Read or All, not {mode!r}.")
    resource = body.get("resource")
    if not isinstance(resource, str) or not resource.strip("/"):
        raise bad_request("'resource' of a permission must be the link of what it permits, e.g. dbs/<db>/colls/<coll>.")
    words = resource.strip("/").split("/")
    types = tuple(words[::2])
    if types not in _RESOURCES or len(words) != 2 * len(types) or not all(words):
        raise bad_request(
            f"The permission's resource '{resource}' is not the link of a database, a container, a client encryption "
            "key, or of an item, script or conflict, such as dbs/<db>/colls/<coll>."
        )
    made: Body = {"id": name, "permissionMode": mode, "resource": resource}
    key = body.get("resourcePartitionKey")
    if key is not None:
        if types[:2] != ("dbs", "colls"):
            raise bad_request("'resourcePartitionKey' narrows a permission for a container, or for something in one.")
        if not isinstance(key, list) or any(isinstance(part, list) for part in key):
            raise bad_request("'resourcePartitionKey' must be an array of key values.")
        made["resourcePartitionKey"] = key
    return name, made


def refuse_second_permission(account: Account, user: Record, body: Body) -> None:
    """A user has one permission for a resource (and a partition key of it)."""
    for present in account.catalog.children(ResourceType.PERMISSION, user.rid):
        same_resource = present.body["resource"].strip("/") == body["resource"].strip("/")
        keys = [_key_text(each.get("resourcePartitionKey")) for each in (present.body, body)]
        if same_resource and keys[0] == keys[1] and present.name != body["id"]:
            raise Failure(
                Kind.CONFLICT,
                f"The user '{user.name}' has a permission for this resource already: '{present.name}'. Change it.",
            )


class Moved(NamedTuple):
    """Permissions for a container whose name another one takes."""

    present: list[Record]
    changed: list[Record]  # in their places
    left: int  # that stay with the old one: their users have to be granted others


def moved_permissions(account: Account, old: Record, new: Record, kept_as: str) -> Moved:
    """Permissions go with the name, but not those for partition keys: a value of the old key means something else
    under the new one. Nor do those for an item by its rid."""
    moved = Moved([], [], 0)
    for user in account.catalog.children(ResourceType.USER, old.owner):
        for permission in account.catalog.children(ResourceType.PERMISSION, user.rid):
            words = permission.body["resource"].strip("/").split("/")
            if len(words) < 4 or words[2] != ResourceType.CONTAINER.value or not _is_in(account, words[1], old.owner):
                continue
            if account.catalog.find(ResourceType.CONTAINER, old.owner, words[3]) is not old:
                continue
            link = _moved_link(account, words, old, new, kept_as, has_key="resourcePartitionKey" in permission.body)
            if link[3] in (kept_as, old.rid_text):
                moved = moved._replace(left=moved.left + 1)
            if link != words:
                moved.present.append(permission)
                body = {**permission.body, "resource": "/".join(link)}
                moved.changed.append(replace(permission, body=body, state={**permission.state, **new_grant(account)}))
    return moved


def _is_in(account: Account, word: str, database_rid: bytes) -> bool:
    found = account.catalog.find(ResourceType.DATABASE, b"", word)
    return found is not None and found.rid == database_rid


def _moved_link(
    account: Account, words: list[str], old: Record, new: Record, kept_as: str, *, has_key: bool
) -> list[str]:
    is_by_name = words[3] == old.name
    if has_key:
        return [*words[:3], kept_as, *words[4:]] if is_by_name else words
    if is_by_name:
        return words
    if len(words) == 4:
        return [*words[:3], new.rid_text]
    script_types = {each.value: each for each in (ResourceType.PROCEDURE, ResourceType.TRIGGER, ResourceType.FUNCTION)}
    script_type = script_types.get(words[4])
    script = account.catalog.find(script_type, old.rid, words[5]) if script_type is not None else None
    found = account.catalog.find(script.type, new.rid, script.name) if script is not None else None
    return [*words[:3], new.rid_text, words[4], found.rid_text] if found is not None else words


def is_in_force(account: Account, permission_rid: str, mode: str, partition_key: list[Any] | None, grant: str) -> bool:
    """Whether there is a permission, and it allows as much as when a token was made of it."""
    record = account.catalog.get(ResourceType.PERMISSION, rid_bytes(permission_rid) or b"")
    if record is None or grant_of(record) != grant:
        return False
    return not _is_less(record.body, mode, partition_key)


def grant_of(permission: Record) -> str:
    """Which of its grants a permission is at: a random text for each time that it came to allow something else. A
    counter would come again after a snapshot was restored."""
    grant: str = permission.state.get(_GRANT, "")
    return grant


def regranting(account: Account, permission: Record, body: Body) -> Callable[[Body], Body]:
    """What becomes of the state of a permission that becomes `body`: a new grant if tokens of before must end, because
    they would allow what it does not."""
    grant = new_grant(account)

    def change(state: Body) -> Body:
        present = account.catalog.get(ResourceType.PERMISSION, permission.rid) or permission
        before = present.body
        is_moved = before["resource"].strip("/") != body["resource"].strip("/")
        mode = before["permissionMode"].capitalize()
        is_less = is_moved or _is_less(body, mode, before.get("resourcePartitionKey"))
        return {**state, **grant} if is_less else state

    return change


def new_grant(account: Account) -> Body:
    """As part of the state of a permission."""
    return {_GRANT: account.clock.random_bytes(_GRANT_BYTES).hex()}


def _is_less(body: Body, mode: str, partition_key: list[Any] | None) -> bool:
    """Whether a permission allows less than one with this mode and partition key."""
    if _MODES.index(body["permissionMode"].capitalize()) < _MODES.index(mode):
        return True
    key = body.get("resourcePartitionKey")
    return key is not None and _key_text(key) != _key_text(partition_key)


def _key_text(key: list[Any] | None) -> bytes:
    """Equal for equal keys: Python would take true and 1 for equal."""
    return orjson.dumps(key)


def rid_of(account: Account, type_word: str, owner: str, name: str) -> str | None:
    """Of a resource of the catalog by its type, the rid of its owner and its name (or rid)."""
    if type_word == ResourceType.ITEM.value:
        return None
    record = account.catalog.find(ResourceType(type_word), rid_bytes(owner) or b"", name)
    return record.rid_text if record is not None else None


def encryption_key_body(given: Any) -> tuple[str, Body]:
    if not isinstance(given, dict):
        raise bad_request("A client encryption key must be a JSON object with 'id'.")
    name = validate_name(given.get("id"))
    body = strip_system_properties(given)
    known = {"id", "encryptionAlgorithm", "wrappedDataEncryptionKey", "keyWrapMetadata"}
    _refuse_unknown(body, known, f"client encryption key '{name}'")
    if not isinstance(body.get("wrappedDataEncryptionKey"), str):
        raise bad_request(f"Client encryption key '{name}' needs 'wrappedDataEncryptionKey', a base64 string.")
    if not isinstance(body.get("keyWrapMetadata"), dict):
        raise bad_request(f"Client encryption key '{name}' needs 'keyWrapMetadata', an object.")
    return name, body


def _refuse_unknown(body: Body, known: set[str], what: str) -> None:
    unknown = sorted(body.keys() - known)
    if unknown:
        raise bad_request(f"Unknown property '{unknown[0]}' in {what}.")
