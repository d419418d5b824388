"""Connection strings: what clients of each door are configured with, in the form that their SDKs and tools read. The
start message, the commands, the control API, the portal and the management API all show these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

CLIENT_DOORS: Final = ("sql", "table", "mongo", "gremlin")  # those whose clients have the account's keys
TITLES: Final = {"sql": "SQL (NoSQL)", "table": "Table", "mongo": "MongoDB", "gremlin": "Gremlin"}
KEY_MARK: Final = "<key>"  # in the place of a key that is not shown
_MARK_IN_URL: Final = quote(KEY_MARK, safe="")  # as in the strings of MongoDB


class ConnectionString(NamedTuple):
    """What a client of one door is given, with one of the account's keys."""

    door: str
    key_name: str  # such as primary
    value: str


def connection_strings(
    addresses: Mapping[str, str], account: str, keys: Mapping[str, str | None]
) -> Iterator[ConnectionString]:
    """Of each open door and each key that there is. `addresses`: of the doors, as clients reach them."""
    is_secure = addresses.get("sql", "").startswith("https:")
    for door in CLIENT_DOORS:
        for name, key in keys.items():
            if door in addresses and key is not None:
                value = connection_string(door, addresses[door], account, key, is_secure=is_secure)
                yield ConnectionString(door, name, value)


def connection_string(door: str, address: str, account: str, key: str, *, is_secure: bool) -> str:
    """In the form that the SDKs of a door read. `address`: of the door, with its scheme. `is_secure`: whether clients
    of MongoDB are to use TLS, for which the string has an option: the scheme of their addresses does not tell.
    """
    scheme, _, place = address.partition("://")
    if door == "mongo":
        tls = "&tls=true" if is_secure else ""
        return f"mongodb://{account}:{quote(key, safe='')}@{place}/?replicaSet=globaldb{tls}"
    if door == "table":
        names = f"DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key}"
        return f"{names};TableEndpoint={address}/;"
    return f"AccountEndpoint={address}/;AccountKey={key};" + ("ApiKind=Gremlin;" if door == "gremlin" else "")


def strings_without_key(endpoints: Mapping[str, Sequence[str]], account: str) -> dict[str, str]:
    """For each door its string with `<key>` in the place of the key; empty for a door that the account's keys do not
    open. `endpoints`: the addresses of each door, the preferred one first."""
    is_secure = any(each.startswith("https:") for each in endpoints.get("sql", ())[:1])
    return {
        door: connection_string(door, found[0], account, KEY_MARK, is_secure=is_secure).replace(_MARK_IN_URL, KEY_MARK)
        if door in CLIENT_DOORS
        else ""
        for door, found in endpoints.items()
    }
