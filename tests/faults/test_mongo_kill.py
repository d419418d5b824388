"""Numbered writes and transactions of the MongoDB door over kill -9: a client that does what drivers do, sending again
what was not answered, sees every write done once and every transaction whole."""

from __future__ import annotations

import random
import socket
import struct
from pathlib import Path
from typing import Any

from bson.binary import Binary
from bson.int64 import Int64
from support.mongo_house import document_in, frame_of
from support.portions import Amount
from support.process import ServerProcess

ROUNDS = 15  # a tenth of them in `make test`
ACCOUNTS = 8
MONEY = 100


class Client:
    """One session on a raw socket, so that it is known what was sent and what was not answered."""

    def __init__(self, directory: Path, session: bytes) -> None:
        self._directory = directory
        self._session = {"id": Binary(session, 4)}
        self._number = 0
        self._socket: socket.socket | None = None
        self.server = self._start()

    def _start(self) -> ServerProcess:
        server = ServerProcess.start(self._directory, "--mongo-auth", "off")
        host, _, port = server.doors["mongo"].rpartition("/")[2].partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        return server

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        assert self._socket is not None
        self._socket.sendall(frame_of({**body, "$db": body.get("$db", "bank")}))
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        assert self._socket is not None
        head = self._exactly(4)
        return document_in(head + self._exactly(struct.unpack("<i", head)[0] - 4))

    def _exactly(self, count: int) -> bytes:
        assert self._socket is not None
        received = b""
        while len(received) < count:
            piece = self._socket.recv(count - len(received))
            if not piece:
                raise ConnectionError("the server is gone")
            received += piece
        return received

    def close(self) -> None:
        assert self._socket is not None
        self._socket.close()
        self.server.stop()

    def next_number(self) -> dict[str, Any]:
        self._number += 1
        return {"lsid": self._session, "txnNumber": Int64(self._number)}

    def killed_after_sending(self, body: dict[str, Any], dice: random.Random) -> None:
        """Send, kill the server at some moment, start it again."""
        assert self._socket is not None
        self._socket.sendall(frame_of({**body, "$db": body.get("$db", "bank")}))
        if dice.random() < 0.5:
            self._socket.settimeout(dice.random() * 0.01)
            try:
                self._exactly(4)
            except OSError:
                pass
        self.server.kill()
        self._socket.close()
        self.server = self._start()


def test_numbered_writes_are_done_once(tmp_path: Path, seed: int, amount: Amount) -> None:
    dice = random.Random(seed)
    client = Client(tmp_path / "bank", bytes(16))
    assert client.ask({"insert": "c", "documents": [{"_id": 1, "n": 0}]})["ok"] == 1.0
    written = 0
    for _ in range(amount(ROUNDS)):
        for _ in range(dice.randrange(4)):
            command = {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], **client.next_number()}
            assert client.ask(command)["nModified"] == 1
            written += 1
        number = client.next_number()
        command = dice.choice(
            (
                {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}], **number},
                {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}, "new": True, **number},
                {
                    "update": "c",
                    "updates": [
                        {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}},
                        {"q": {"_id": 2}, "u": {"$inc": {"n": 1}}, "upsert": True},
                    ],
                    **number,
                },
            )
        )
        client.killed_after_sending(command, dice)
        answer = client.ask(command)
        written += 1
        if "findAndModify" in command:
            assert answer["value"]["n"] == written, answer
        else:
            assert answer["n"] == len(command["updates"]), answer
    found = client.ask({"find": "c", "filter": {"_id": 1}})["cursor"]["firstBatch"]
    assert found == [{"_id": 1, "n": written}]
    client.close()
    ServerProcess.check(tmp_path / "bank")


def test_transactions_are_whole(tmp_path: Path, seed: int, amount: Amount) -> None:
    dice = random.Random(seed + 1)
    client = Client(tmp_path / "bank", bytes(15) + b"\x01")
    client.ask({"insert": "c", "documents": [{"_id": each, "money": MONEY} for each in range(ACCOUNTS)]})
    moved = 0
    for _ in range(amount(ROUNDS)):
        number = {**client.next_number(), "autocommit": False}
        giver, taker = dice.sample(range(ACCOUNTS), 2)
        for who, change, starts in ((giver, -1, {"startTransaction": True}), (taker, 1, {})):
            update = {"q": {"_id": who}, "u": {"$inc": {"money": change, "moves": 1}}}
            assert client.ask({"update": "c", "updates": [update], **number, **starts})["nModified"] == 1
        commit = {"commitTransaction": 1, **number, "$db": "admin"}
        client.killed_after_sending(commit, dice)
        answer = client.ask(commit)
        assert answer["ok"] == 1.0 or answer["code"] == 251, answer
        moved += int(answer["ok"])
        accounts = client.ask({"find": "c"})["cursor"]["firstBatch"]
        assert sum(each["money"] for each in accounts) == ACCOUNTS * MONEY
        assert sum(each.get("moves", 0) for each in accounts) == 2 * moved
    client.close()
    ServerProcess.check(tmp_path / "bank")


def test_transactions_over_collections_are_whole(tmp_path: Path, seed: int, amount: Amount) -> None:
    """Their stores are several: after a kill in the commit all have it, or none. A partition is split meanwhile."""
    dice = random.Random(seed + 5)
    client = Client(tmp_path / "bank", bytes(15) + b"\x05")
    for name in ("giving", "taking"):
        accounts = [{"_id": each, "money": MONEY} for each in range(ACCOUNTS)]
        assert client.ask({"insert": name, "documents": accounts})["ok"] == 1.0
    shard = {"customAction": "CreateCollection", "collection": "journal", "shardKey": "who", "offerThroughput": 400}
    assert client.ask(shard)["ok"] == 1.0
    moved = 0
    for turn in range(amount(ROUNDS)):
        number = {**client.next_number(), "autocommit": False}
        who = dice.randrange(ACCOUNTS)
        statements = [
            {"update": "giving", "updates": [{"q": {"_id": who}, "u": {"$inc": {"money": -1}}}]},
            {"update": "taking", "updates": [{"q": {"_id": who}, "u": {"$inc": {"money": 1}}}]},
            {"insert": "journal", "documents": [{"_id": f"{turn}-a", "who": f"a{who}"}]},
            {"insert": "journal", "documents": [{"_id": f"{turn}-b", "who": f"b{who}"}]},
        ]
        for place, statement in enumerate(statements):
            starts = {"startTransaction": True} if place == 0 else {}
            answer = client.ask({**statement, **number, **starts})
            assert answer["ok"] == 1.0 and not answer.get("writeErrors"), answer
        commit = {"commitTransaction": 1, **number, "$db": "admin"}
        client.killed_after_sending(commit, dice)
        answer = client.ask(commit)
        assert answer["ok"] == 1.0 or answer["code"] == 251, answer
        moved += int(answer["ok"])
        found = {name: client.ask({"find": name})["cursor"]["firstBatch"] for name in ("giving", "taking", "journal")}
        assert sum(each["money"] for each in found["giving"]) == ACCOUNTS * MONEY - moved
        assert sum(each["money"] for each in found["taking"]) == ACCOUNTS * MONEY + moved
        assert len(found["journal"]) == 2 * moved
        if turn == 0:  # what follows goes to two partitions of the journal
            scale = {"customAction": "UpdateCollection", "collection": "journal", "offerThroughput": 12_000}
            assert client.ask(scale)["ok"] == 1.0
    client.close()
    ServerProcess.check(tmp_path / "bank")


def test_capped_collections_keep_the_newest(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed + 2)
    client = Client(tmp_path / "bank", bytes(16))
    client.ask({"create": "log", "capped": True, "size": 1 << 20, "max": 20})
    last = -1  # the highest that was answered
    for _ in range(2):
        for _ in range(dice.randrange(1, 5)):
            new = range(last + 1, last + 1 + dice.randrange(1, 30))
            assert client.ask({"insert": "log", "documents": [{"_id": each} for each in new]})["n"] == len(new)
            last = new[-1]
        client.killed_after_sending({"insert": "log", "documents": [{"_id": last + 1}, {"_id": last + 2}]}, dice)
        found = [each["_id"] for each in client.ask({"find": "log"})["cursor"]["firstBatch"]]
        assert found[-1] in (last, last + 2), "both or none"
        last = found[-1]
        assert found == list(range(max(0, last - 19), last + 1)), "the newest, in their order"
    client.close()
    ServerProcess.check(tmp_path / "bank")


def test_collections_of_transactions_come_whole(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed + 3)
    client = Client(tmp_path / "bank", bytes(16))
    for place in range(2):
        number = {**client.next_number(), "autocommit": False}
        made = {"insert": f"c{place}", "documents": [{"_id": 1}, {"_id": 2}], "startTransaction": True}
        assert client.ask({**made, **number})["n"] == 2
        commit = {"commitTransaction": 1, **number, "$db": "admin"}
        client.killed_after_sending(commit, dice)
        answer = client.ask(commit)
        found = client.ask({"find": f"c{place}"})["cursor"]["firstBatch"]
        assert found == ([{"_id": 1}, {"_id": 2}] if answer["ok"] else []), answer
        listed = client.ask({"listCollections": 1, "nameOnly": True})["cursor"]["firstBatch"]
        assert not [each for each in listed if each["name"].startswith("system.")]
    client.close()
    ServerProcess.check(tmp_path / "bank")


def test_of_an_ordered_insert_a_beginning_is_there(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed + 4)
    client = Client(tmp_path / "bank", bytes(16))
    made = {"customAction": "CreateCollection", "collection": "c", "shardKey": "pk", "offerThroughput": 24_000}
    assert client.ask(made)["ok"] == 1.0
    for place in range(3):
        numbers = range(place * 1000, place * 1000 + 500)
        documents = [{"_id": each, "pk": f"p{each % 37}"} for each in numbers]
        command = {"insert": "c", "documents": documents, **client.next_number()}
        client.killed_after_sending(command, dice)
        found = client.ask({"count": "c", "query": {"_id": {"$gte": numbers[0]}}})["n"]
        first = client.ask({"count": "c", "query": {"_id": {"$gte": numbers[0], "$lt": numbers[0] + found}}})["n"]
        assert first == found, "whatever was stored before the kill are the first ones, in whatever partitions"
        assert client.ask(command)["n"] == len(numbers)
        assert client.ask({"count": "c", "query": {"_id": {"$gte": numbers[0]}}})["n"] == len(numbers)
    client.close()
    ServerProcess.check(tmp_path / "bank")
