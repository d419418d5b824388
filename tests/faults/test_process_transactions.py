"""Transactions of MongoDB while processes of a server are killed, by pymongo, which repeats them as drivers do: each is
done in all processes or in none, and none that was acknowledged is lost."""

from __future__ import annotations

import random
import signal
import threading
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from pymongo.errors import PyMongoError
from support.process import ServerProcess
from support.process_ids import kill_process, wait_for_new

COLLECTIONS = ("a", "b", "c")  # in different processes
ACCOUNTS = 4  # in each
MONEY = 100
TELLERS = 3
LIMIT_S = 60.0


class Teller(threading.Thread):
    """Moves money from one collection to another, and writes down each move in the same transaction."""

    def __init__(self, client: Any, number: int) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.is_ended = False
        self.failed: list[BaseException] = []
        self._client = client
        self._number = number
        self._dice = random.Random(number)
        self._has_more = threading.Condition()

    def run(self) -> None:
        for turn in count():
            if self.is_ended:
                return
            try:
                self._move(f"{self._number}-{turn}")
            except PyMongoError as error:
                if not _is_to_be_expected(error):
                    self.failed.append(error)
                    return

    def _move(self, name: str) -> None:
        dice = self._dice
        places = [(collection, dice.randrange(ACCOUNTS)) for collection in dice.sample(COLLECTIONS, 2)]
        amount = dice.randrange(1, 5)
        bank = self._client.bank

        def move(session: Any) -> None:
            for (collection, account), change in zip(places, (-amount, amount), strict=True):
                bank[collection].update_one({"_id": account}, {"$inc": {"sum": change}}, session=session)
            moved = {"_id": name, "from": list(places[0]), "to": list(places[1]), "amount": amount}
            bank.journal.insert_one(moved, session=session)

        with self._client.start_session() as session:
            session.with_transaction(move)
        with self._has_more:
            self.acknowledged.append(name)
            self._has_more.notify_all()

    def wait_for(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        with self._has_more:
            assert self._has_more.wait_for(lambda: len(self.acknowledged) >= wanted or self.failed, LIMIT_S)
        assert not self.failed


def _is_to_be_expected(error: PyMongoError) -> bool:
    """The connection was lost, or whether it was done is not known; drivers have tried again by then."""
    labels = ("TransientTransactionError", "UnknownTransactionCommitResult", "RetryableWriteError")
    return isinstance(error, pymongo.errors.ConnectionFailure) or any(map(error.has_error_label, labels))


def sums_of_a_moment(client: Any) -> int:
    while True:
        try:
            with client.start_session(snapshot=True) as session:
                found = [each for name in COLLECTIONS for each in client.bank[name].find(session=session)]
                return sum(int(each["sum"]) for each in found)
        except PyMongoError:
            continue  # the process that has the snapshot was killed


@pytest.mark.parametrize("killed", [(1, 0), pytest.param((2, 0, 1, 2, 1, 0), marks=pytest.mark.soak)])
def test_transactions_are_whole_whichever_process_is_killed(tmp_path: Path, killed: tuple[int, ...]) -> None:
    server = ServerProcess.start(tmp_path / "data", "--processes", "3")
    address = server.doors["mongo"].replace("://", f"://localhost:{quote_plus(server.key)}@") + "/?replicaSet=globaldb"
    client: Any = pymongo.MongoClient(address)
    try:
        for name in COLLECTIONS:
            client.bank[name].insert_many([{"_id": each, "sum": MONEY} for each in range(ACCOUNTS)])
        client.bank.create_collection("journal")
        total = len(COLLECTIONS) * ACCOUNTS * MONEY
        tellers = [Teller(client, number) for number in range(TELLERS)]
        for each in tellers:
            each.start()
        try:
            for number in killed:
                for each in tellers:
                    each.wait_for(2)
                assert sums_of_a_moment(client) == total
                former = kill_process(server.process.pid, number, signal.SIGKILL)
                wait_for_new(server.process.pid, number, former)
            for each in tellers:
                each.wait_for(2)
        finally:
            for each in tellers:
                each.is_ended = True
            for each in tellers:
                each.join(LIMIT_S)
        assert sums_of_a_moment(client) == total
        journal = list(client.bank.journal.find())
        assert {name for each in tellers for name in each.acknowledged} <= {each["_id"] for each in journal}
        expected = {(name, account): MONEY for name in COLLECTIONS for account in range(ACCOUNTS)}
        for each in journal:
            expected[tuple(each["from"])] -= each["amount"]
            expected[tuple(each["to"])] += each["amount"]
        found = {(name, each["_id"]): each["sum"] for name in COLLECTIONS for each in client.bank[name].find()}
        assert found == expected, "a transaction was done in one process and not in another"
        client.close()
        assert server.stop() == 0
    finally:
        client.close()
        server.kill()
    assert "Traceback" not in server.log
    ServerProcess.check(tmp_path / "data")
