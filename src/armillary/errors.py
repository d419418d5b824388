"""Everything that can go wrong, and the one exception that crosses a layer.

    Failure(kind, message, retry_after_ms, details)

A `Kind` says what happened in the product's own words; each door has a total table from Kind to its wire form
(`doors/*/errors.py`), so nothing below a door knows a status code. Programmer errors are `assert`, never a Failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any


class Kind(Enum):
    # The request itself is wrong.
    BAD_REQUEST = auto()  # malformed body, id, header, policy or query
    KEY_MISMATCH = auto()  # partition key of the header and of the item differ, or have the wrong number of parts
    CROSS_PARTITION = auto()  # a query that the client must plan and merge itself
    STALE_CONTAINER = auto()  # the request was meant for another incarnation of the container
    TOO_LARGE = auto()  # item, body or batch over its limit
    UNSUPPORTED = auto()  # understood and not (yet) offered
    UNSUPPORTED_MEDIA = auto()  # a body in a format that this door does not read
    # The requester may not.
    UNAUTHORIZED = auto()  # no or wrong credentials
    FORBIDDEN = auto()  # right credentials, not allowed
    KEY_FULL = auto()  # the logical partition has reached its maximum size
    # The thing is missing, or not in the required state.
    NOT_FOUND = auto()
    OWNER_NOT_FOUND = auto()  # the database or container of the addressed thing does not exist
    SESSION_BEHIND = auto()  # the session token is ahead of what is stored here
    METHOD_NOT_ALLOWED = auto()
    CONFLICT = auto()  # id or unique key exists
    PRECONDITION_FAILED = auto()
    FAILED_DEPENDENCY = auto()  # a batch member that was not run because another failed
    # Routing.
    RANGE_GONE = auto()  # the partition key range was split or merged
    RANGE_BUSY = auto()  # the partition key range is completing its split
    NAME_STALE = auto()  # a cached name points to a dropped container
    NOT_LEADER = auto()  # a write that was sent to a node of a cluster that follows
    STALE_HERE = auto()  # a read that this node of a cluster is too far behind for
    # Not now.
    THROTTLED = auto()
    RETRY_WITH = auto()
    TIMED_OUT = auto()
    UNAVAILABLE = auto()
    STORAGE_FULL = auto()
    DROPPED = auto()  # the connection ends without an answer; only fault rules (account/faults.py) ask for it
    # Our own fault.
    SCRIPT_FAILED = auto()
    CORRUPT = auto()
    INTERNAL = auto()


class Reason(Enum):
    """What happened, more precisely than its kind, where a protocol has a code or a text of its own for it. A Failure
    carries it as `details["reason"]`; the door of that protocol maps it, and others answer by the kind."""

    CLIENT_MERGES = auto()  # a query over several partitions, of which the client must merge the parts
    CROSS_PARTITION_OFF = auto()  # the client has not enabled queries over several partitions
    HELD_TOO_MUCH = auto()  # one step of a traversal reads more than may be held in memory
    HISTORY_LOST = auto()  # events after the position to resume from are no longer kept
    JAVASCRIPT_FAILED = auto()  # a function that a command carries threw, or was stopped
    POSITION_LOST = auto()  # the item that a tailing read stands at was evicted
    ROLE_CHANGED = auto()  # the node of the cluster took over while the request ran
    PARALLEL_ARRAYS = auto()  # an index over two arrays of one document
    HASHED_ARRAY = auto()  # a hashed index over an array
    SNAPSHOT_UNAVAILABLE = auto()  # the rules of the container changed after the snapshot of the transaction
    TRANSACTION_ELSEWHERE = auto()  # an operation outside the one logical partition of its transaction
    TRANSACTION_TOO_LARGE = auto()
    WRITE_CONFLICT = auto()  # another write changed what the transaction has read or changes


class Failure(Exception):
    """A refusal with a kind. The message says what happened, to what, and what to do."""

    is_metered = False  # whether a partition has counted the charge already

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        retry_after_ms: int | None = None,
        charge_ru: float = 0.0,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.charge_ru = charge_ru
        self.details: Mapping[str, Any] = details or {}

    def __reduce__(self) -> tuple[Any, ...]:
        """A refusal that is sent to another process arrives as it was."""
        given = self.kind, self.message, self.retry_after_ms, self.charge_ru, dict(self.details), self.is_metered
        return _received, (type(self), *given)

    def __repr__(self) -> str:
        return f"Failure({self.kind.name}, {self.message!r})"


def _received(
    made: type[Failure],
    kind: Kind,
    message: str,
    retry_after_ms: int | None,
    charge_ru: float,
    details: dict[str, Any],
    is_metered: bool,
) -> Failure:
    failure = made(kind, message, retry_after_ms=retry_after_ms, charge_ru=charge_ru, details=details)
    failure.is_metered = is_metered
    return failure


def bad_request(message: str, **details: Any) -> Failure:
    """A BAD_REQUEST Failure."""
    return Failure(Kind.BAD_REQUEST, message, details=details)


def computed_too_large(message: str, **details: Any) -> Failure:
    """A computed result is too large, not the request: doors omit the service's words about request size."""
    return Failure(Kind.TOO_LARGE, message, details={**details, "is_computed": True})
