"""Log-ins of the portal: keys, tickets, cookies, the header against cross-site requests, read-only credentials."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.topology import following

from armillary import limits
from armillary.account.account import Account
from armillary.account.security.credentials import Credentials
from armillary.clock import VirtualClock
from armillary.doors.control.access.log_ins import LogIns
from armillary.doors.control.door import ControlDoor
from armillary.doors.control.foresight.jobs import Jobs
from armillary.doors.control.routes import CHANGING, REQUESTS
from armillary.net.http import Request, Response
from armillary.storage.memory import MemoryEngine

KEY = "Y29udHJvbCBrZXkgb2YgdGhlIHRlc3Rz"
READ_KEY = "cmVhZC1vbmx5IGNvbnRyb2wga2V5IHRlc3Q="
ACCOUNT_KEY = "a2V5IG9mIHRoZSBhY2NvdW50"
COMPUTING = ("estimate", "simulations", "advice", "uploads", "jobs")  # changes nothing but itself


class Browser:
    """Keeps the cookie and the value against cross-site requests, as a page does."""

    def __init__(self, account: Account, clock: VirtualClock, credentials: Credentials) -> None:
        self.account = account
        self.clock = clock
        self.log_ins = LogIns(clock, "0a1b2c3d")
        self.door = ControlDoor(account, KEY, read_only_key=READ_KEY, log_ins=self.log_ins, credentials=credentials)
        self.cookie = self.csrf = self.set_cookie = ""

    def request(self, method: str, path: str, content: Any = None, *, is_tls: bool = False, **headers: str) -> Request:
        given = {"host": "localhost:8081", "content-type": "application/json", "cookie": self.cookie}
        given |= {"x-armillary-csrf": self.csrf} | {name.replace("_", "-"): value for name, value in headers.items()}
        encoded = {name.encode(): value.encode() for name, value in given.items() if value}
        body = b"" if content is None else orjson.dumps(content)
        return Request(method, f"/_armillary/{path}".encode(), encoded, body, is_tls, "127.0.0.1")

    async def send(self, method: str, path: str, content: Any = None, **headers: Any) -> Response:
        return await self.door.answer(self.request(method, path, content, **headers))

    async def status(self, method: str, path: str, content: Any = None, **headers: Any) -> int:
        return (await self.send(method, path, content, **headers)).status

    async def log_in(self, status: int = 201, *, is_tls: bool = False, **content: Any) -> Any:
        response = await self.send("POST", "session", content, is_tls=is_tls)
        answer = orjson.loads(response.body)
        assert response.status == status, answer
        if status == 201:
            self.csrf = answer["csrf"]
            self.set_cookie = dict(response.headers)[b"set-cookie"].decode()
            self.cookie = self.set_cookie.partition(";")[0]
        return answer

    async def session(self) -> Any:
        return orjson.loads((await self.send("GET", "session")).body)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock)
    yield Browser(account, clock, await Credentials.open(account, (ACCOUNT_KEY, None, "cmVhZGVy", None)))
    await account.close()
    await engine.close()


async def test_with_the_key(browser: Browser) -> None:
    assert await browser.session() == {"isLoggedIn": False, "portal": "login", "hasControlKey": True}
    assert await browser.status("GET", "databases") == 401
    answer = await browser.log_in(key=KEY)
    assert answer == {"csrf": browser.csrf, "readOnly": False, "expiresInSeconds": 28_800}
    name, _, attributes = browser.set_cookie.partition("=")
    assert name == "armillary-0a1b2c3d"
    assert re.fullmatch(r"[\w-]{43}; HttpOnly; SameSite=Strict; Path=/_armillary", attributes)
    assert await browser.status("GET", "databases") == 200
    assert (await browser.session())["csrf"] == browser.csrf
    assert await browser.status("POST", "databases", {"name": "shop"}) == 201
    assert await browser.status("DELETE", "session") == 200
    assert await browser.status("GET", "databases") == 401


async def test_over_tls_the_cookie_is_secure_and_another(browser: Browser) -> None:
    await browser.log_in(key=KEY, is_tls=True)
    assert browser.set_cookie.endswith("Path=/_armillary; Secure")
    assert await browser.status("GET", "databases", is_tls=True) == 200
    assert await browser.status("GET", "databases") == 401, "a Secure cookie is not sent without TLS"


async def test_with_a_ticket_once(browser: Browser) -> None:
    bearer = {"authorization": f"Bearer {KEY}"}
    made = orjson.loads((await browser.send("POST", "session/tickets", **bearer)).body)
    assert made["expiresInSeconds"] == 60
    await browser.log_in(ticket=made["ticket"])
    assert await browser.status("POST", "session/tickets") == 403, "made with a key only"
    assert "used before" in (await browser.log_in(401, ticket=made["ticket"]))["error"]["message"]
    old = orjson.loads((await browser.send("POST", "session/tickets", **bearer)).body)
    browser.clock.advance(60)
    await browser.log_in(401, ticket=old["ticket"])
    reading = orjson.loads((await browser.send("POST", "session/tickets", authorization=f"Bearer {READ_KEY}")).body)
    assert (await browser.log_in(ticket=reading["ticket"]))["readOnly"]


async def test_wrong_keys(browser: Browser) -> None:
    assert "wrong" in (await browser.log_in(401, key="no"))["error"]["message"]
    assert "That is the account's key" in (await browser.log_in(401, key=ACCOUNT_KEY))["error"]["message"]
    for content in ({}, {"key": KEY, "ticket": "x"}, {"key": 1}, {"key": KEY, "other": 1}):
        await browser.log_in(400, **content)
    for _ in range(8):
        await browser.log_in(401, key="no")
    assert "60 seconds" in (await browser.log_in(429, key=KEY))["error"]["message"]
    browser.clock.advance(59)
    await browser.log_in(429, key=KEY)
    browser.clock.advance(1)
    await browser.log_in(key=KEY)


async def test_how_long_it_lasts(browser: Browser) -> None:
    await browser.log_in(key=KEY)
    for _ in range(3):
        browser.clock.advance(limits.LOG_IN_IDLE_SECONDS - 600)
        assert await browser.status("GET", "databases") == 200
    assert (await browser.session())["expiresInSeconds"] == 1_800, "a day in all"
    browser.clock.advance(1_800)
    assert await browser.status("GET", "databases") == 401
    await browser.log_in(key=KEY)
    browser.clock.advance(limits.LOG_IN_IDLE_SECONDS)
    assert not (await browser.session())["isLoggedIn"]


async def test_the_oldest_of_too_many_ends(browser: Browser) -> None:
    await browser.log_in(key=KEY)
    first, csrf = browser.cookie, browser.csrf
    for _ in range(limits.LOG_INS_MAX):
        await browser.log_in(key=KEY)
    last, browser.cookie = browser.cookie, first
    assert await browser.status("GET", "databases") == 401
    browser.cookie = f"other=1; {last}; more=2"
    assert (await browser.session())["logIns"] == limits.LOG_INS_MAX
    assert browser.csrf != csrf
    ended = orjson.loads((await browser.send("DELETE", "session?all=true")).body)
    assert ended == {"ended": limits.LOG_INS_MAX}
    assert await browser.status("GET", "databases") == 401


async def test_cross_site_requests_are_refused(browser: Browser) -> None:
    await browser.log_in(key=KEY)
    csrf, browser.csrf = browser.csrf, ""
    for method, path in (("POST", "databases"), ("DELETE", "session"), ("PUT", "reshapes/pauses")):
        assert await browser.status(method, path, {}) == 403, path
        assert await browser.status(method, path, {}, x_armillary_csrf="no") == 403, path
    assert await browser.status("GET", "databases") == 200
    assert await browser.status("GET", "databases", origin="https://evil.example") == 403
    assert await browser.status("GET", "databases", host="evil.example") == 403
    for method in ("GET", "POST"):
        assert await browser.status(method, "session", {"key": KEY}, origin="https://evil.example") == 403
        assert await browser.status(method, "session", {"key": KEY}, host="evil.example") == 403
    browser.csrf = csrf
    assert await browser.status("POST", "session", {"key": KEY}, content_type="text/plain") == 415
    assert await browser.status("POST", "databases", {"name": "shop"}, origin="http://localhost:8081") == 201


@pytest.mark.parametrize("way", ["key", "check box", "bearer", "setting"])
async def test_read_only_credentials_change_nothing(browser: Browser, way: str) -> None:
    """All routes of the door's own table."""
    headers: dict[str, Any] = {}
    if way == "bearer":
        headers = {"authorization": f"Bearer {READ_KEY}"}
    else:
        browser.log_ins.mode = "read-only" if way == "setting" else "login"
        assert (await browser.log_in(key=READ_KEY if way == "key" else KEY, readOnly=way == "check box"))["readOnly"]
    assert len(CHANGING) > 30
    assert {method for method, _ in CHANGING} == {"POST", "PUT", "DELETE"}
    assert {each for each in REQUESTS if each[0] != "GET"} - set(CHANGING) == {
        ("POST", "session"),
        ("DELETE", "session"),
        ("POST", "session/tickets"),
        ("POST", "databases/{}/containers/{}/parse"),
        *((method, path) for method, path in REQUESTS if path.partition("/")[0] in COMPUTING and method != "GET"),
    }
    for method, path in CHANGING:
        target = path.replace("{}", "x")
        refused = await browser.send(method, target, {}, **headers)
        assert (refused.status, b"may only read" in refused.body) == (403, True), (method, path)
        screened = browser.door.screen(browser.request(method, target, **headers))
        assert screened is not None and screened.status == 403, "refused before it is forwarded to a leader"
    for path in ("databases", "metrics", "server", "faults", "clock"):
        assert await browser.status("GET", path, **headers) == 200
    keys = orjson.loads((await browser.send("GET", "account/keys", **headers)).body)["keys"]
    assert keys == {"primary": None, "secondary": None, "primaryReadonly": "cmVhZGVy", "secondaryReadonly": None}
    assert ACCOUNT_KEY not in (await browser.send("GET", "account/connection-strings", **headers)).body.decode()
    if way != "bearer":
        assert await browser.status("DELETE", "session?all=true") == 403
        assert await browser.status("DELETE", "session") == 200


async def test_readers_end_the_jobs_of_readers_alone(browser: Browser) -> None:
    browser.door.jobs = jobs = Jobs((sys.executable, "-c", "import time; time.sleep(3600)"))
    readers = jobs.submit({"kind": "simulation"}, is_of_reader=True)
    others = jobs.submit({"kind": "simulation"})
    reading = {"authorization": f"Bearer {READ_KEY}"}
    assert await browser.status("DELETE", f"jobs/{others.id}", **reading) == 403
    assert await browser.status("DELETE", f"jobs/{readers.id}", **reading) == 200
    assert await browser.status("DELETE", f"jobs/{others.id}", authorization=f"Bearer {KEY}") == 200
    await jobs.close()


async def test_open_and_off(browser: Browser) -> None:
    browser.log_ins.mode = "open"
    await browser.log_in()
    assert await browser.status("POST", "databases", {"name": "shop"}) == 201
    browser.log_ins.mode = "off"
    for method, path in (("GET", "session"), ("POST", "session"), ("POST", "session/tickets")):
        assert await browser.status(method, path, {}, authorization=f"Bearer {KEY}") == 404


async def test_a_server_without_a_key_says_so(browser: Browser) -> None:
    browser.door = ControlDoor(browser.account, None)
    assert (await browser.session()) == {"isLoggedIn": False, "portal": "login", "hasControlKey": False}
    assert "no control key" in (await browser.log_in(403, key=KEY))["error"]["message"]


async def test_what_a_node_has_found_goes_with_the_request_to_the_leader(browser: Browser) -> None:
    """The leader does not know the log-ins of other nodes."""
    leader = ControlDoor(browser.account, KEY, credentials=browser.door.credentials)
    browser.account.topology = following()
    for is_read_only, expected in ((False, ACCOUNT_KEY), (True, None)):
        await browser.log_in(key=KEY, readOnly=is_read_only)
        request = browser.request("GET", "account/keys")
        assert browser.door.needs_leader(request) and browser.door.screen(request) is None
        request.is_known = True  # as the front sets it
        browser.account.topology = None
        keys = orjson.loads((await leader.answer(request)).body)["keys"]
        assert keys["primary"] == expected
    for path in ("session", "session/tickets", "server"):
        assert not browser.door.needs_leader(browser.request("GET", path))


async def test_log_ins_are_listed(browser: Browser) -> None:
    assert await browser.status("GET", "session/log-ins") == 401
    await browser.log_in(key=KEY, readOnly=True)
    browser.clock.advance(60)
    await browser.log_in(key=KEY)
    browser.clock.advance(5)

    async def listed() -> Any:
        response = await browser.send("GET", "session/log-ins")
        assert response.status == 200
        assert browser.csrf.encode() not in response.body
        return orjson.loads(response.body)["logIns"]

    newest, oldest = await listed()
    assert (newest["address"], newest["isThis"], newest["readOnly"]) == ("127.0.0.1", True, False)
    assert (newest["begunSecondsAgo"], newest["usedSecondsAgo"]) == (5, 0)
    assert (oldest["isThis"], oldest["readOnly"]) == (False, True)
    assert (oldest["begunSecondsAgo"], oldest["usedSecondsAgo"]) == (65, 65)
    assert await browser.status("GET", "session/log-ins?all=true") == 400
    # The one that is not used any more ends; the other is used again in between.
    browser.clock.advance(limits.LOG_IN_IDLE_SECONDS - 60)
    await listed()
    browser.clock.advance(60)
    (left,) = await listed()
    assert left["isThis"]
