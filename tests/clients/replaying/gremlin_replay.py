"""Sends recorded requests of Gremlin drivers again, on a connection that signs in by itself."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from clients.recording.exchanges import Exchange
from clients.recording.gremlin_proxy import parse_answer
from clients.recording.proxies import Ports
from clients.replaying.comparison import differences
from clients.replaying.volatile_values import VolatileValues
from support.process import KEY
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

_PARTIAL, _CHALLENGE = 206, 407
# Attributes of answers whose values are others at each run.
_VOLATILE = frozenset("requestId attributes _etag _ts _rid _self _lsn".split())
_GRAPHSON = b"application/vnd.gremlin-v2.0+json"


class GremlinReplay:
    def __init__(self, ports: Ports, volatile: VolatileValues) -> None:
        self._ports = ports
        self._volatile = volatile
        self._connections: dict[str, ClientConnection] = {}  # by user: a database and a graph
        self._open = ExitStack()

    def close(self) -> None:
        self._open.close()

    def send(self, exchange: Exchange) -> Iterator[str]:
        is_dropped = exchange.get("dropped", False)
        if not exchange["answers"] and not is_dropped:
            return  # the client did not wait
        try:
            live = self._ask(exchange)
        except ConnectionClosed:
            del self._connections[exchange["user"]]
            if not is_dropped:
                yield "the server has closed the connection, recorded was an answer"
            return
        if is_dropped:
            yield "the request was answered, recorded was a dropped connection"
            return
        recorded = exchange["answers"]
        yield from differences(
            [each["status"]["code"] for each in recorded], [each["status"]["code"] for each in live], self._volatile
        )
        yield from differences(recorded, live, self._volatile, ignores=_is_volatile)

    def _ask(self, exchange: Exchange) -> list[dict[str, Any]]:
        """All answers to the request."""
        user = exchange["user"]
        connection = self._connections.get(user)
        if connection is None:
            address = f"ws://127.0.0.1:{self._ports.gremlin}/"
            agent = exchange.get("agent")
            opening = connect(address, compression=None, max_size=1 << 24, user_agent_header=agent)
            connection = self._open.enter_context(opening)
            self._connections[user] = connection
        connection.send(self._message(exchange["message"]))
        live: list[dict[str, Any]] = []
        while not live or live[-1]["status"]["code"] == _PARTIAL:
            answer = parse_answer(connection.recv(timeout=60))
            if answer["status"]["code"] == _CHALLENGE:
                connection.send(_credentials(exchange["id"], user))
            else:
                live.append(answer)
        return live

    def _message(self, recorded: str | dict[str, str]) -> str | bytes:
        if isinstance(recorded, str):
            return self._volatile.put(recorded)
        if "base64" in recorded:
            return b64decode(recorded["base64"])
        kind = recorded["type"].encode()
        return bytes([len(kind)]) + kind + self._volatile.put(recorded["text"]).encode()


def _is_volatile(place: str, name: str) -> bool:
    """Messages of errors may be worded better; their codes are compared."""
    return name in _VOLATILE or (name == "message" and place.endswith(".status"))


def _credentials(request_id: str, user: str) -> bytes:
    sasl = b64encode(f"\0{user}\0{KEY}".encode()).decode()
    request = {
        "requestId": {"@type": "g:UUID", "@value": request_id},
        "op": "authentication",
        "processor": "",
        "args": {"sasl": sasl},
    }
    return bytes([len(_GRAPHSON)]) + _GRAPHSON + json.dumps(request).encode()
