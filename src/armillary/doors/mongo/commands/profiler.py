"""The profiler: duration and charge of commands, written to the capped collection `system.profile` of their database,
for all commands or for slow ones. Levels are lost when the server stops, as with MongoDB.
"""

from __future__ import annotations

import logging
from typing import Final

from bson.datetime_ms import DatetimeMS

from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply, read_only
from armillary.doors.mongo.errors import code_of, message_of
from armillary.doors.mongo.replica_set import admission
from armillary.doors.mongo.settings import Grant, ProfilingLevel
from armillary.doors.mongo.wire.messages import Request, decode_document
from armillary.doors.mongo.writing.inserts import new_id
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import code_name, refusal
from armillary.model.bson.bson_values import Document, encode, shell_text

log = logging.getLogger(__name__)

COLLECTION: Final = "system.profile"
FIELDS: Final = frozenset("profile slowms sampleRate filter".split())
_SIZE_BYTES: Final = 1 << 20
_COMMAND_BYTES_MAX: Final = 50_000
_OPERATIONS: Final = {"find": "query", "insert": "insert", "update": "update", "delete": "remove", "getMore": "getmore"}
_STATEMENTS: Final = {"update": "updates", "delete": "deletes"}
WITH_SECRETS: Final = frozenset("saslStart saslContinue hello isMaster ismaster createUser updateUser".split())
# Commands that would recreate the collection, and those with secrets.
_NOT_NOTED: Final = WITH_SECRETS | {"dropDatabase", "profile"}


async def note(call: Call, took_ms: int, failure: Failure | None) -> None:
    """Write an answered command to the profile, if the level asks for it."""
    wanted = call.services.profiler.of(call.database)
    if not wanted.level or call.name in _NOT_NOTED or (wanted.level == 1 and took_ms < wanted.slow_ms):
        return
    if wanted.sample_rate < 1 and int.from_bytes(call.clock.random_bytes(4), "big") / 2**32 >= wanted.sample_rate:
        return
    member = call.services.membership
    if member is not None and not member.leads:
        return
    try:
        container = await _collection(call)
        document = {"_id": new_id(call), **_noted(call, took_ms, failure)}
        await document_operations.write(
            container, document_operations.inserting(container, document, encode(document), call.clock)
        )
    except Failure as failed:
        log.warning("a command could not be noted in %s.%s: %s", call.database, COLLECTION, failed.message)


async def _collection(call: Call) -> Container:
    """Created by a call of its own, so that it is not part of the command's transaction."""
    own = Call(call.services, call.client, "profile", Request({"profile": 2, "$db": call.database}, b"", {}))
    found = namespaces.find(own, COLLECTION)
    if found is not None:
        return found
    try:
        return await namespaces.create(own, COLLECTION, (), None, {"capped": True, "size": _SIZE_BYTES})
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise
    return namespaces.existing(own, COLLECTION)


def _shown_command(call: Call) -> Document:
    """The command as MongoDB notes it: of an update or a delete the statement, if there is one."""
    if len(call.raw_body) + sum(map(len, call.sequences.get(_STATEMENTS.get(call.name, ""), ()))) > _COMMAND_BYTES_MAX:
        return {"$truncated": shell_text(call.body)[:_COMMAND_BYTES_MAX]}
    field = _STATEMENTS.get(call.name)
    if field is None:
        return call.body
    encoded = call.sequences.get(field)
    statements = [decode_document(each) for each in encoded] if encoded is not None else call.body.get(field)
    if type(statements) is not list or len(statements) != 1 or type(statements[0]) is not dict:
        return call.body
    statement: Document = dict(statements[0])
    if type(statement.get("hint")) is str:
        statement["hint"] = {"$hint": statement["hint"]}
    return statement | {name: call.body[name] for name in ("comment", "let") if name in call.body}


def _noted(call: Call, took_ms: int, failure: Failure | None) -> Document:
    target = call.body.get("collection" if call.name == "getMore" else call.name)
    noted: Document = {
        "op": _OPERATIONS.get(call.name, "command"),
        "ns": f"{call.database}.{target if isinstance(target, str) else '$cmd'}",
        "command": _shown_command(call),
        "keysExamined": call.keys_examined,
        "docsExamined": call.documents_examined,
        "requestCharge": round(call.charge_ru, 2),
        "protocol": "op_msg",
        "millis": took_ms,
        "ts": DatetimeMS(int(call.clock.now_s() * 1000)),
        "client": call.client.remote[0],
        "appName": call.client.app_name,
        "allUsers": [],
        "user": call.client.user or "",
    }
    if call.documents_returned is not None:
        noted["nreturned"] = call.documents_returned
    if failure is not None:
        code = code_of(failure)
        noted |= {"ok": 0.0, "errMsg": message_of(failure), "errName": code_name(code), "errCode": code}
    return noted


async def profile(call: Call) -> Reply:
    """Show the level, and change it if a new one is given."""
    before = call.services.profiler.of(call.database)
    level = call.fields.number("profile", 0, low=-1, high=2)
    if call.body.get("filter") is not None:
        raise refusal(115, "profile with 'filter' is not supported: look at what was noted with one.")
    if level >= 0:
        if call.client.grant is not Grant.WRITE:
            raise read_only(call)
        if level > 0:  # what is noted is written
            call.account.check_writable()
            admission.require_primary(call)
        rate = call.body.get("sampleRate", before.sample_rate)
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise refusal(2, "'sampleRate' must be between 0.0 and 1.0 inclusive")
        slow_ms = call.fields.number("slowms", before.slow_ms, low=-1)
        call.services.profiler.set(call.database, ProfilingLevel(level, slow_ms, float(rate)))
    return {"was": before.level, "slowms": before.slow_ms, "sampleRate": before.sample_rate}
