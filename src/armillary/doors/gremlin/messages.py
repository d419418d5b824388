"""Requests as they come, in any of the forms that drivers send, and answers in the form of the request.

A binary message begins with the length and the name of its form; a text message is JSON. Values inside are written and
read by `languages/gremlin/formats/graphson_read.py` and `graphbinary_read.py`; here is what is around them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from armillary.account.captures.notes import Request as Notes
from armillary.clock import Clock
from armillary.doors.gremlin import errors
from armillary.doors.gremlin.authentication import Line
from armillary.doors.gremlin.forms import FORMS, TEXT_FORM, Form, form_named
from armillary.errors import Failure, Kind
from armillary.languages.gremlin.errors import malformed
from armillary.languages.gremlin.values.typed_values import Long

_NO_ID: Final = "00000000-0000-0000-0000-000000000000"
OK, NO_CONTENT, PARTIAL, AUTHENTICATE = 200, 204, 206, 407


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    operation: str
    processor: str
    arguments: dict[Any, Any]


class Spending(Protocol):
    """Counts the charge of a request."""

    charge_ru: float


class Responder:
    """Answers one request, in its form."""

    def __init__(self, line: Line, is_text: bool, clock: Clock, activity_id: str) -> None:
        self._line = line
        self._is_text = is_text
        self._clock = clock
        self.form: Form = TEXT_FORM
        self.request_id = _NO_ID
        self.activity_id = activity_id
        self.graph: Spending | None = None
        self.charge_ru = 0.0  # of what no graph counts
        self.operation = "other"  # what metrics call it
        self.status = 0  # that was sent last
        self.failed: Failure | None = None
        self.details: Notes | None = None  # what the account notes of it while captures, logs or traces ask for that
        self._told_ru = 0.0
        self._begun_s = self._told_s = clock.elapsed_s()

    def challenge(self) -> None:
        self._send(AUTHENTICATE, "", {}, None)

    def part(self, values: list[Any]) -> None:
        self._send(PARTIAL, "", {"x-ms-status-code": Long(PARTIAL)}, values)

    def finish(self, values: list[Any]) -> None:
        code = OK if values else NO_CONTENT
        self._send(code, "", {"x-ms-status-code": Long(code)}, values)

    def refuse(self, failure: Failure) -> None:
        status, _ = errors.status_of(failure)
        self.failed = failure
        self._send(status, errors.text_of(failure, self.activity_id), errors.attributes_of(failure), [])

    def _send(self, status: int, message: str, attributes: dict[str, Any], values: list[Any] | None) -> None:
        self.status = status
        encoded = self.form.write(self.request_id, status, message, attributes | self._costs(), values)
        self._line.send(encoded, self._is_text)

    @property
    def total_ru(self) -> float:
        return self.charge_ru + (self.graph.charge_ru if self.graph is not None else 0.0)

    @property
    def begun_s(self) -> float:
        return self._begun_s

    def _costs(self) -> dict[str, Any]:
        total_ru = self.total_ru
        now_s = self._clock.elapsed_s()
        told: dict[str, Any] = {
            "x-ms-request-charge": round(total_ru - self._told_ru, 2),
            "x-ms-total-request-charge": round(total_ru, 2),
            "x-ms-server-time-ms": round((now_s - self._told_s) * 1000, 4),
            "x-ms-total-server-time-ms": round((now_s - self._begun_s) * 1000, 4),
            "x-ms-activity-id": self.activity_id,
        }
        self._told_ru, self._told_s = total_ru, now_s
        return told


def read_request(
    message: bytes, is_text: bool, out: Responder, *, is_known: bool, reads_properties: bool = True
) -> Request:
    """Also tells the responder what is known of the request as soon as it is: refusals are answered in its form."""
    body = message
    if not is_text:
        if not message or len(message) < 1 + message[0]:
            raise malformed("The message has no name of its form before it.")
        name = message[1 : 1 + message[0]].decode("ascii", "replace")
        form = form_named(name, reads_properties=reads_properties)
        if form is None:
            known = ", ".join(FORMS)
            raise Failure(Kind.UNSUPPORTED_MEDIA, f"Messages of the form {name!r} are not read; known are {known}.")
        out.form = form
        body = message[1 + message[0] :]

    def on_id(request_id: str) -> None:
        out.request_id = request_id

    envelope = out.form.read(body, on_id, is_known=is_known)
    return Request(out.request_id, *envelope)
