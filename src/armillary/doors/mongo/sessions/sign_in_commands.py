"""Commands of authentication: saslStart, saslContinue, the speculative step in hello, logout and connectionStatus. The
checks are in `authentication.py`; failed sign-ins are slowed down here.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.sessions.authorization import user_of
from armillary.doors.mongo.sessions.roles import READING, WRITING, privileges_of
from armillary.doors.mongo.settings import Grant
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document


async def start(call: Call) -> Reply:
    return await _slowed(call, call.services.authenticator.start(call.client, call.fields, call.database))


async def go_on(call: Call) -> Reply:
    return await _slowed(call, call.services.authenticator.go_on(call.client, call.fields))


async def _slowed(call: Call, step: Coroutine[Any, Any, Document]) -> Document:
    try:
        return await step
    except Failure as failure:
        call.services.authenticator.sign_in_log.refused(call.client.remote[0], "password")
        throttle = call.services.throttle
        is_failed = failure.kind is Kind.UNAUTHORIZED
        if is_failed and throttle is not None and not await throttle.refused(call.client.remote[0]):
            raise Failure(Kind.DROPPED, "Too many sign-ins of this address have failed.") from None
        raise


async def speculate(call: Call, wanted: Any) -> Document | None:
    """Speculative authentication in hello. If it fails, the client authenticates with saslStart."""
    if not isinstance(wanted, dict) or "saslStart" not in wanted or wanted.get("mechanism") == "PLAIN":
        return None
    try:
        database = wanted.get("db", call.database)
        given = Fields(wanted, "saslStart")
        return await call.services.authenticator.start(call.client, given, database if type(database) is str else "")
    except Failure:
        return None


async def get_nonce(call: Call) -> Reply:
    return {"nonce": call.clock.random_bytes(8).hex()}


async def authenticate(call: Call) -> Reply:
    mechanism = call.fields.text("mechanism", "MONGODB-CR")
    raise refusal(2, f"Unsupported mechanism '{mechanism[:64]}': authenticate with SCRAM-SHA-256")


async def log_out(call: Call) -> Reply:
    call.client.user = call.client.login = None
    call.client.grant = call.services.grant_of_strangers
    return {}


async def connection_status(call: Call) -> Reply:
    client = call.client
    user = user_of(call)
    if user is not None:
        users = [{"user": user.name, "db": user.database}]
        roles = [{"role": each.name, "db": each.database} for each in user.roles]
    else:
        users = [{"user": client.user, "db": "admin"}] if client.user is not None else []
        role = {Grant.READ: "readAnyDatabase", Grant.WRITE: "root"}.get(client.grant)
        roles = [{"role": role, "db": "admin"}] if users and role else []
    found: Document = {"authenticatedUsers": users, "authenticatedUserRoles": roles}
    if call.fields.flag("showPrivileges", False) and user is not None:
        found["authenticatedUserPrivileges"] = privileges_of(user)
    elif call.fields.flag("showPrivileges", False):
        actions = ["listDatabases", *READING, *((*WRITING, "dropDatabase") if client.grant is Grant.WRITE else ())]
        found["authenticatedUserPrivileges"] = (
            [{"resource": {"db": "", "collection": ""}, "actions": actions}] if roles else []
        )
    return {"authInfo": found}
