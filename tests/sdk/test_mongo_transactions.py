"""Transactions over several collections, databases and values of the shard key, by pymongo: all or nothing, on one
snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from support.process import ServerProcess, call_armillary
from support.server_operator import Operator


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[Any]:
    address = server.doors["mongo"].replace("://", f"://localhost:{quote_plus(server.key)}@") + "/?replicaSet=globaldb"
    opened: Any
    with pymongo.MongoClient(address) as opened:
        yield opened


@pytest.fixture
def bank(client: Any, name: str) -> Iterator[Any]:
    """A database with accounts and a journal."""
    database = client[name]
    database.accounts.insert_many([{"_id": each, "sum": 100} for each in range(4)])
    database.journal.insert_one({"_id": 0, "sum": 0})
    yield database
    client.drop_database(name)
    client.drop_database(f"{name}-other")


def test_commit_over_two_collections(client: Any, bank: Any) -> None:
    with client.start_session() as session:
        with session.start_transaction():
            bank.accounts.update_one({"_id": 1}, {"$inc": {"sum": -10}}, session=session)
            bank.journal.insert_one({"_id": 1, "sum": 10}, session=session)
            bank.accounts.update_one({"_id": 2}, {"$inc": {"sum": 10}}, session=session)
            assert bank.journal.count_documents({}, session=session) == 2
            assert (bank.journal.count_documents({}), bank.accounts.find_one({"_id": 1})["sum"]) == (1, 100)
            joined = [{"$lookup": {"from": "accounts", "localField": "_id", "foreignField": "_id", "as": "own"}}]
            found = list(bank.journal.aggregate(joined, session=session))
            assert [each["own"][0]["sum"] for each in found] == [100, 90]
        session.commit_transaction()  # sent again: it is done once
    assert [each["sum"] for each in bank.accounts.find().sort("_id")] == [100, 90, 110, 100]
    assert bank.journal.count_documents({}) == 2


def test_abort_and_conflict_undo_all_collections(client: Any, bank: Any) -> None:
    with client.start_session() as session:
        session.start_transaction()
        bank.accounts.delete_one({"_id": 1}, session=session)
        bank.journal.delete_many({}, session=session)
        session.abort_transaction()
        session.start_transaction()
        bank.accounts.update_one({"_id": 1}, {"$set": {"sum": 0}}, session=session)
        bank.journal.update_one({"_id": 0}, {"$set": {"sum": 1}}, session=session)
        bank.journal.update_one({"_id": 0}, {"$set": {"sum": 2}})  # another client is first
        with pytest.raises(PyMongoError) as conflict:
            session.commit_transaction()
        assert conflict.value.has_error_label("TransientTransactionError")
    assert (bank.accounts.find_one({"_id": 1})["sum"], bank.journal.find_one({"_id": 0})["sum"]) == (100, 2)


def test_all_collections_are_read_as_of_one_moment(client: Any, bank: Any) -> None:
    with client.start_session() as session, session.start_transaction(ReadConcern("snapshot")):
        assert bank.accounts.count_documents({}, session=session) == 4
        bank.journal.insert_one({"_id": 5})
        bank.new.insert_one({"_id": 5})
        assert bank.journal.count_documents({}, session=session) == 1
        with pytest.raises(OperationFailure) as unavailable:
            bank.new.find_one({}, session=session)
        assert unavailable.value.code == 246
        session.abort_transaction()


def test_commit_over_databases_and_new_collections(client: Any, bank: Any) -> None:
    other = client[f"{bank.name}-other"]
    with client.start_session() as session, session.start_transaction():
        bank.accounts.update_one({"_id": 1}, {"$set": {"sum": 7}}, session=session)
        other.made.update_one({"_id": 1}, {"$set": {"n": 1}}, upsert=True, session=session)
        bank.made.insert_one({"_id": 2}, session=session)
        assert "made" not in bank.list_collection_names()
    assert (other.made.find_one()["n"], bank.made.count_documents({})) == (1, 1)
    assert bank.accounts.find_one({"_id": 1})["sum"] == 7


def test_commit_over_values_of_the_shard_key(client: Any, bank: Any) -> None:
    client.admin.command("shardCollection", f"{bank.name}.orders", key={"shop": "hashed"})
    bank.orders.insert_many([{"_id": each, "shop": each, "n": 0} for each in range(20)])
    with client.start_session() as session, session.start_transaction():
        for shop in range(10):
            bank.orders.update_one({"_id": shop, "shop": shop}, {"$set": {"n": 1}}, session=session)
        bank.journal.insert_one({"_id": 9}, session=session)
        assert bank.orders.find_one({"shop": 3}, session=session)["n"] == 1
        with pytest.raises(OperationFailure) as refused:
            bank.orders.find_one({"n": 1}, session=session)
        assert refused.value.code == 263
        session.abort_transaction()
        session.start_transaction()
        for shop in range(10):
            bank.orders.update_one({"_id": shop, "shop": shop}, {"$inc": {"n": 1}}, session=session)
        bank.journal.insert_one({"_id": 9}, session=session)
    assert bank.orders.count_documents({"n": 1}) == 10
    assert bank.journal.count_documents({"_id": 9}) == 1


def connected(
    server: ServerProcess, user: str = "localhost", password: str | None = None, source: str = "admin"
) -> Any:
    credentials = f"{user}:{quote_plus(password or server.key)}"
    address = server.doors["mongo"].replace("://", f"://{credentials}@")
    return pymongo.MongoClient(f"{address}/?replicaSet=globaldb&authSource={source}", retryWrites=False)


def committed(session: Any) -> bool:
    """Whether a commit was made; else it was refused with an error upon which drivers repeat the transaction."""
    try:
        session.commit_transaction()
    except OperationFailure as error:
        if not error.has_error_label("TransientTransactionError") and error.code != 16500:
            raise
        return False
    return True


def test_throttling_expiry_and_splits_leave_transactions_whole(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server("--throughput", "enforce", "--clock", "movable", "--durability", "relaxed")
    operator = Operator(server)
    operator.ask("POST", "clock", {"frozen": True})
    with connected(server) as client:
        bank = client.bank
        for name in ("giving", "taking"):
            bank.command({"customAction": "CreateCollection", "collection": name, "offerThroughput": 400})
            bank[name].insert_one({"_id": 1, "sum": 100})
        bank.command(
            {"customAction": "CreateCollection", "collection": "notes", "offerThroughput": 400, "shardKey": "who"}
        )
        bank.notes.create_index("at", expireAfterSeconds=60)
        refused = 0

        def sums() -> tuple[int, int, int]:
            found = bank.giving.find_one({"_id": 1})["sum"], bank.taking.find_one({"_id": 1})["sum"]
            return *found, bank.notes.count_documents({"n": {"$gte": 0}})

        def attempt(turn: int) -> bool:
            with client.start_session() as session:
                session.start_transaction()
                try:
                    bank.giving.update_one({"_id": 1}, {"$inc": {"sum": -1}}, session=session)
                    bank.taking.update_one({"_id": 1}, {"$inc": {"sum": 1}}, session=session)
                    for place in range(4):
                        note = {"_id": f"{turn}-{place}", "who": place, "n": turn, "pad": "x" * 2_000}
                        bank.notes.insert_one(note, session=session)
                except OperationFailure as error:
                    if error.code != 16500:
                        raise
                    session.abort_transaction()
                    return False
                if turn == 3:  # the partition is divided while the transaction is open
                    operator.command("scale", "bank/notes", "12000")  # waits for the splits that this needs
                    operator.command("split", "bank/notes")
                return committed(session)

        for done in range(12):
            while not attempt(done):
                refused += 1
                operator.ask("POST", "clock", {"advanceSeconds": 1})
                assert sums() == (100 - done, 100 + done, 4 * done)
            if done == 5:  # until its budget is used up
                with pytest.raises(OperationFailure) as throttled:
                    exhaust(bank)
                assert throttled.value.code == 16500
        operator.ask("POST", "clock", {"advanceSeconds": 5})
        assert sums() == (88, 112, 48)
        assert refused > 0
        # A document that expires while a transaction holds it: the whole is committed, or nothing of it.
        now = datetime.fromisoformat(operator.ask("GET", "clock")["now"])
        bank.notes.insert_one({"_id": "brief", "who": 1, "at": now})
        with client.start_session() as session:
            session.start_transaction()
            bank.notes.update_one({"_id": "brief", "who": 1}, {"$set": {"seen": 1}}, session=session)
            bank.giving.update_one({"_id": 1}, {"$inc": {"sum": -1}}, session=session)
            operator.ask("POST", "clock", {"advanceSeconds": 50})
            operator.ask("POST", "clock", {"advanceSeconds": 9})
            is_done = committed(session)
        assert bank.giving.find_one({"_id": 1})["sum"] == 88 - is_done
        operator.ask("POST", "clock", {"advanceSeconds": 60})
        assert bank.notes.find_one({"_id": "brief", "who": 1}) is None


def exhaust(bank: Any) -> None:
    for _ in range(1_000):
        bank.giving.update_one({"_id": 1}, {"$set": {"pad": "x" * 2_000}})


def test_users_are_kept_by_backups(start_server: Callable[..., ServerProcess], tmp_path: Path) -> None:
    server = start_server("--durability", "relaxed")
    with connected(server) as client:
        client.shop.things.insert_one({"_id": 1})
        client.shop.command("createUser", "ann", pwd="a", roles=["read"])
        Operator(server).command("backup", "create", str(tmp_path / "backups"))
        client.shop.command("dropUser", "ann")
    outcome = call_armillary("backup", "restore", str(tmp_path / "backups"), "--to", str(tmp_path / "restored"))
    assert outcome.returncode == 0, outcome.stderr
    restored = start_server("--durability", "relaxed", directory=tmp_path / "restored")
    with connected(restored, "ann", "a", "shop") as ann:
        assert ann.shop.things.find_one() == {"_id": 1}
        with pytest.raises(OperationFailure) as refused:
            ann.shop.things.insert_one({})
        assert refused.value.code == 13
    with connected(server, "ann", "a", "shop") as ann, pytest.raises(OperationFailure) as gone:
        ann.shop.things.find_one()
    assert gone.value.code == 18
