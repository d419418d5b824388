"""A running server as the commands see it: where it is, what its control key is, and its control API as function calls.

The server is found through its data directory (`control_file.py`) or by its settings. Calls are answered by
`doors/control`; its errors are raised here as the same Failure.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from armillary.errors import Failure, Kind, bad_request
from armillary.net.certificate import CERTIFICATE_FILE
from armillary.tools.control_file import Control, local_host, pinned_context, read_control
from armillary.tools.settings import Settings

_TIMEOUT_S = 60.0
_KINDS = {kind.name.lower(): kind for kind in Kind}


class Server:
    """The control API. Paths are given as segments, of which none needs to be escaped."""

    def __init__(self, url: str, key: str, context: ssl.SSLContext | None = None) -> None:
        """`context`: for https; without one, the server's certificate must be of an authority that the machine
        trusts."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise bad_request(f"--url is {url!r}; expected one such as http://127.0.0.1:8081.")
        self.url = url.rstrip("/")
        self._key = key
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise bad_request(f"--url is {url!r}; its port is not a number from 1 to 65535.") from None
        self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=_TIMEOUT_S)
        if parts.scheme == "https":
            context = context or ssl.create_default_context()
            self._connection = http.client.HTTPSConnection(parts.hostname, port, timeout=_TIMEOUT_S, context=context)

    def close(self) -> None:
        self._connection.close()

    def get(self, *path: str, **query: object) -> Any:
        return self._call("GET", path, None, query)

    def post(self, *path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", path, body)

    def put(self, *path: str, body: dict[str, Any]) -> Any:
        return self._call("PUT", path, body)

    def delete(self, *path: str) -> Any:
        return self._call("DELETE", path, None)

    def get_bytes(self, *path: str) -> bytes | None:
        """The body; None after the last part."""
        status, answer = self._send("GET", path)
        if status >= 400:
            _content(answer, status, self.url)
        return answer if status == 200 else None

    def put_bytes(self, *path: str, content: bytes) -> Any:
        status, answer = self._send("PUT", path, content, "application/octet-stream")
        return _content(answer, status, self.url)

    @property
    def is_answering(self) -> bool:
        try:
            self.get("health")
        except Failure as failure:
            if failure.kind is Kind.UNAVAILABLE:
                return False
            raise
        return True

    def _call(
        self, method: str, path: tuple[str, ...], body: dict[str, Any] | None, query: dict[str, object] | None = None
    ) -> Any:
        text = json.dumps(body).encode() if body is not None else None
        status, answer = self._send(method, path, text, "application/json", query)
        return _content(answer, status, self.url)

    def _send(
        self,
        method: str,
        path: tuple[str, ...],
        content: bytes | None = None,
        media_type: str = "",
        query: dict[str, object] | None = None,
    ) -> tuple[int, bytes]:
        target = "/_armillary/" + "/".join(quote(segment, safe="") for segment in path)
        if query:
            target += "?" + "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
        headers = {"Authorization": f"Bearer {self._key}"}
        if content is not None:
            headers["Content-Type"] = media_type
        try:
            self._connection.request(method, target, content, headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Failure(
                Kind.UNAVAILABLE,
                f"No server answers at {self.url}: {error}. Start it with `armillary serve`, or name another one with "
                "--data or --url.",
            ) from None
        return response.status, answer


def _content(answer: bytes, status: int, url: str) -> Any:
    try:
        content = json.loads(answer)
        if status < 400:
            return content
        error = content["error"]
        raise Failure(_KINDS.get(error["code"], Kind.INTERNAL), error["message"])
    except (ValueError, KeyError, TypeError):
        raise Failure(
            Kind.UNAVAILABLE,
            f"What answers at {url} is not an Armillary server, or has no control API. Check --url or --data.",
        ) from None


class Where(NamedTuple):
    """The arguments of a command that locate the server."""

    url: str | None = None
    client_certificate: Path | None = None  # certificate and key in one PEM file


def find_server(settings: Settings, where: Where) -> Server:
    """The server of these settings."""
    found = Control(None, None) if settings.is_in_memory else read_control(settings.directory)
    key = settings.control_key or found.key
    if key is None:
        raise bad_request(
            f"There is no control key in {settings.directory}, and ARMILLARY_CONTROL_KEY is not set. Name the "
            "server's data directory with --data, or start a server with `armillary serve`."
        )
    host = local_host(settings.host)
    default = f"http://{f'[{host}]' if ':' in host else host}:{settings.sql_port}"
    if where.url is None and settings.control_key is not None and not _is_ours(found.url, host):
        # The file may have come with a directory of others: what it names is not told a key that it does not hold.
        raise bad_request(
            f"The data directory names the server {found.url}, which is not on this machine. Give --url to "
            "send the control key there."
        )
    url = where.url or found.url or default
    return Server(url, key, _context(settings, where, found) if url.startswith("https:") else None)


def _is_ours(url: str | None, host: str) -> bool:
    """Whether a server is on this machine, or where the settings say that it listens."""
    if url is None:
        return True
    named = urlsplit(url).hostname or ""
    try:
        return named in (host, "localhost") or ipaddress.ip_address(named).is_loopback
    except ValueError:
        return False


def _context(settings: Settings, where: Where, found: Control) -> ssl.SSLContext:
    if where.url is None and found.certificate is not None:
        context = pinned_context(found.certificate)
    else:
        context = ssl.create_default_context()
        own = settings.directory / CERTIFICATE_FILE
        if own.exists():
            context.load_verify_locations(own)
    if where.client_certificate is not None:
        try:
            context.load_cert_chain(where.client_certificate)
        except (OSError, ssl.SSLError):
            raise bad_request(
                f"--client-certificate {where.client_certificate} cannot be used; expected a PEM file with a "
                "certificate and its key."
            ) from None
    return context
