"""Sends recorded commands of MongoDB drivers again, on a connection that signs in by itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import bson
from bson.json_util import CANONICAL_JSON_OPTIONS, loads
from clients.recording.exchanges import SERVER, Exchange
from clients.recording.mongo_proxy import HEADER, MORE_TO_COME, OP_MSG, parse_message, to_json
from clients.recording.proxies import Ports
from clients.replaying.comparison import differences
from clients.replaying.volatile_values import VolatileValues
from support.process import KEY

_USER = "localhost"
_NONCE = "replayed-requests"
# Members of answers whose values are others at each run: of documents, and of what surrounds them. Messages of errors
# may be worded better; their codes are compared.
_VOLATILE_IN_DOCUMENTS = frozenset("_data clusterTime wallTime".split())
_VOLATILE = _VOLATILE_IN_DOCUMENTS | frozenset(
    "$clusterTime operationTime localTime postBatchResumeToken topologyVersion connectionId electionId lastWrite uuid "
    "RequestCharge ActivityId RequestDurationInMilliSeconds uptime uptimeMillis uptimeEstimate pid atClusterTime "
    "executionTimeMillis executionTimeMillisEstimate storageSize totalIndexSize indexSizes sizeOnDisk totalSize size "
    "avgObjSize port host version versionArray cursorsKilled cursorsAlive connections mem globalLock network "
    "errmsg opcounters metrics transactions logicalSessionRecordCache".split()
)
_DOCUMENTS = (".cursor.firstBatch", ".cursor.nextBatch", ".value")


class MongoReplay:
    def __init__(self, ports: Ports, volatile: VolatileValues) -> None:
        self._ports = ports
        self._volatile = volatile
        self._cursors: dict[int, int] = {}  # recorded to live
        self._snapshots: dict[str, Any] = {}  # the time of a recorded snapshot to that of the live one
        self._socket: socket.socket | None = None
        self._number = 0

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def send(self, exchange: Exchange) -> Iterator[str]:
        document = self._live(exchange["document"])
        sequences = {name: self._live(documents) for name, documents in exchange["sequences"].items()}
        is_answered = not exchange["flags"] & MORE_TO_COME
        recorded = exchange.get("answer")
        try:
            live = self._ask(document, sequences, exchange["flags"], is_answered=is_answered)
        except ConnectionError as error:
            self.close()
            self._socket = None
            if not exchange.get("dropped"):
                yield f"{error}, recorded was an answer"
            return
        if exchange.get("dropped"):
            yield "the command was answered, recorded was a dropped connection"
        if live is None or recorded is None:
            return
        self._learn_cursors(recorded, live)
        text = json.dumps(recorded)
        if SERVER in text:
            recorded = json.loads(text.replace(SERVER, f"127.0.0.1:{self._ports.mongo}"))
        yield from differences(recorded, live, self._volatile, ignores=_is_volatile)

    def _live(self, recorded: Any) -> Any:
        """Of a request: with live cursors and tokens, and without the times of the server that was recorded."""
        given: Any = loads(self._volatile.put(json.dumps(recorded)), json_options=CANONICAL_JSON_OPTIONS)
        if isinstance(given, dict):
            given.pop("$clusterTime", None)
            concern = given.get("readConcern", {})
            concern.pop("afterClusterTime", None)
            if "atClusterTime" in concern:
                concern["atClusterTime"] = self._snapshots[str(concern["atClusterTime"])]
            if "getMore" in given:
                given["getMore"] = self._cursor(given["getMore"])
            if "killCursors" in given:
                given["cursors"] = [self._cursor(each) for each in given["cursors"]]
        return given

    def _cursor(self, recorded: int) -> bson.Int64:
        return bson.Int64(self._cursors.get(recorded, recorded))

    def _learn_cursors(self, recorded: Any, live: Any) -> None:
        if isinstance(recorded.get("cursor"), dict) and isinstance(live.get("cursor"), dict):
            self._cursors[int(recorded["cursor"]["id"]["$numberLong"])] = int(live["cursor"]["id"]["$numberLong"])
            if "atClusterTime" in recorded["cursor"] and "atClusterTime" in live["cursor"]:
                before, now = [loads(json.dumps(each["cursor"]["atClusterTime"])) for each in (recorded, live)]
                self._snapshots[str(before)] = now

    def _ask(
        self, document: Any, sequences: dict[str, list[Any]], flags: int = 0, *, is_answered: bool = True
    ) -> Any | None:
        """The answer as extended JSON."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._ports.mongo), timeout=60)
            self._sign_in()
        self._socket.sendall(self._message(document, sequences, flags))
        if not is_answered:
            return None
        head = self._receive(HEADER.size)
        answer = head + self._receive(HEADER.unpack(head)[0] - HEADER.size)
        return to_json(parse_message(answer)[1])

    def _message(self, document: Any, sequences: dict[str, list[Any]], flags: int) -> bytes:
        content = struct.pack("<I", flags) + b"\0" + bson.encode(document)
        for name, documents in sequences.items():
            section = name.encode() + b"\0" + b"".join(bson.encode(each) for each in documents)
            content += b"\1" + struct.pack("<i", len(section) + 4) + section
        self._number += 1
        return HEADER.pack(HEADER.size + len(content), self._number, 0, OP_MSG) + content

    def _receive(self, size_bytes: int) -> bytes:
        assert self._socket is not None
        parts: list[bytes] = []
        while size_bytes:
            part = self._socket.recv(size_bytes)
            if not part:
                raise ConnectionError("the server has closed the connection")
            parts.append(part)
            size_bytes -= len(part)
        return b"".join(parts)

    def _sign_in(self) -> None:
        """By SCRAM-SHA-256 (RFC 5802, RFC 7677)."""
        first = f"n={_USER},r={_NONCE}"
        start = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": f"n,,{first}".encode(), "$db": "admin"}
        challenge = self._ask(start, {})
        said = _payload(challenge)
        fields = dict(part.split("=", 1) for part in said.split(","))
        salted = hashlib.pbkdf2_hmac("sha256", KEY.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={fields['r']}"
        signature = hmac.digest(hashlib.sha256(key).digest(), f"{first},{said},{last}".encode(), "sha256")
        proof = base64.b64encode(bytes(one ^ other for one, other in zip(key, signature, strict=True))).decode()
        payload = f"{last},p={proof}".encode()
        assert challenge is not None
        conversation = int(challenge["conversationId"]["$numberInt"])
        done = {"saslContinue": 1, "conversationId": conversation, "payload": payload, "$db": "admin"}
        answer = self._ask(done, {})
        while answer is not None and not answer.get("done"):
            assert answer["ok"] == {"$numberDouble": "1.0"}, answer
            answer = self._ask(done | {"payload": b""}, {})


def _is_volatile(place: str, name: str) -> bool:
    if place.startswith(_DOCUMENTS):
        return name in _VOLATILE_IN_DOCUMENTS
    return name in _VOLATILE or (name == "id" and place == ".cursor")


def _payload(answer: Any) -> str:
    assert "payload" in answer, answer
    return base64.b64decode(answer["payload"]["$binary"]["base64"]).decode()
