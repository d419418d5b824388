"""`GET /`: what clients learn of the account. They move all later traffic to the endpoints named here, so these are
made from the address that the operator advertises, or else from the host that the client used, whatever stands between.
"""

from __future__ import annotations

import orjson

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
_REGION = "South Central US"
_HOST_BYTES_MAX = 255
# JavaScript drops the locations of an account with this id (the emulator's may be out of reach), and then reads the
# account twice before every operation. Ours are the host that the client used, so it shall keep them.
_SHUNNED_NAME, _SHOWN_NAME = "localhost", "armillary"


async def read_account(call: Call) -> Response:
    account = call.account
    locations = [{"name": _REGION, "databaseAccountEndpoint": _endpoint(call)}]
    body = {
        "_self": "",
        "id": account.settings.name if account.settings.name != _SHUNNED_NAME else _SHOWN_NAME,
        "_rid": account.settings.name,
        "media": "//media/",
        "addresses": "//addresses/",
        "_dbs": "//dbs/",
        "writableLocations": locations,
        "readableLocations": locations,
        "enableMultipleWriteLocations": False,
        "continuousBackupEnabled": False,
        "enablePerPartitionFailoverBehavior": False,
        "userReplicationPolicy": {"asyncReplication": False, "minReplicaSetSize": 1, "maxReplicasetSize": 1},
        "userConsistencyPolicy": {"defaultConsistencyLevel": account.settings.consistency},
        "systemReplicationPolicy": {"minReplicaSetSize": 1, "maxReplicasetSize": 1, "asyncReplication": False},
        "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
        "queryEngineConfiguration": _QUERY_ENGINE_TEXT,
    }
    extra = [(b"x-ms-max-media-storage-usage-mb", b"0"), (b"x-ms-media-storage-usage-mb", b"0")]
    return call.answer(200, 0.0, orjson.dumps(body), extra)


def _endpoint(call: Call) -> str:
    scheme = call.headers.get(b"x-forwarded-proto", b"https" if call.request.is_tls else b"http").lower()
    text = call.services.advertised or _host(call)
    if not text or len(text) > _HOST_BYTES_MAX or not text.isprintable() or set(text) & set(' /\\?#"<>@'):
        raise bad_request("The Host header is missing or is not a host name: clients are told to come back to it.")
    if scheme not in (b"http", b"https"):
        raise bad_request("X-Forwarded-Proto must be http or https.")
    return f"{scheme.decode()}://{text}/"


def _host(call: Call) -> str:
    try:
        return call.headers.get(b"host", b"").decode("ascii")
    except UnicodeDecodeError:
        return ""
