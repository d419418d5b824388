"""Logical sessions, in which drivers number their retryable writes and transactions. A session exists from the first
command that names it and expires half an hour after the last.

Clients with a read-only key have a registry of their own: whatever id they send, they neither reach nor end the
sessions of clients that write, nor use up their number.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from bson.binary import UUID_SUBTYPE, Binary

from armillary import limits
from armillary.clock import Clock
from armillary.doors.mongo.sessions.transactions import Transaction
from armillary.doors.mongo.settings import Grant
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document


class Session:
    __slots__ = ("id", "last_used_s", "transaction", "txn_number")

    def __init__(self, session_id: bytes, now_s: float) -> None:
        self.id = session_id
        self.last_used_s = now_s
        self.txn_number = -1  # the highest so far
        self.transaction: Transaction | None = None  # of that number


class Sessions:
    """The sessions of all clients with one grant."""

    def __init__(self, clock: Clock, grant: Grant = Grant.WRITE) -> None:
        self._clock = clock
        self.grant = grant
        self._sessions: dict[bytes, Session] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: bytes) -> Session:
        """The session of this id, made if it is new."""
        now_s = self._clock.monotonic_s()
        session = self._sessions.pop(session_id, None)
        if session is None:
            if len(self._sessions) >= limits.MONGO_SESSIONS_MAX:
                raise refusal(
                    261, "Unable to add session into the cache because the number of active sessions is too high"
                )
            session = Session(session_id, now_s)
        session.last_used_s = now_s
        self._sessions[session_id] = session
        return session

    def known(self, session_id: bytes) -> Session | None:
        return self._sessions.get(session_id)

    def end(self, session_id: bytes) -> Session | None:
        return self._sessions.pop(session_id, None)

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def expire(self) -> list[Session]:
        """Remove the sessions that are past their timeout."""
        limit_s = self._clock.monotonic_s() - limits.MONGO_SESSION_SECONDS
        ended = []
        for session in self._sessions.values():
            if session.last_used_s > limit_s:
                break
            ended.append(session)
        for session in ended:
            del self._sessions[session.id]
        return ended


def session_id_of(lsid: Any, owner: str = "") -> bytes:
    """The id of a session. Users of databases have ids of their own, whatever other clients send."""
    if not isinstance(lsid, dict):
        raise refusal(14, "BSON field 'OperationSessionInfo.lsid' is the wrong type, expected type 'object'")
    given = lsid.get("id")
    if not isinstance(given, Binary) or given.subtype != UUID_SUBTYPE or len(given) != 16:
        raise refusal(207, "The id of a session is a UUID: binary of subtype 4")
    return bytes(given) if not owner else sha256(f"{owner}\0".encode() + given).digest()[:16]


def transaction_name(body: Document) -> str | None:
    """For captures: the same for all commands of one transaction; None for commands that are in none."""
    if "autocommit" not in body or not isinstance(body.get("lsid"), dict):
        return None
    return f"{body['lsid'].get('id')!r}:{body.get('txnNumber')}"
