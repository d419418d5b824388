from __future__ import annotations

import json

import pytest

from armillary import work
from armillary.doors.sql.errors import ROWS, error_response
from armillary.errors import Failure, Kind

ACTIVITY = "5f1c3a54-0000-4000-8000-000000000001"

GOLDEN = {
    Kind.BAD_REQUEST: (400, None, "BadRequest"),
    Kind.KEY_MISMATCH: (400, "1001", "BadRequest"),
    Kind.CROSS_PARTITION: (400, "1004", "BadRequest"),
    Kind.STALE_CONTAINER: (400, "1024", "BadRequest"),
    Kind.TOO_LARGE: (413, None, "RequestEntityTooLarge"),
    Kind.UNSUPPORTED: (400, None, "BadRequest"),
    Kind.UNSUPPORTED_MEDIA: (415, None, "UnsupportedMediaType"),
    Kind.UNAUTHORIZED: (401, None, "Unauthorized"),
    Kind.FORBIDDEN: (403, None, "Forbidden"),
    Kind.KEY_FULL: (403, "1014", "Forbidden"),
    Kind.NOT_FOUND: (404, None, "NotFound"),
    Kind.OWNER_NOT_FOUND: (404, "1003", "NotFound"),
    Kind.SESSION_BEHIND: (404, "1002", "NotFound"),
    Kind.METHOD_NOT_ALLOWED: (405, None, "MethodNotAllowed"),
    Kind.CONFLICT: (409, None, "Conflict"),
    Kind.PRECONDITION_FAILED: (412, None, "PreconditionFailed"),
    Kind.FAILED_DEPENDENCY: (424, None, "FailedDependency"),
    Kind.RANGE_GONE: (410, "1002", "Gone"),
    Kind.RANGE_BUSY: (410, "1007", "Gone"),
    Kind.NAME_STALE: (410, "1000", "Gone"),
    Kind.NOT_LEADER: (403, "3", "Forbidden"),
    Kind.STALE_HERE: (503, None, "ServiceUnavailable"),
    Kind.THROTTLED: (429, "3200", "429"),
    Kind.RETRY_WITH: (449, None, "RetryWith"),
    Kind.TIMED_OUT: (408, None, "RequestTimeout"),
    Kind.UNAVAILABLE: (503, None, "ServiceUnavailable"),
    Kind.STORAGE_FULL: (403, "1005", "Forbidden"),
    Kind.DROPPED: (503, None, "ServiceUnavailable"),
    Kind.SCRIPT_FAILED: (400, None, "BadRequest"),
    Kind.CORRUPT: (500, None, "InternalServerError"),
    Kind.INTERNAL: (500, None, "InternalServerError"),
}


def respond(failure: Failure) -> tuple[int, dict[str, str], dict[str, str]]:
    status, headers, body = error_response(failure, ACTIVITY)
    named = {name.decode(): value.decode() for name, value in headers}
    assert len(named) == len(headers), "no header twice"
    return status, named, json.loads(body)


def test_every_kind_has_a_row() -> None:
    assert set(ROWS) == set(Kind) == set(GOLDEN)


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_each_row_on_the_wire(kind: Kind) -> None:
    status, headers, body = respond(Failure(kind, "It broke; mend it.", charge_ru=1.24))
    assert (status, headers.get("x-ms-substatus"), body["code"]) == GOLDEN[kind]
    assert "It broke; mend it." in body["message"]
    assert f"\r\nActivityId: {ACTIVITY}" in body["message"]
    assert set(body) == {"code", "message"}
    assert headers["x-ms-activity-id"] == ACTIVITY
    assert headers["x-ms-request-charge"] == "1.24"
    assert "x-ms-retry-after-ms" not in headers


def test_only_a_follower_starts_endpoint_discovery() -> None:
    discovering = {(403, 3), (403, 1008)}
    kinds = {kind for kind, row in ROWS.items() if (row.status, row.sub_status) in discovering}
    assert kinds == {Kind.NOT_LEADER}


def test_text_of_400_has_the_errors_form() -> None:
    _, _, body = respond(Failure(Kind.BAD_REQUEST, 'a "quoted" é'))
    text = body["message"]
    assert text.startswith("Message: ")
    assert json.loads(text.removeprefix("Message: ").split("\r\n")[0]) == {"Errors": ['a "quoted" é']}


def test_text_of_413_is_the_service_s_as_a_whole() -> None:
    _, _, body = respond(Failure(Kind.TOO_LARGE, "It has 9 bytes."))
    assert body["message"] == (
        f'Message: {{"Errors":["Request size is too large"]}}\r\nActivityId: {ACTIVITY}, It has 9 bytes.'
    )


def test_text_of_413_for_what_a_request_computes_is_the_meter_s() -> None:
    status, _, body = respond(work.too_much_memory())
    assert status == 413
    text = body["message"]
    assert text.startswith('Message: {"Errors":["The values that this request computes take more than 128 MB')
    assert "Request size" not in text


def test_throttled_says_when_to_come_back() -> None:
    _, headers, _ = respond(Failure(Kind.THROTTLED, "Too fast.", retry_after_ms=37))
    assert headers["x-ms-retry-after-ms"] == "37"


def test_details() -> None:
    plan = {"partitionedQueryExecutionInfoVersion": 2}
    _, _, body = respond(Failure(Kind.CROSS_PARTITION, "Plan it.", details={"plan": plan}))
    assert json.loads(body["additionalErrorInfo"]) == plan
    _, headers, _ = respond(Failure(Kind.FORBIDDEN, "No.", details={"sub_status": 5300}))
    assert headers["x-ms-substatus"] == "5300"
    _, headers, _ = respond(Failure(Kind.METHOD_NOT_ALLOWED, "No.", details={"allowed": ("GET", "PUT")}))
    assert headers["allow"] == "GET, PUT"
    syntax = [{"severity": "Error", "location": {"start": 7, "end": 14}, "code": "SC2005", "message": "what"}]
    _, _, body = respond(Failure(Kind.BAD_REQUEST, "what", details={"errors": syntax}))
    assert 'Message: {"errors":[{"severity":"Error","location":{"start":7,"end":14},"code":"SC2005"' in body["message"]


@pytest.mark.parametrize("text", ["\ud800", "a\x00b", "\r\n", "é" * 10_000])
def test_any_text_gets_out(text: str) -> None:
    details = {"plan": {"x": [text, 2**70, object()]}}
    for kind in (Kind.BAD_REQUEST, Kind.UNAUTHORIZED):
        status, _, body = respond(Failure(kind, text, details=details))
        assert status < 500
        assert body["message"]
