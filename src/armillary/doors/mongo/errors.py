"""What the MongoDB door answers when something goes wrong: a total table from Kind to code, and the one function that
makes the document of a Failure. A `Reason` has a code of its own, and the language's refusals bring theirs along
(`languages/mongo/errors.py`).

What a Failure's `details` may carry for this door:

    reason   Reason     whose code stands in place of its kind's
    code     int        in place of the tables'
    labels   tuple      errorLabels
    fields   document   further fields, such as keyPattern and keyValue
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from armillary.errors import Failure, Kind, Reason
from armillary.languages.mongo.errors import code_name
from armillary.model.bson.bson_values import Document

CODES: Final[dict[Kind, int]] = {
    Kind.BAD_REQUEST: 2,
    Kind.KEY_MISMATCH: 61,
    Kind.CROSS_PARTITION: 2,
    Kind.TOO_LARGE: 10334,
    Kind.UNSUPPORTED: 115,
    Kind.UNSUPPORTED_MEDIA: 115,
    Kind.UNAUTHORIZED: 18,
    Kind.FORBIDDEN: 13,
    Kind.KEY_FULL: 14031,  # OutOfDiskSpace, the nearest that drivers know
    Kind.NOT_FOUND: 26,
    Kind.OWNER_NOT_FOUND: 26,
    Kind.SESSION_BEHIND: 246,
    Kind.METHOD_NOT_ALLOWED: 115,
    Kind.CONFLICT: 11000,
    Kind.PRECONDITION_FAILED: 112,
    Kind.FAILED_DEPENDENCY: 125,
    # Drivers try again what is labelled as retryable; to them a split is a step-down that is over at once. So is the
    # move of a collection to another shard key.
    Kind.STALE_CONTAINER: 91,
    Kind.RANGE_GONE: 91,
    Kind.RANGE_BUSY: 91,
    Kind.NAME_STALE: 26,
    Kind.NOT_LEADER: 10107,  # NotWritablePrimary: drivers look for the primary again
    Kind.STALE_HERE: 133,  # FailedToSatisfyReadPreference: drivers ask another node
    Kind.THROTTLED: 16500,
    Kind.RETRY_WITH: 112,
    Kind.TIMED_OUT: 50,
    Kind.UNAVAILABLE: 91,
    Kind.STORAGE_FULL: 14031,
    Kind.DROPPED: 6,
    Kind.SCRIPT_FAILED: 125,
    Kind.CORRUPT: 1,
    Kind.INTERNAL: 1,
}

CODES_OF_REASONS: Final[dict[Reason, int]] = {
    Reason.HASHED_ARRAY: 16766,
    Reason.HISTORY_LOST: 286,
    Reason.JAVASCRIPT_FAILED: 139,
    Reason.PARALLEL_ARRAYS: 171,
    Reason.POSITION_LOST: 136,
    Reason.ROLE_CHANGED: 11602,  # drivers retry, and keep their connections
    Reason.SNAPSHOT_UNAVAILABLE: 246,
    Reason.TRANSACTION_ELSEWHERE: 263,
    Reason.TRANSACTION_TOO_LARGE: 257,
    Reason.WRITE_CONFLICT: 112,
}
_LABELS_OF_REASONS: Final[dict[Reason, str]] = {Reason.HISTORY_LOST: "NonResumableChangeStreamError"}

RETRYABLE: Final = frozenset((6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436))
# Drivers take these for a change of the topology, unless the answer has the same topologyVersion.
STATE_CHANGES: Final = frozenset((91, 189, 10107, 10058, 11600, 11602, 13435, 13436))
# A change stream that fails with one of these can be resumed.
RESUMABLE: Final = RETRYABLE | {63, 133, 150, 234, 13388}
_TRANSIENT: Final = frozenset((24, 112, 246, 251, 267))
_THROTTLED: Final = (
    "Error=16500, RetryAfterMs={}, Details='Response status code does not indicate success: TooManyRequests (429); "
    'Substatus: 3200; ActivityId: {}; Reason: (Errors : ["Request rate is large. More Request Units may be needed, so '
    'no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429"])'
)


def ends_command(failure: Failure) -> bool:
    """Whether a statement that fails so ends its whole command: the client is to send it again, or has gone, or its
    transaction cannot go on."""
    is_too_large = failure.details.get("reason") is Reason.TRANSACTION_TOO_LARGE
    return failure.kind in (Kind.DROPPED, Kind.TIMED_OUT) or is_too_large or code_of(failure) in RETRYABLE


def code_of(failure: Failure) -> int:
    code = failure.details.get("code")
    if isinstance(code, int):
        return code
    reason = failure.details.get("reason")
    return CODES[failure.kind] if reason is None else CODES_OF_REASONS.get(reason, CODES[failure.kind])


def message_of(failure: Failure, activity_id: str = "00000000-0000-0000-0000-000000000000") -> str:
    if failure.kind is Kind.THROTTLED:
        return _THROTTLED.format(failure.retry_after_ms or 0, activity_id)
    # A message may quote a lone surrogate out of a request, which has no UTF-8 form.
    return failure.message.encode("utf-8", "replace").decode()


def error_document(failure: Failure, labels: Iterable[str] = ()) -> Document:
    code = code_of(failure)
    document: Document = {
        "ok": 0.0,
        "errmsg": message_of(failure),
        "code": code,
        "codeName": code_name(code),
        **failure.details.get("fields", {}),
    }
    all_labels = [*dict.fromkeys((*failure.details.get("labels", ()), *_labels_of_reason(failure), *labels))]
    if all_labels:
        document["errorLabels"] = all_labels
    return document


def _labels_of_reason(failure: Failure) -> list[str]:
    label = _LABELS_OF_REASONS.get(failure.details["reason"]) if "reason" in failure.details else None
    return [] if label is None else [label]


def write_error(failure: Failure, index: int) -> Document:
    """Of one statement of a batch."""
    return {
        "index": index,
        "code": code_of(failure),
        "errmsg": message_of(failure),
        **failure.details.get("fields", {}),
    }


def labels_of(failure: Failure, *, is_retryable_write: bool, is_in_transaction: bool, is_ending: bool) -> list[str]:
    """`is_ending`: of commitTransaction and abortTransaction, which drivers send again by themselves."""
    code = code_of(failure)
    labels = []
    if is_in_transaction and (code in _TRANSIENT or (code in RETRYABLE and not is_ending)):
        labels.append("TransientTransactionError")
    if (is_retryable_write or is_ending) and code in RETRYABLE:
        labels.append("RetryableWriteError")
    return labels


def out_of_time() -> Failure:
    return Failure(Kind.TIMED_OUT, "operation exceeded time limit", details={"code": 50})


class MalformedMessage(Exception):
    """The bytes are no message of this protocol, nor can what follows be read: the connection is closed."""
