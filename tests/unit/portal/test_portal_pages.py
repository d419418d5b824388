"""The pages of the portal and their files: addresses, policy headers, caching, compression, redirects of browsers."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from armillary import limits
from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.control.access.log_ins import LogIns
from armillary.doors.control.door import ControlDoor
from armillary.net.http import Request, Response
from armillary.portal.bridges import Bridges
from armillary.portal.door import PortalDoor
from armillary.portal.policy import redirect_browser
from armillary.portal.static_files import FILES, StaticFiles
from armillary.storage.memory import MemoryEngine

NO_BRIDGES = cast(Bridges, SimpleNamespace(leads_to=lambda request: None))
BROWSER = {"accept": "text/html,application/xhtml+xml", "host": "localhost:8081"}
POLICY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def request_of(target: str, method: str = "GET", **headers: str) -> Request:
    given = BROWSER | {name.replace("_", "-"): value for name, value in headers.items()}
    encoded = {name.encode(): value.encode() for name, value in given.items() if value}
    return Request(method, target.encode(), encoded, b"", False, "127.0.0.1")


def headers_of(response: Response) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in response.headers}


class Pages:
    def __init__(self, account: Account, files: Path) -> None:
        self.log_ins = LogIns(account.clock)
        self.door = PortalDoor(ControlDoor(account, "key", log_ins=self.log_ins), StaticFiles(files), NO_BRIDGES)

    async def get(self, path: str, method: str = "GET", **headers: str) -> Response:
        response = await self.door.answer(request_of(f"/_armillary/portal{path}", method, **headers))
        assert headers_of(response).items() >= POLICY.items(), path
        return response


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock())
    yield account
    await account.close()
    await engine.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "views").mkdir()
    (tmp_path / "index.html").write_text("<script src=/_armillary/portal/static/{digest}/app.js></script>")
    (tmp_path / "app.js").write_text("import './views/first.js';" + " " * 1_000)
    (tmp_path / "views" / "first.js").write_text("export const first = 1;")
    (tmp_path / ".hidden.js").write_text("no")
    return tmp_path


@pytest.fixture
def pages(account: Account, files: Path) -> Pages:
    return Pages(account, files)


async def test_every_page_is_the_index_with_the_digest_in_it(pages: Pages) -> None:
    index = await pages.get("/")
    assert (index.status, headers_of(index)["content-type"]) == (200, "text/html; charset=utf-8")
    digest = index.body.split(b"/")[4].decode()
    assert len(digest) == 16 and headers_of(index)["etag"] == f'"{digest}"'
    assert headers_of(index)["cache-control"] == "no-cache"
    for path in ("/c/shop/orders/items", "/compare?a=shop/a.b", "/testing", "/c/a.b/c.d/query"):
        assert (await pages.get(path)).body == index.body
    again = await pages.get("/", if_none_match=f'"{digest}"')
    assert (again.status, again.body) == (304, b"")
    assert (await pages.get("")).status == 308


async def test_files_are_kept_for_ever_below_the_digest(pages: Pages) -> None:
    digest = headers_of(await pages.get("/"))["etag"].strip('"')
    for name in ("app.js", "views/first.js"):
        answer = await pages.get(f"/static/{digest}/{name}")
        assert (answer.status, headers_of(answer)["content-type"]) == (200, "text/javascript; charset=utf-8")
        assert headers_of(answer)["cache-control"] == "public, max-age=31536000, immutable"
    for name in ("none.js", ".hidden.js", "../door.py", "views/../app.js", "index.html", "views", ""):
        assert (await pages.get(f"/static/{digest}/{name}")).status == 404, name
    for path in ("/static/0123456789abcdef/app.js", "/static/", "/app.js", "/c/x/favicon.ico", f"/static/{digest}"):
        assert (await pages.get(path)).status == 404, path
    assert (await pages.get("/", "POST")).status == 405


async def test_files_are_compressed_for_those_who_read_that(pages: Pages) -> None:
    digest = headers_of(await pages.get("/"))["etag"].strip('"')
    plain = await pages.get(f"/static/{digest}/app.js")
    packed = await pages.get(f"/static/{digest}/app.js", accept_encoding="br, gzip")
    assert "content-encoding" not in headers_of(plain)
    assert headers_of(packed)["content-encoding"] == "gzip" and headers_of(packed)["vary"] == "accept-encoding"
    assert gzip.decompress(packed.body) == plain.body and len(packed.body) < len(plain.body)
    assert await pages.get(f"/static/{digest}/app.js", accept_encoding="gzip") is packed, "made once"


async def test_a_changed_file_changes_the_digest(pages: Pages, files: Path) -> None:
    before = headers_of(await pages.get("/"))["etag"]
    (files / "app.js").write_text("changed")
    after = headers_of(await pages.get("/"))["etag"]
    assert before != after
    assert (await pages.get(f"/static/{after[1:-1]}/app.js")).body == b"changed"


async def test_no_more_than_its_share_of_memory_is_held(
    pages: Pages, files: Path, with_limits: pytest.FixtureRequest
) -> None:
    with_limits(PORTAL_FILES_HELD_BYTES_MAX=10)  # type: ignore[operator]
    digest = headers_of(await pages.get("/"))["etag"].strip('"')
    first = await pages.get(f"/static/{digest}/app.js")
    assert (await pages.get(f"/static/{digest}/app.js")) is not first
    assert sum(path.stat().st_size for path in FILES.rglob("*") if path.is_file()) <= limits.MB * 3


async def test_off(pages: Pages) -> None:
    pages.log_ins.mode = "off"
    page = await pages.get("/")
    assert (page.status, b"--portal off" in page.body) == (200, True)
    assert (await pages.get("/", "POST")).status == 404
    assert (await pages.get("/static/x/app.js")).status == 404


@pytest.mark.parametrize("target", ["/", "/?x=1", "/_explorer", "/_explorer/", "/_explorer/index.html"])
def test_browsers_are_sent_to_the_portal(target: str) -> None:
    answer = redirect_browser(request_of(target))
    assert answer is not None
    assert (answer.status, headers_of(answer)["location"]) == (302, "/_armillary/portal/")


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/", {"accept": "application/json"}),
        ("/", {"accept": ""}),
        ("/", {"authorization": "type%3Dmaster"}),
        ("/dbs", {}),
        ("/_explorer/other.js", {}),
        ("/_armillary/health", {}),
    ],
)
def test_clients_are_not(target: str, headers: dict[str, str]) -> None:
    assert redirect_browser(request_of(target, **headers)) is None
    assert redirect_browser(request_of("/", "POST")) is None
