"""What was answered to writes that clients may send again: kept in the partition's store by the transaction that did
them, so that whatever happens in between they are done once. A client numbers its writes inside a session, one number
after the other; only its last one can come again.

There are few: one entry for each transaction of the last number of each session. A split gives all of them to both
children, since nobody asks which keys they were about.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    """The number of a write, for the transaction that does it."""

    session: bytes  # 16 bytes
    number: int
    statements: tuple[int, ...]  # those of the command that it is about, one for each operation
    answers: Callable[[Sequence[Outcome]], list[bytes]]  # to each statement
    is_scattered: bool = False  # its statements may be recorded with others than these

    @property
    def key(self) -> bytes:
        return layout.RECORDS + _KEY.pack(self.session, self.number, self.statements[0])


class Repeated(Exception):
    """A write was done before. Never leaves the partition package's callers."""

    def __init__(self, answers: dict[int, bytes]) -> None:
        super().__init__("done before")
        self.answers = answers  # by statement


@dataclass(slots=True)
class _Last:
    """The last number of a session."""

    number: int
    written_s: int
    values: list[bytes]  # as they are stored: nearly all are never asked for
    keys: list[bytes]
    outdated_by: int = -1  # the number whose first transaction deletes them
    stale_keys: list[bytes] = field(default_factory=list)  # of numbers before it, which may still be stored


class Records:
    """Those of one partition, as last acknowledged."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, _Last] = {}  # in the order of their last writes, but for clocks that are moved

    def load(self, view: View) -> None:
        """May give way."""
        self._sessions = {}
        for key, value in view.scan(layout.RECORDS, layout.space_end(layout.RECORDS)):
            work.spend(20)
            self.note(key, value)
        self._sessions = dict(sorted(self._sessions.items(), key=lambda entry: entry[1].written_s))

    def note(self, key: bytes, value: bytes) -> None:
        """A record is durable."""
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
        self._sessions[session] = last  # at the end: it is the last that was written

    def find(self, session: bytes, number: int) -> dict[int, bytes]:
        """What was answered to the statements of a write."""
        last = self._sessions.get(session)
        answers: dict[int, bytes] = {}
        if last is not None and last.number == number:
            for value in last.values:
                answers.update(unpack_record(value)[1])
        return answers

    def last_number(self, session: bytes) -> int:
        """-1: none is known."""
        last = self._sessions.get(session)
        return last.number if last is not None else -1

    def older_keys(self, record: Record) -> list[bytes]:
        """The records of a session that a new number makes useless, for the first that asks. If it fails after all,
        they stay until the session is over."""
        last = self._sessions.get(record.session)
        if last is None or last.number >= record.number or last.outdated_by == record.number:
            return []
        last.outdated_by = record.number
        return [*last.keys, *last.stale_keys]

    def ended_keys(self, now_s: float, most: int) -> list[bytes]:
        """Forget sessions that have ended, and say under which keys their records are stored. Several calls, if they
        have more than so many."""
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
    """Transactions run one after the other, and see what those before them did, durable or not yet."""
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
    """Keep what is answered; returns what is stored."""
    for key in older:
        txn.delete(key)
    answers = dict(zip(map(str, record.statements), record.answers(outcomes), strict=True))
    value = int(now_s).to_bytes(4, "big") + encode(answers)
    txn.put(record.key, value)
    return value


def unpack_record(value: bytes) -> tuple[int, dict[int, bytes]]:
    try:
        answers = decode(value[4:])
        return int.from_bytes(value[:4], "big"), {int(name): bytes(answer) for name, answer in answers.items()}
    except (ValueError, BSONError):
        raise Failure(Kind.CORRUPT, "The record of a write cannot be read; run `armillary check`.") from None


def stored_records(view: View) -> list[tuple[bytes, bytes]]:
    return list(view.scan(layout.RECORDS, layout.space_end(layout.RECORDS)))
