"""A running server as the commands see it: where it is, what its control key is, and its control API as function calls.

The server is found through its data directory (`control_file.py`) or by its settings. Calls are answered by
`doors/control`; its errors are raised here as the same Failure.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from armillary.errors import Failure, Kind, bad_request
from armillary.net.certificate import CERTIFICATE_FILE
from armillary.tools.control_file import (
    Control,
    local_host,
    memory_directory,
    memory_servers,
    pinned_context,
    read_control,
)
from armillary.tools.settings import Settings

TIMEOUT_S = 60.0
TIMEOUT_S_MAX = 86_400.0
_PROBE_S = 0.2
_ACCOUNT_KEYS = ("primary", "secondary", "primaryReadonly", "secondaryReadonly")
_KINDS = {kind.name.lower(): kind for kind in Kind}


class Line:
    """One kept HTTP connection to a server. What goes wrong on it is said in the words of the command line."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """`context`: for https; without one, the server's certificate must be of an authority that the machine
        trusts. `timeout_s`: for each answer."""
        self._timeout_s = timeout_s
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise bad_request(f"--url is {url!r}; expected one such as http://127.0.0.1:8081.")
        self.url = url.rstrip("/")
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise bad_request(f"--url is {url!r}; its port is not a number from 1 to 65535.") from None
        self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=timeout_s)
        if parts.scheme == "https":
            context = context or ssl.create_default_context()
            self._connection = http.client.HTTPSConnection(parts.hostname, port, timeout=timeout_s, context=context)

    def close(self) -> None:
        self._connection.close()

    def exchange(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], *, changes: bool
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer. `changes`: whether a request without an answer may have changed
        something."""
        was_sent = False
        try:
            if self._connection.sock is None:
                self._connection.connect()
            was_sent = True
            self._connection.request(method, target, content, dict(headers))
            response = self._connection.getresponse()
            answered = {name.lower(): value for name, value in response.getheaders()}
            return response.status, answered, response.read()
        except BaseException as error:
            self._connection.close()  # what is left of the answer must not be read as the next one
            if not isinstance(error, OSError | http.client.HTTPException):
                raise
            raise Failure(Kind.UNAVAILABLE, self._said(error, was_sent=was_sent, changes=changes)) from None

    def _said(self, error: Exception, *, was_sent: bool, changes: bool) -> str:
        """What happened to a request, and the next step."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"The certificate of {self.url} is not trusted: {error.verify_message}. Name the server's data "
                "directory with --data, or install its certificate: `armillary trust` says how."
            )
        if isinstance(error, ssl.SSLError):
            return f"What listens at {self.url} does not speak TLS. Write http:// instead of https:// in --url."
        if isinstance(error, socket.gaierror):
            return f"There is no host {urlsplit(self.url).hostname!r}: {error.strerror}. Check --url."
        if was_sent and changes:
            return (
                f"The server at {self.url} was asked, and has not answered: {error or type(error).__name__}. The "
                "command may have been carried out: look at the state before it is repeated."
            )
        if isinstance(error, TimeoutError):
            return (
                f"The server at {self.url} has not answered within {self._timeout_s:g} s. Check its log, or give it "
                "more time with --timeout."
            )
        if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | http.client.BadStatusLine):
            return (
                f"What listens at {self.url} closed the connection or does not speak HTTP. Check the port in --url: "
                "it is that of the SQL API; a server that demands TLS is named by https://."
            )
        why = getattr(error, "strerror", None) or error
        return (
            f"No server answers at {self.url}: {why}. Start it with `armillary serve`, or name another one with "
            "--data or --url."
        )


class Server:
    """The control API. Paths are given as segments, of which none needs to be escaped."""

    def __init__(self, url: str, key: str, context: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.line = Line(url, context, timeout_s)
        self.url = self.line.url
        self._key = key

    def close(self) -> None:
        self.line.close()

    def get(self, *path: str, **query: object) -> Any:
        return self._call("GET", path, None, query)

    def post(self, *path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", path, body)

    def put(self, *path: str, body: dict[str, Any]) -> Any:
        return self._call("PUT", path, body)

    def delete(self, *path: str) -> Any:
        return self._call("DELETE", path, None)

    def get_bytes(self, *path: str, **query: object) -> bytes | None:
        """The body; None after the last part."""
        status, answer = self._send("GET", path, query=query)
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
        status, _, answer = self.line.exchange(method, target, content, headers, changes=method != "GET")
        return status, answer


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
    timeout_s: float = TIMEOUT_S  # for each answer

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> Where:
        """Takes these arguments out of the others."""
        timeout_s = arguments.pop("timeout", TIMEOUT_S)
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise bad_request(f"--timeout is {timeout_s:g}; expected seconds, more than 0 and up to {TIMEOUT_S_MAX:g}.")
        return cls(arguments.pop("url", None), arguments.pop("client_certificate", None), timeout_s)


def find_server(settings: Settings, where: Where) -> Server:
    """The server of these settings."""
    found = _find_control(settings, where)
    key = settings.control_key or found.key
    if key is None:
        running = [url for url in memory_servers() if _is_listening(url)]
        found_too = f" In memory run: {', '.join(running)}." if running else ""
        raise bad_request(
            f"There is no control key in {settings.directory}, and ARMILLARY_CONTROL_KEY is not set. Start a server "
            "with `armillary serve`, or name the data directory of one with --data, or the address of one in memory "
            f"with --url.{found_too}"
        )
    if where.url is None and settings.control_key is not None and not is_ours(found.url, local_host(settings.host)):
        # The file may have come with a directory of others: what it names is not told a key that it does not hold.
        raise bad_request(
            f"The data directory names the server {found.url}, which is not on this machine. Give --url to "
            "send the control key there."
        )
    url, context = _address(settings, where, found)
    return Server(url, key, context, where.timeout_s)


def find_line(settings: Settings, where: Where) -> Line:
    """The same server, for requests of other APIs than the control API."""
    return Line(*_address(settings, where, _find_control(settings, where)), where.timeout_s)


def has_control_key(settings: Settings, where: Where) -> bool:
    return (settings.control_key or _find_control(settings, where).key) is not None


def account_key(settings: Settings, where: Where) -> str:
    """That a command signs its requests with: the one that is given; else the one that the control API tells; else the
    emulator's well-known one."""
    if "key" in settings.sources or not has_control_key(settings, where):
        return settings.key
    server = find_server(settings, where)
    try:
        keys = server.get("account", "keys")["keys"]
    finally:
        server.close()
    key: str | None = next((keys[name] for name in _ACCOUNT_KEYS if keys.get(name)), None)
    if key is None:
        raise bad_request(
            "The control key that is set may only read, and the account has no read-only key to query with. Give "
            "the account key in ARMILLARY_KEY or with --key, or set --read-only-key at the server."
        )
    return key


def _address(settings: Settings, where: Where, found: Control) -> tuple[str, ssl.SSLContext | None]:
    host = local_host(settings.host)
    default = f"http://{f'[{host}]' if ':' in host else host}:{settings.sql_port}"
    url = where.url or found.url or default
    return url, _context(settings, where, found) if url.startswith("https:") else None


def ask_health(settings: Settings, given: str | None) -> str:
    """Whether a server is ready: its answer as a word, or a Failure. No key is sent. The server is at the address that
    is given, else at the port for health checks of the settings, else where its data directory says."""
    where = Where(given)
    found = _find_control(settings, where)
    host = local_host(settings.host)
    own = f"http://{f'[{host}]' if ':' in host else host}"
    if settings.health_port:
        usual = f"{own}:{settings.health_port}"
    else:
        usual = found.url or f"{own}:{settings.sql_port}"
    url = given or usual
    server = Server(url, "", _context(settings, where, found) if url.startswith("https:") else None)
    try:
        return str(server.get("ready")["status"])
    finally:
        server.close()


def _find_control(settings: Settings, where: Where) -> Control:
    """What the data directory says; if it says nothing, and none was named or an address was, what the server in memory
    says that has this port."""
    found = Control(None, None) if settings.is_in_memory else read_control(settings.directory)
    is_named = "data" in settings.sources and not settings.is_in_memory and where.url is None
    if found.url is not None or is_named:
        return found
    port = settings.sql_port
    if where.url is not None:
        try:
            port = urlsplit(where.url).port or 0
        except ValueError:
            port = 0
        if not is_ours(where.url, local_host(settings.host)):
            return found
    directory = memory_directory(port)
    return read_control(directory) if directory is not None else found


def _is_listening(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), _PROBE_S).close()
    except (OSError, ValueError):
        return False
    return True


def is_ours(url: str | None, host: str) -> bool:
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
