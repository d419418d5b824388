"""What is answered at the portal's addresses without the portal: on a server whose portal is off a page that says what
the server is and how to connect, without scripts and without the account's key; and at the emulator's address the
certificate that TLS clients are to trust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

from armillary.account.security.connection_strings import KEY_MARK, TITLES, strings_without_key
from armillary.net.http import BareResponse, Response
from armillary.portal.policy import HEADERS

CERTIFICATE_PATH: Final = b"/_explorer/emulator.pem"
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Armillary</title>
<h1>Armillary</h1>
<p>This is a database server that speaks the protocols of Azure Cosmos DB. Its portal is turned off
(<code>--portal off</code>).</p>
<h2>Connect</h2>
<dl>
{rows}</dl>
<p><code>{mark}</code> stands for a key of the account. On the server's machine,
<code>armillary connection-strings</code> shows the strings with the key. Clients of other machines get the key from the
server's operator. Clients that use TLS see <a href="{certificate}">this certificate</a>.</p>
</html>
"""
_ROW: Final = """\
<dt>{title}</dt>
<dd><code>{string}</code></dd>
<dd>at {addresses}</dd>
"""
_UNCACHED: Final = ((b"cache-control", b"no-store"), *HEADERS)
_PAGE_HEADERS: Final = ((b"content-type", b"text/html; charset=utf-8"), *_UNCACHED)
_PEM_HEADERS: Final = ((b"content-type", b"application/x-pem-file"), *_UNCACHED)


def plain_page(endpoints: Mapping[str, Sequence[str]], account: str) -> Response:
    """How to connect, for people who open the server's address in a browser. `endpoints`: the addresses of each door as
    the client reaches them, the preferred one first."""
    strings = strings_without_key(endpoints, account)
    rows = "".join(
        _ROW.format(title=TITLES[door], string=escape(string), addresses=escape(", ".join(endpoints[door])))
        for door, string in strings.items()
        if string
    )
    page = _PAGE.format(rows=rows, mark=escape(KEY_MARK), certificate=CERTIFICATE_PATH.decode())
    return BareResponse(200, _PAGE_HEADERS, page.encode())


async def certificate_file(certificate: Callable[[], bytes]) -> Response:
    """Where setups for the emulator download what they are to trust. `certificate`: in PEM form; reads a file, and may
    make the certificate."""
    return BareResponse(200, _PEM_HEADERS, await asyncio.to_thread(certificate))
