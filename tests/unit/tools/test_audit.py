"""The security log: what floods of refused sign-ins cost, how names are written, and that lines hold no secrets."""

from __future__ import annotations

import json
import logging
import time

import pytest

from armillary import audit, limits
from armillary.audit import ACTOR, Actor, SignInLog
from armillary.net.http import Request, Response
from armillary.net.service import Service
from armillary.tools.logs import JsonLines, TextLines

KEY = "c2VjcmV0IGtleSBvZiB0aGlzIHRlc3Q="


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "armillary.security")


async def test_a_flood_of_refusals_is_a_line_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    sign_ins = SignInLog("sql")
    begun_s = time.process_time()
    for _ in range(100_000):
        sign_ins.refused("10.0.0.7", "key")
    assert time.process_time() - begun_s < 2.0  # 0.02 s: a look into a dictionary for each
    assert caplog.messages == ["signin.refused door=sql address=10.0.0.7 credential=key"]
    sign_ins.tell_refused()
    assert caplog.messages[1:] == ["signin.refused door=sql address=10.0.0.7 count=99999"]
    sign_ins.refused("10.0.0.7", "none")
    assert len(caplog.messages) == 3


async def test_a_flood_from_everywhere_is_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    sign_ins = SignInLog("mongo")
    for number in range(5_000):
        sign_ins.refused(f"2001:db8::{number:x}", "password")
    assert len(caplog.messages) == limits.SECURITY_LOG_REFUSED_ADDRESSES
    sign_ins.tell_refused()
    others = 5_000 - limits.SECURITY_LOG_REFUSED_ADDRESSES
    assert caplog.messages[-1] == f"signin.refused door=mongo address=others count={others}"


async def test_what_is_granted_is_a_line_for_each_address_and_credential(caplog: pytest.LogCaptureFixture) -> None:
    sign_ins = SignInLog("table")
    for _ in range(3):
        sign_ins.granted("127.0.0.1", "key")
        sign_ins.granted("127.0.0.1", "shared access signature")
    assert caplog.messages == [
        "signin.granted door=table address=127.0.0.1 credential=key",
        'signin.granted door=table address=127.0.0.1 credential="shared access signature"',
    ]
    for number in range(limits.SECURITY_LOG_GRANTED_ADDRESSES * 2):
        sign_ins.granted(f"10.0.{number // 256}.{number % 256}", "key", object())
    assert len(sign_ins.last_granted) <= limits.SECURITY_LOG_GRANTED_ADDRESSES


def test_a_name_cannot_look_like_another_line(caplog: pytest.LogCaptureFixture) -> None:
    ACTOR.set(Actor("sql", "127.0.0.1"))
    audit.record("database.created", name="shop\nINFO armillary.security: database.deleted", other=None)
    ACTOR.set(None)
    audit.record("fault.set", number=3)
    assert caplog.messages == [
        'database.created name="shop\\nINFO armillary.security: database.deleted" door=sql address=127.0.0.1',
        "fault.set number=3",
    ]
    assert caplog.records[0].__dict__["fields"]["event"] == "database.created"


@pytest.mark.parametrize(
    "text",
    [
        f"GET /Tables?sv=2019&sig={KEY}&se=1",
        f"authorization: type%3Dmaster%26ver%3D1.0%26sig%3D{KEY}",
        "type=resource&ver=1&sig=c2VjcmV0IGtleSBvZiB0aGlzIHRlc3Q=",
        f"Authorization: Bearer {KEY}",
        f"SharedKey localhost:{KEY}",
        f"AccountEndpoint=http://localhost/;AccountKey={KEY};",
        f"the key {KEY} stands alone",
    ],
)
def test_secrets_are_taken_out_of_every_line(text: str) -> None:
    for formatter in (TextLines(lambda: [KEY, None]), JsonLines(lambda: [KEY, None])):
        try:
            raise ValueError(text)
        except ValueError as error:
            failed = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("armillary", logging.ERROR, "", 0, "broken: %s", (text,), failed)
        line = formatter.format(record)
        assert KEY not in line
        assert KEY.rstrip("=") not in line
        assert "[redacted]" in line
        assert "ValueError" in line


def test_json_lines_have_the_fields_of_events(caplog: pytest.LogCaptureFixture) -> None:
    audit.record("container.deleted", name="shop/orders")
    line = json.loads(JsonLines(list).format(caplog.records[0]))
    assert line["event"] == "container.deleted"
    assert line["name"] == "shop/orders"
    assert (line["level"], line["logger"]) == ("info", "armillary.security")


async def test_the_address_of_a_request_that_broke_the_server_is_logged_without_its_signature(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: Request) -> Response:
        raise ValueError(f"cannot answer {request}")

    request = Request("GET", b"/parts()?sv=2019&sig=c2VjcmV0", {}, b"", False, "127.0.0.1")
    service = Service(broken)
    try:
        await broken(request)
    except ValueError as error:
        service.crash(request, error)
    assert "GET /parts() was not answered" in caplog.text
    assert "c2VjcmV0" not in caplog.text
