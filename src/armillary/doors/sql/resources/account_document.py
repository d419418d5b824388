"""`GET /`: what clients learn of the account. They move all later traffic to the endpoints named here, so these are
made from the address that the operator advertises, or else from the host that the client used, whatever stands between.
In a cluster they are the addresses that its nodes have announced.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import orjson

from armillary.account.topology import Member, Topology
from armillary.account.visits.consistency import BOUNDED_STALENESS
from armillary.doors.sql.call import Call
from armillary.errors import bad_request
from armillary.net.http import Response

_QUERY_ENGINE = {
    "allowNewKeywords": True,
    "maxJoinsPerSqlQuery": 10,
    "maxQueryRequestTimeoutFraction": 0.9,
    "maxSqlQueryInputLength": 524288,
    "maxUdfRefPerSqlQuery": 10,
    "maxLogicalAndPerSqlQuery": 2000,
    "maxLogicalOrPerSqlQuery": 2000,
    "maxInExpressionItemsCount": 16000,
    "queryMaxInMemorySortDocumentCount": 500,
    "maxSpatialQueryCells": 2147483647,
    "spatialMaxGeometryPointCount": 256,
    "sqlAllowNonFiniteNumbers": False,
    "sqlDisableOptimizationFlags": 0,
    "sqlAllowAggregateFunctions": True,
    "sqlAllowGroupByClause": True,
    "sqlAllowLike": True,
    "sqlAllowScalarSubQuery": True,
    "sqlAllowSubQuery": True,
    "sqlAllowTop": True,
    "enableSpatialIndexing": True,
}
_QUERY_ENGINE_TEXT = orjson.dumps(_QUERY_ENGINE).decode()
_HOST_BYTES_MAX = 255
Location = dict[str, str]
# JavaScript drops the locations of an account with this id (the emulator's may be out of reach), and then reads the
# account twice before every operation. Ours are the host that the client used, so it shall keep them.
_SHUNNED_NAME, _SHOWN_NAME = "localhost", "armillary"


async def read_account(call: Call) -> Response:
    account = call.account
    settings, topology = account.settings, account.topology
    if topology is None:
        writable = readable = [_location(settings.region, _endpoint(call))]
        replicas = 1
    else:
        writable, readable = _locations(call, topology)
        replicas = len(topology.members)
    # What a node has acknowledged is in the log; the other nodes apply it afterwards.
    replication = {"asyncReplication": replicas > 1, "minReplicaSetSize": 1, "maxReplicasetSize": replicas}
    policy: dict[str, str | int] = {"defaultConsistencyLevel": settings.consistency}
    if settings.consistency == BOUNDED_STALENESS:
        policy["maxStalenessPrefix"] = settings.staleness_transactions
        policy["maxIntervalInSeconds"] = settings.staleness_s
    body = {
        "_self": "",
        "id": settings.name if settings.name != _SHUNNED_NAME else _SHOWN_NAME,
        "_rid": settings.name,
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": writable,
        "readableLocations": readable,
        "enableMultipleWriteLocations": False,
        "continuousBackupEnabled": False,
        "enablePerPartitionFailoverBehavior": False,
        "userReplicationPolicy": replication,
        "userConsistencyPolicy": policy,
        "systemReplicationPolicy": replication,
        "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
        "queryEngineConfiguration": _QUERY_ENGINE_TEXT,
    }
    extra = [(b"x-ms-max-media-storage-usage-mb", b"0"), (b"x-ms-media-storage-usage-mb", b"0")]
    return call.answer(200, 0.0, orjson.dumps(body), extra)


def _locations(call: Call, topology: Topology) -> tuple[list[Location], list[Location]]:
    """Where clients of a cluster write, and where they read: the write region first, then by failover priority. Each
    region has one endpoint: that of this node for its region, that of the first live node for another one. Writes come
    to this node, whichever region leads, and it forwards them. SDKs read this document every five minutes only, and
    would go on until then with the address of a leader that has died."""
    scheme = _scheme(call)
    leader = topology.leader
    announced = [
        leader if leader is not None and each.name == leader.name else each
        for each in topology.members
        if "sql" in each.addresses
    ]
    here = next((_address(each, scheme) for each in announced if each.name == topology.name), None) or _endpoint(call)
    endpoints = {each.region: _address(each, scheme) for each in reversed(announced) if each.is_alive}
    endpoints[topology.region] = here
    leader = leader if leader in announced else None
    write_region = leader.region if leader is not None else next(iter(topology.regions), topology.region)
    regions = dict.fromkeys((write_region, *topology.regions, topology.region))
    return (
        [_location(write_region, here)],
        [_location(region, endpoints[region]) for region in regions if region in endpoints],
    )


def _address(member: Member, scheme: str) -> str:
    """The address that a node announced, with the scheme that this client uses: a port takes both."""
    return f"{scheme}://{urlsplit(member.addresses['sql']).netloc}/"


def _location(region: str, endpoint: str) -> Location:
    return {"name": region, "databaseAccountEndpoint": endpoint}


def _endpoint(call: Call) -> str:
    text = call.services.advertised or _host(call)
    if not text or len(text) > _HOST_BYTES_MAX or not text.isprintable() or set(text) & set(' /\\?#"<>@'):
        raise bad_request("The Host header is missing or is not a host name: clients are told to come back to it.")
    return f"{_scheme(call)}://{text}/"


def _scheme(call: Call) -> str:
    scheme = call.headers.get(b"x-forwarded-proto", b"https" if call.request.is_tls else b"http").lower()
    if scheme not in (b"http", b"https"):
        raise bad_request("X-Forwarded-Proto must be http or https.")
    return scheme.decode()


def _host(call: Call) -> str:
    try:
        return call.headers.get(b"host", b"").decode("ascii")
    except UnicodeDecodeError:
        return ""
