"""Commands of logical sessions: startSession, refreshSessions, endSessions, killSessions and killAllSessions. Sessions
themselves are in `sessions.py`.
"""

from __future__ import annotations

from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64

from armillary import limits
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.sessions.sessions import session_id_of
from armillary.model.bson.bson_values import Document


async def start_session(call: Call) -> Reply:
    session_id = bytes.fromhex(call.clock.guid().replace("-", ""))
    call.services.sessions_of(call.client).find(session_id)
    return {"id": {"id": Binary(session_id, UUID_SUBTYPE)}, "timeoutMinutes": limits.MONGO_SESSION_SECONDS // 60}


async def refresh_sessions(call: Call) -> Reply:
    for lsid in call.fields.documents(call.name):
        call.services.sessions_of(call.client).find(session_id_of(lsid))
    return {}


async def end_sessions(call: Call) -> Reply:
    for lsid in call.fields.documents(call.name):
        await call.services.end_session(call.services.sessions_of(call.client), session_id_of(lsid))
    return {}


async def kill_sessions(call: Call) -> Reply:
    """Sessions of clients with the same grant: all, if none is named."""
    wanted = call.fields.documents(call.name)
    own = call.services.sessions_of(call.client)
    for session_id in [session_id_of(each) for each in wanted] if wanted else [each.id for each in own.all()]:
        await call.services.end_session(own, session_id)
    return {}


async def kill_all_sessions(call: Call) -> Reply:
    """All of them: there is one user."""
    call.fields.array(call.name)
    for sessions in call.services.all_sessions:
        for session in sessions.all():
            await call.services.end_session(sessions, session.id)
    return {}


def listed(call: Call) -> list[Document]:
    """As $listLocalSessions shows them."""
    return [
        {"_id": {"id": Binary(each.id, UUID_SUBTYPE)}, "txnNumber": Int64(each.txn_number)}
        for each in call.services.sessions_of(call.client).all()
    ]
