"""Sends recorded requests of the SQL door, of the control API and of the management API again, signed anew."""

from __future__ import annotations

import base64
import hmac
import http.client
import json
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import orjson
from clients.recording.exchanges import SERVER, Exchange, unpacked_bytes
from clients.recording.http_proxy import body_json
from clients.recording.proxies import Ports
from clients.replaying.comparison import differences, is_volatile, is_volatile_in_management
from clients.replaying.volatile_values import VolatileValues
from clients.running import CONTROL_KEY
from support.process import KEY

from armillary.doors.sql.routes import parse_route
from armillary.errors import Failure
from armillary.model.binary_json.binary_reader import decode
from armillary.model.binary_json.binary_writer import encode

# Their values are compared; of others only that they are there.
_COMPARED_HEADERS = ("content-type", "x-ms-item-count", "x-ms-substatus", "x-ms-retry-after-ms")
_LEARNED_HEADERS = ("etag", "x-ms-continuation", "x-ms-alt-content-path", "x-ms-content-path")
_SECRET = base64.b64decode(KEY)


class HttpReplay:
    def __init__(self, ports: Ports, volatile: VolatileValues) -> None:
        self._ports = ports
        self._volatile = volatile
        self._connections: dict[int, http.client.HTTPConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def send(self, exchange: Exchange) -> Iterator[str]:
        """What differs from the recorded answer."""
        method, target = exchange["method"], self._volatile.put(exchange["target"])
        headers = {name: self._header(name, value) for name, value in exchange["headers"].items()}
        headers |= self._credentials(exchange, method, target)
        status, answered, body = self._ask(exchange["api"], method, target, headers, self._body(exchange))
        if exchange["api"] == "control":
            self._wait_for_reshapes(exchange)
        if exchange.get("dropped"):
            if status:
                yield f"the status is {status}, recorded was a dropped connection"
            return
        if "answer" not in exchange:
            return  # the client did not wait for it
        recorded = exchange["answer"]
        if status != recorded["status"]:
            yield f"the status is {status}, recorded was {recorded['status']}: {body[:300]!r}"
            return
        if status == 401:
            return  # the message quotes the signed text with its date
        if exchange["api"] != "control":
            yield from self._compare_headers(recorded["headers"], answered)
        live = body_json(body)
        places = [each for each in ("json", "binary", "text") if each in recorded or each in live]
        for each in places:
            if each not in recorded or each not in live:
                yield f"the body is {list(live)}, recorded was {each}"
            elif exchange["api"] != "control":
                expected = _addressed(recorded[each], self._ports)
                if exchange["target"] == "/":
                    expected = _with_new_members(expected, live[each])
                ignores = is_volatile if status < 400 else _is_volatile_in_errors
                if exchange["api"] == "management":
                    ignores = is_volatile_in_management
                yield from differences(expected, live[each], self._volatile, ignores=ignores)

    def _ask(
        self, api: str, method: str, target: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        port = self._ports.management if api == "management" else self._ports.http
        connection = self._connections.get(port)
        if connection is None:
            connection = self._connections[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (http.client.HTTPException, OSError):
            connection.close()  # a fault that drops connections
            return 0, {}, b""
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content

    def _header(self, name: str, value: str) -> str:
        if name == "x-ms-session-token":
            return self._volatile.session(value)
        return self._volatile.put(value)

    def _body(self, exchange: Exchange) -> bytes | None:
        if "body" not in exchange:
            return b"" if exchange["method"] in ("POST", "PUT", "PATCH") else None
        body = unpacked_bytes(exchange["body"])
        if isinstance(exchange["body"], str):
            return self._volatile.put(exchange["body"]).encode()
        try:
            text = orjson.dumps(decode(body)).decode()
        except Failure:
            return body
        changed = self._volatile.put(text)
        # The client's own bytes wherever they hold nothing volatile.
        return body if changed == text else encode(orjson.loads(changed), len(changed))

    def _credentials(self, exchange: Exchange, method: str, target: str) -> dict[str, str]:
        if exchange["api"] == "control":
            return {"authorization": f"Bearer {CONTROL_KEY}"}
        if exchange.get("unsigned"):
            return {}
        date = formatdate(usegmt=True)
        if "token" in exchange:
            return {"authorization": quote(self._volatile.put(exchange["token"]), safe=""), "x-ms-date": date}
        if exchange["api"] == "management":
            is_wrong = exchange["answer"]["status"] == 401  # recordings hold no secrets
            return {"authorization": f"Bearer {'wrong' if is_wrong else CONTROL_KEY}"}
        # A client that was refused had another key.
        is_refused = exchange.get("answer", {}).get("status") == 401
        secret = b"another key" if is_refused else _SECRET
        return {"authorization": _signature(method, target, date, secret), "x-ms-date": date}

    def _compare_headers(self, recorded: dict[str, str], live: dict[str, str]) -> Iterator[str]:
        missing = sorted(recorded.keys() - live.keys())
        if missing:
            yield f"the answer lacks the headers {', '.join(missing)}"
        if ("x-ms-continuation" in live) != ("x-ms-continuation" in recorded):
            yield "the answer has a continuation, or lacks one"
        for name in recorded.keys() & live.keys():
            if name in _COMPARED_HEADERS and recorded[name] != live[name]:
                yield f"the header {name} is {live[name]!r}, recorded was {recorded[name]!r}"
            elif name in _LEARNED_HEADERS:
                self._volatile.learn(recorded[name], live[name])
            elif name == "x-ms-session-token":
                self._volatile.learn_session(recorded[name], live[name])

    def _wait_for_reshapes(self, exchange: Exchange) -> None:
        """Until the partitions have been split, as the program did."""
        if exchange["target"].rsplit("/", 1)[1] not in ("split", "merge", "throughput"):
            return
        headers = {"authorization": f"Bearer {CONTROL_KEY}"}
        while json.loads(self._ask("control", "GET", "/_armillary/reshapes", headers, None)[2])["reshapes"]:
            pass


def _is_volatile_in_errors(place: str, name: str) -> bool:
    """The code of an error is compared; its message may be worded better."""
    return name == "message" or is_volatile(place, name)


def _with_new_members(recorded: Any, live: Any) -> Any:
    """The account's document may come to say more."""
    return {**live, **recorded} if isinstance(recorded, dict) and isinstance(live, dict) else recorded


def _signature(method: str, target: str, date: str, secret: bytes) -> str:
    route = parse_route(target.encode())
    link = route.link.rpartition("/")[2].lower() if route.is_rid_based else route.link
    text = f"{method.lower()}\n{route.resource_type}\n{link}\n{date.lower()}\n\n"
    signature = base64.b64encode(hmac.digest(secret, text.encode(), "sha256")).decode()
    return quote(f"type=master&ver=1.0&sig={signature}", safe="")


def _addressed(recorded: Any, ports: Ports) -> Any:
    """With the address of this server, and its scheme: clients that used TLS were told https."""
    text = json.dumps(recorded)
    if SERVER not in text:
        return recorded
    return json.loads(text.replace(f"https://{SERVER}", f"http://{SERVER}").replace(SERVER, f"127.0.0.1:{ports.http}"))
