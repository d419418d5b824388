"""The account over the management API: shown, listed, its keys and connection strings. It is created by starting a
server and changed by the server's settings, so there is no request for that.
"""

from __future__ import annotations

from typing import Any, Final

from armillary import audit
from armillary.account.security.connection_strings import CLIENT_DOORS, connection_strings
from armillary.account.visits.consistency import BOUNDED_STALENESS
from armillary.doors.management.addresses import ACCOUNTS, PROVIDER
from armillary.doors.management.call import Action, Call
from armillary.errors import Failure, Kind, bad_request
from armillary.net.http import Response

_KEYS: Final = {
    "primary": "primaryMasterKey",
    "secondary": "secondaryMasterKey",
    "primaryReadonly": "primaryReadonlyMasterKey",
    "secondaryReadonly": "secondaryReadonlyMasterKey",
}
_READ_ONLY: Final = ("primaryReadonly", "secondaryReadonly")
_DESCRIPTIONS: Final = {"sql": "SQL", "table": "Table", "mongo": "MongoDB", "gremlin": "Gremlin"}
_TYPES: Final = {"sql": "Sql", "table": "Table", "mongo": "MongoDB", "gremlin": "Gremlin"}


async def show_account(call: Call) -> Response:
    return call.answer(_shown(call))


async def list_accounts(call: Call) -> Response:
    return call.answer({"value": [_shown(call)]})


async def list_keys(call: Call) -> Response:
    call.refuse_body()
    if call.grant.is_read_only:
        raise Failure(Kind.FORBIDDEN, "The read-only control key is told the read-only keys alone: use readonlykeys.")
    return _answer_keys(call, tuple(_KEYS))


async def list_read_only_keys(call: Call) -> Response:
    call.refuse_body()
    return _answer_keys(call, _READ_ONLY)


def _answer_keys(call: Call, names: tuple[str, ...]) -> Response:
    keys = call.services.credentials.keys
    audit.record("keys.read")
    return call.answer({_KEYS[name]: keys[name] for name in names if keys[name] is not None})


async def list_connection_strings(call: Call) -> Response:
    """With the read-only control key, those with read-only keys."""
    call.refuse_body()
    keys = call.services.credentials.keys
    told = {name: key for name, key in keys.items() if name in _READ_ONLY or not call.grant.is_read_only}
    audit.record("keys.read")
    found = [
        {
            "connectionString": each.value,
            "description": f"{_described(each.key_name)} {_DESCRIPTIONS[each.door]} Connection String",
            "keyKind": each.key_name[0].upper() + each.key_name[1:],
            "type": _TYPES[each.door],
        }
        for each in connection_strings(call.services.addresses, call.account.settings.name, told)
    ]
    return call.answer({"connectionStrings": found})


def _described(key_name: str) -> str:
    return key_name.removesuffix("Readonly").capitalize() + (" Read-Only" if key_name in _READ_ONLY else "")


async def regenerate_key(call: Call) -> Response:
    body = call.members()
    kind = body.text("keyKind") or ""
    body.end()
    if kind not in _KEYS:
        raise bad_request(f"'keyKind' must be one of {', '.join(_KEYS)}.")
    await call.services.credentials.regenerate(kind)
    return Response(200, call.headers)


def _shown(call: Call) -> dict[str, Any]:
    settings = call.account.settings
    addresses = call.services.addresses
    policy: dict[str, Any] = {"defaultConsistencyLevel": settings.consistency}
    if settings.consistency == BOUNDED_STALENESS:
        policy["maxStalenessPrefix"] = settings.staleness_transactions
        policy["maxIntervalInSeconds"] = settings.staleness_s
    regions = _regions(call)
    locations = [_location(call, region, place) for place, region in enumerate(regions)]
    policies = [{name: each[name] for name in ("id", "locationName", "failoverPriority")} for each in locations]
    endpoints = {f"{door}Endpoint": f"{addresses[door]}/" for door in CLIENT_DOORS if door in addresses}
    return {
        "id": call.address.account_id(settings.name),
        "name": settings.name,
        "location": settings.region,
        "type": f"{PROVIDER}/{ACCOUNTS}",
        "kind": "GlobalDocumentDB",
        "tags": {},
        "properties": {
            "provisioningState": "Succeeded",
            "documentEndpoint": _endpoint(call),
            **endpoints,
            "databaseAccountOfferType": "Standard",
            "consistencyPolicy": policy,
            "writeLocations": locations[:1],
            "readLocations": locations,
            "locations": locations,
            "failoverPolicies": policies,
            "enableAutomaticFailover": call.account.topology is not None,
            "enableMultipleWriteLocations": False,
            "enableBurstCapacity": settings.has_burst,
            "enablePartitionMerge": settings.merges_by_policy,
            "capacityMode": "Serverless" if settings.is_serverless else "Provisioned",
            "capabilities": [{"name": "EnableServerless"}] if settings.is_serverless else [],
            "disableLocalAuth": False,
        },
    }


def _regions(call: Call) -> list[str]:
    """The write region first."""
    topology = call.account.topology
    if topology is None:
        return [call.account.settings.region]
    return list(dict.fromkeys((*topology.regions, topology.region)))


def _location(call: Call, region: str, priority: int) -> dict[str, Any]:
    return {
        "id": f"{call.account.settings.name}-{region.lower().replace(' ', '')}",
        "locationName": region,
        "documentEndpoint": _endpoint(call, region),
        "provisioningState": "Succeeded",
        "failoverPriority": priority,
        "isZoneRedundant": False,
    }


def _endpoint(call: Call, region: str | None = None) -> str:
    topology = call.account.topology
    announced = [
        each.addresses["sql"]
        for each in (topology.members if topology is not None else ())
        if each.region == region and each.is_alive and "sql" in each.addresses
    ]
    return f"{announced[0] if announced else call.services.addresses['sql']}/"


ACTIONS: Final[tuple[tuple[str, str, Action], ...]] = (
    ("GET", "", show_account),
    ("POST", "listKeys", list_keys),
    ("POST", "readonlykeys", list_read_only_keys),
    ("GET", "readonlykeys", list_read_only_keys),
    ("POST", "listConnectionStrings", list_connection_strings),
    ("POST", "regenerateKey", regenerate_key),
)
READING: Final = (list_read_only_keys, list_connection_strings)  # by POST, and change nothing
