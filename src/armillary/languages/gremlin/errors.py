"""Errors of the Gremlin language, with the status codes that TinkerPop and Cosmos DB document.

A door puts `details["status"]` and `details["x_ms_status_code"]` on the wire as they are. Failures of storage carry no
such details; `STATUS_OF_KIND` gives the status for their Kind.
"""

from __future__ import annotations

from typing import Final

from armillary.errors import Failure, Kind

STATUS_MALFORMED: Final = 498
STATUS_BAD_ARGUMENTS: Final = 499
STATUS_EXECUTION: Final = 500
STATUS_FAIL_STEP: Final = 595
STATUS_COMPILATION: Final = 597
STATUS_TIMEOUT: Final = 598
STATUS_RESULT_SERIALIZATION: Final = 599

# Kind -> (status, x-ms-status-code), for failures that carry no status of their own.
STATUS_OF_KIND: Final[dict[Kind, tuple[int, int]]] = {
    Kind.BAD_REQUEST: (STATUS_BAD_ARGUMENTS, 1004),
    Kind.UNSUPPORTED: (STATUS_COMPILATION, 1004),
    Kind.NOT_FOUND: (STATUS_EXECUTION, 404),
    Kind.OWNER_NOT_FOUND: (STATUS_EXECUTION, 404),
    Kind.CONFLICT: (STATUS_EXECUTION, 409),
    Kind.PRECONDITION_FAILED: (STATUS_EXECUTION, 412),
    Kind.TOO_LARGE: (STATUS_EXECUTION, 413),
    Kind.FORBIDDEN: (STATUS_EXECUTION, 403),
    Kind.KEY_FULL: (STATUS_EXECUTION, 403),
    Kind.THROTTLED: (STATUS_EXECUTION, 429),
    Kind.TIMED_OUT: (STATUS_TIMEOUT, 1009),
}


def _failure(kind: Kind, message: str, status: int, code: int, exception: str) -> Failure:
    return Failure(kind, message, details={"status": status, "x_ms_status_code": code, "exception": exception})


def syntax(message: str) -> Failure:
    """The text is not Gremlin."""
    return _failure(
        Kind.BAD_REQUEST, f"Gremlin Query Syntax Error: {message}", STATUS_COMPILATION, 1004, "GraphSyntaxException"
    )


def compilation(message: str) -> Failure:
    """The syntax is right, but the steps or arguments are not."""
    return _failure(
        Kind.BAD_REQUEST,
        f"Gremlin Query Compilation Error: {message}",
        STATUS_COMPILATION,
        1004,
        "GraphCompileException",
    )


def unsupported(message: str) -> Failure:
    """A feature of the language that Armillary does not implement."""
    return _failure(
        Kind.UNSUPPORTED,
        f"Gremlin Query Compilation Error: {message}",
        STATUS_COMPILATION,
        1004,
        "GraphCompileException",
    )


def execution(message: str) -> Failure:
    """The traversal failed while it ran."""
    return _failure(
        Kind.BAD_REQUEST, f"Gremlin Query Execution Error: {message}", STATUS_EXECUTION, 500, "GraphRuntimeException"
    )


def too_much(message: str) -> Failure:
    """The traversal exceeds a limit on its memory or its work."""
    return _failure(
        Kind.TOO_LARGE, f"Gremlin Query Execution Error: {message}", STATUS_EXECUTION, 1003, "GraphRuntimeException"
    )


def timed_out(message: str) -> Failure:
    return _failure(
        Kind.TIMED_OUT, f"Gremlin Query Execution Error: {message}", STATUS_TIMEOUT, 1009, "GraphTimeoutException"
    )


def fail_step(message: str) -> Failure:
    """The traversal itself called fail()."""
    return _failure(
        Kind.BAD_REQUEST, f"Gremlin Query Execution Error: {message}", STATUS_FAIL_STEP, 500, "GraphRuntimeException"
    )


def malformed(message: str) -> Failure:
    """The message is not valid GraphSON or GraphBinary."""
    return _failure(Kind.BAD_REQUEST, message, STATUS_MALFORMED, 1004, "GraphMalformedException")


def not_serializable(message: str) -> Failure:
    return _failure(Kind.BAD_REQUEST, message, STATUS_RESULT_SERIALIZATION, 1001, "GraphSerializeException")
