"""The account's keys over the control API: shown, and regenerated while clients go on with the other ones."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from armillary import audit
from armillary.account.security.credentials import Credentials
from armillary.doors.control.call import Call
from armillary.errors import Failure, Kind
from armillary.net.http import Response


async def list_keys(call: Call) -> Response:
    call.query()
    keys = _credentials(call).keys
    audit.record("keys.read")
    return call.answer({"keys": keys})


async def regenerate_key(call: Call) -> Response:
    call.fields("a new key").end()
    await asyncio.sleep(0)
    name = call.names[0]
    return call.answer({"name": name, "key": await _credentials(call).regenerate(name)})


async def list_connection_strings(call: Call) -> Response:
    """For each door and key what clients are configured with, in the form that their SDKs read."""
    call.query()
    account, addresses = call.account.settings.name, call.services.addresses
    keys = {name: key for name, key in _credentials(call).keys.items() if key is not None}
    is_secure = addresses.get("sql", "").startswith("https:")
    audit.record("keys.read")
    strings = [
        {
            "door": door,
            "key": name,
            "value": _connection_string(door, addresses[door], account, key, is_secure=is_secure),
        }
        for door in addresses
        for name, key in keys.items()
    ]
    return call.answer({"connectionStrings": strings})


def _connection_string(door: str, address: str, account: str, key: str, *, is_secure: bool) -> str:
    scheme, _, place = address.partition("://")
    if door == "mongo":
        tls = "&tls=true" if is_secure else ""
        return f"mongodb://{account}:{quote(key, safe='')}@{place}/?replicaSet=globaldb{tls}"
    if door == "table":
        names = f"DefaultEndpointsProtocol={scheme};AccountName={account};AccountKey={key}"
        return f"{names};TableEndpoint={address}/;"
    return f"AccountEndpoint={address}/;AccountKey={key};" + ("ApiKind=Gremlin;" if door == "gremlin" else "")


def _credentials(call: Call) -> Credentials:
    if call.services.credentials is None:
        raise Failure(Kind.UNSUPPORTED, "The keys of this account cannot be changed here.")
    return call.services.credentials
