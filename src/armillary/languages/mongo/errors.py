"""Errors of the MongoDB language: a Failure with MongoDB's error code.

Codes and code names are those of the MongoDB server; the door sends them unchanged.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.errors import Failure, Kind

CODE_NAMES: Final = {
    1: "InternalError",
    2: "BadValue",
    6: "HostUnreachable",
    7: "HostNotFound",
    9: "FailedToParse",
    11: "UserNotFound",
    13: "Unauthorized",
    14: "TypeMismatch",
    15: "Overflow",
    16: "InvalidLength",
    17: "ProtocolError",
    18: "AuthenticationFailed",
    20: "IllegalOperation",
    22: "InvalidBSON",
    24: "LockTimeout",
    23: "AlreadyInitialized",
    26: "NamespaceNotFound",
    27: "IndexNotFound",
    28: "PathNotViable",
    40: "ConflictingUpdateOperators",
    43: "CursorNotFound",
    48: "NamespaceExists",
    50: "MaxTimeMSExpired",
    52: "DollarPrefixedFieldName",
    53: "InvalidIdField",
    54: "NotSingleValueField",
    56: "EmptyFieldName",
    59: "CommandNotFound",
    61: "ShardKeyNotFound",
    66: "ImmutableField",
    67: "CannotCreateIndex",
    68: "IndexAlreadyExists",
    72: "InvalidOptions",
    73: "InvalidNamespace",
    79: "UnknownReplWriteConcern",
    85: "IndexOptionsConflict",
    86: "IndexKeySpecsConflict",
    89: "NetworkTimeout",
    91: "ShutdownInProgress",
    96: "OperationFailed",
    100: "UnsatisfiableWriteConcern",
    111: "NotExactValueField",
    112: "WriteConflict",
    115: "CommandNotSupported",
    117: "ConflictingOperationInProgress",
    119: "AmbiguousIndexKeyPattern",
    121: "DocumentValidationFailure",
    125: "CommandFailed",
    133: "FailedToSatisfyReadPreference",
    136: "CappedPositionLost",
    139: "JSInterpreterFailure",
    143: "CursorInUse",
    146: "ExceededMemoryLimit",
    161: "IncompatibleCollationVersion",
    166: "CommandNotSupportedOnView",
    168: "InvalidPipelineOperator",
    175: "QueryPlanKilled",
    186: "ClientMetadataCannotBeMutated",
    187: "ClientMetadataDocumentTooLarge",
    189: "PrimarySteppedDown",
    197: "InvalidIndexSpecificationOption",
    206: "NoSuchSession",
    207: "InvalidUUID",
    224: "QueryFeatureNotAllowed",
    225: "TransactionTooOld",
    237: "CursorKilled",
    238: "NotImplemented",
    239: "SnapshotTooOld",
    241: "ConversionFailure",
    244: "TransactionAborted",
    246: "SnapshotUnavailable",
    251: "NoSuchTransaction",
    256: "TransactionCommitted",
    257: "TransactionTooLarge",
    261: "TooManyLogicalSessions",
    262: "ExceededTimeLimit",
    263: "OperationNotSupportedInTransaction",
    267: "PreparedTransactionInProgress",
    280: "ChangeStreamFatalError",
    286: "ChangeStreamHistoryLost",
    291: "NoQueryExecutionPlans",
    292: "QueryExceededMemoryLimitNoDiskUseAllowed",
    322: "APIVersionError",
    323: "APIStrictError",
    352: "UnsupportedOpQueryCommand",
    9001: "SocketException",
    10107: "NotWritablePrimary",
    10334: "BSONObjectTooLarge",
    11000: "DuplicateKey",
    11600: "InterruptedAtShutdown",
    11601: "Interrupted",
    11602: "InterruptedDueToReplStateChange",
    13435: "NotPrimaryNoSecondaryOk",
    13436: "NotPrimaryOrSecondary",
    14031: "OutOfDiskSpace",
    16500: "TooManyRequests",
    31082: "SearchNotEnabled",
}

BAD_VALUE, FAILED_TO_PARSE, TYPE_MISMATCH = 2, 9, 14
PATH_NOT_VIABLE, CONFLICTING_UPDATES, IMMUTABLE_FIELD = 28, 40, 66


def refusal(code: int, message: str, **details: Any) -> Failure:
    """An error in a filter, an update or a pipeline, with its code."""
    return Failure(Kind.BAD_REQUEST, message, details={"code": code, **details})


def bad_value(message: str) -> Failure:
    """The most common error: BadValue."""
    return refusal(BAD_VALUE, message)


def code_name(code: int) -> str:
    return CODE_NAMES.get(code) or f"Location{code}"
