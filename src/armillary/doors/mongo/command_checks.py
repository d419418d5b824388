"""The checks of every command before it runs: its client's rights, its fields, its session and transaction number, its
time limit, and its read and write concerns.
"""

from __future__ import annotations

from bson.int64 import Int64

from armillary.doors.mongo.call import Call, Command, check_database, read_only
from armillary.doors.mongo.fields import GENERIC
from armillary.doors.mongo.sessions import authorization, read_write_concerns
from armillary.doors.mongo.sessions.authentication import unauthorized
from armillary.doors.mongo.sessions.sessions import session_id_of
from armillary.doors.mongo.settings import Grant
from armillary.languages.mongo.errors import refusal


def check(call: Call, command: Command, begun_s: float) -> None:
    """Refuse what must not run; note the session, the deadline and the concerns of what may."""
    client, body = call.client, call.body
    check_database(call.database)
    if not command.is_open and client.grant is Grant.NOTHING:
        raise unauthorized(call.name)
    if (command.writes or command.acts_on_others) and client.grant is not Grant.WRITE:
        raise read_only(call)
    if command.writes and call.account.is_read_only:
        call.account.check_writable()
    authorization.check(call, command)
    if command.is_admin and call.database != "admin":
        raise refusal(13, f"{call.name} may only be run against the admin database.")
    read_write_concerns.check_api(body, call.name, command.is_stable)
    if command.fields is not None:
        for name in body:
            if name not in command.fields and name not in GENERIC:
                raise refusal(40415, f"BSON field '{call.name}.{name}' is an unknown field.")
    lsid = body.get("lsid")
    if lsid is not None and not client.is_stranger:
        call.session = call.services.sessions_of(client).find(session_id_of(lsid, client.owner))
    number = body.get("txnNumber")
    if number is not None:
        if call.session is None:
            raise refusal(72, "Transaction number requires a session ID to also be specified")
        if not isinstance(number, Int64) or number < 0:
            raise refusal(72, "Transaction number must be a long that is not negative")
        call.txn_number = int(number)
    elif "autocommit" in body or "startTransaction" in body:
        raise refusal(72, "'autocommit' and 'startTransaction' require a transaction number to also be specified")
    limit_ms = call.fields.whole("maxTimeMS", low=0, high=0x7FFFFFFF)
    if limit_ms:
        call.deadline_s = begun_s + limit_ms / 1000
    if "readConcern" in body or "writeConcern" in body:
        call.extra = read_write_concerns.check(body, members=_counted_members(call))
        call.reads_past = read_write_concerns.reads_past(body) and call.name != "getMore"  # the cursor has its snapshot


def _counted_members(call: Call) -> int | None:
    services = call.services
    if not services.settings.has_test_commands:
        return None
    return 1 if services.membership is None else len(services.membership.hosts)
