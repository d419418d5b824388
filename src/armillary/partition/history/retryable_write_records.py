"""Records of retryable writes: the answer to each is stored in the partition by the transaction that applies it, so
that a write that the client sends again is applied once, even after a crash. A client numbers its writes within a
session; only the last number can be retried.

There are few records: one for each transaction of the last write number of each session. A split copies all of them to
both children, because a record does not say which keys it concerns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bson.errors import BSONError

from armillary import limits, work
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.bson.bson_values import decode, encode
from armillary.partition.operations import Outcome
from armillary.storage.engine import Txn, View

_KEY = struct.Struct(">16sQI")
_STATEMENT_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Record:
    """The session and number of a retryable write, for the transaction that applies it."""

    session: bytes  # 16 bytes
    number: int
    statements: tuple[int, ...]  # the command's statements in this write, one for each operation
    # The stored answer to each statement. None: what the statements returned, or how many documents they changed.
    answers: tuple[bytes, ...] | None = None
    is_scattered: bool = False  # the statements may also be recorded in other groupings

    @property
    def key(self) -> bytes:
        return layout.RECORDS + _KEY.pack(self.session, self.number, self.statements[0])


class Repeated(Exception):
    """The write was applied before; carries the recorded answers. Never leaves the callers of the partition package."""

    SENT: ClassVar = {"answers": dict[int, bytes]}

    def __init__(self, answers: dict[int, bytes]) -> None:
        super().__init__("done before")
        self.answers = answers  # by statement


@dataclass(slots=True)
class _Last:
    """The last write number of a session."""

    number: int
    written_s: int
    values: list[bytes]  # as stored, parsed only when a retry asks for them
    keys: list[bytes]
    outdated_by: int = -1  # the number whose first transaction deletes these records
    stale_keys: list[bytes] = field(default_factory=list)  # records of earlier numbers, which may still be stored


class Records:
    """The records of one partition, as last acknowledged."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, _Last] = {}  # in the order of their last writes, unless the clock was set back

    def load(self, view: View) -> None:
        """Read all records from the store. May give way."""
        self._sessions = {}
        for key, value in view.scan(layout.RECORDS, layout.space_end(layout.RECORDS)):
            work.spend(20)
            self.note(key, value)
        self._sessions = dict(sorted(self._sessions.items(), key=lambda entry: entry[1].written_s))

    def reload(self, view: View, sessions: Iterable[bytes]) -> None:
        """Read the records of some sessions again, which were written by another node."""
        for session in sessions:
            self._sessions.pop(session, None)
            for key, value in view.scan(layout.RECORDS + session, layout.prefix_end(layout.RECORDS + session)):
                self.note(key, value)

    def note(self, key: bytes, value: bytes) -> None:
        """Take over a record that is durable now."""
        session, number, _ = _KEY.unpack(key[1:])
        written_s = int.from_bytes(value[:4], "big")
        last = self._sessions.pop(session, None)
        if last is None:
            last = _Last(number, written_s, [], [])
        elif last.number < number:
            last = _Last(number, written_s, [], [], stale_keys=last.keys)
        if last.number == number:
            last.values.append(value)
            last.written_s = max(last.written_s, written_s)
            last.keys.append(key)
        else:
            last.stale_keys.append(key)
        self._sessions[session] = last  # moved to the end, as the last one written

    def find(self, session: bytes, number: int) -> dict[int, bytes]:
        """The recorded answers to the statements of a write."""
        last = self._sessions.get(session)
        answers: dict[int, bytes] = {}
        if last is not None and last.number == number:
            for value in last.values:
                answers.update(unpack_record(value)[1])
        return answers

    def last_number(self, session: bytes) -> int:
        """The last write number known of a session, -1 if none."""
        last = self._sessions.get(session)
        return last.number if last is not None else -1

    def older_keys(self, record: Record) -> list[bytes]:
        """The keys of a session's records that a new write number makes obsolete, given to the first caller that asks.
        If its transaction fails, the records stay until the session ends."""
        last = self._sessions.get(record.session)
        if last is None or last.number >= record.number or last.outdated_by == record.number:
            return []
        last.outdated_by = record.number
        return [*last.keys, *last.stale_keys]

    def ended_keys(self, now_s: float, most: int) -> list[bytes]:
        """Forget sessions that have ended and return the keys of their records, at most so many in one call."""
        oldest_s = now_s - limits.MONGO_SESSION_SECONDS
        keys: list[bytes] = []
        ended: list[bytes] = []
        for session, last in self._sessions.items():
            if last.written_s >= oldest_s or len(keys) >= most:
                break
            keys += [*last.keys, *last.stale_keys]
            ended.append(session)
        for session in ended:
            del self._sessions[session]
        return keys


def check_new(txn: Txn, record: Record) -> None:
    """Refuse a write that was applied before. Runs inside the transaction, so it also sees records that are not durable
    yet."""
    if record.is_scattered:
        first = layout.RECORDS + _KEY.pack(record.session, record.number, 0)
        last = layout.RECORDS + _KEY.pack(record.session, record.number, _STATEMENT_MAX)
        answers: dict[int, bytes] = {}
        for _, value in txn.scan(first, last):
            answers |= unpack_record(value)[1]
        if not answers.keys().isdisjoint(record.statements):
            raise Repeated(answers)
        return
    stored = txn.get(record.key)
    if stored is not None:
        raise Repeated(unpack_record(stored)[1])


def put_record(txn: Txn, record: Record, outcomes: Sequence[Outcome], now_s: float, older: Sequence[bytes]) -> bytes:
    """Store the answers to a write; returns the stored value."""
    for key in older:
        txn.delete(key)
    given = record.answers if record.answers is not None else [_answer(each) for each in outcomes]
    answers = dict(zip(map(str, record.statements), given, strict=True))
    value = int(now_s).to_bytes(4, "big") + encode(answers)
    txn.put(record.key, value)
    return value


def _answer(outcome: Outcome) -> bytes:
    changed = outcome.changed
    if changed is not None and changed.answer is not None:
        return encode(changed.answer)
    is_match = changed is not None and changed.is_match
    return encode({"n": int(is_match), "m": int(changed is not None and changed.after is not None)})


def unpack_record(value: bytes) -> tuple[int, dict[int, bytes]]:
    try:
        answers = decode(value[4:])
        return int.from_bytes(value[:4], "big"), {int(name): bytes(answer) for name, answer in answers.items()}
    except (ValueError, BSONError):
        raise Failure(Kind.CORRUPT, "The record of a write cannot be read; run `armillary check`.") from None


def session_of(key: bytes) -> bytes:
    """The session that a record's key names."""
    session: bytes = _KEY.unpack(key[1:])[0]
    return session


def stored_records(view: View) -> list[tuple[bytes, bytes]]:
    return list(view.scan(layout.RECORDS, layout.space_end(layout.RECORDS)))
