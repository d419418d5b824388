"""Users of databases by pymongo: they sign in with SCRAM-SHA-256, and do what their roles allow and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from pymongo.errors import OperationFailure, PyMongoError
from support.process import ServerProcess

Connect = Callable[..., Any]


@pytest.fixture
def sign_in(server: ServerProcess) -> Iterator[Connect]:
    """A client with a user's name and password, or with the account's key."""
    opened: list[Any] = []

    def connect(user: str = "localhost", password: str = server.key, source: str = "admin", **options: Any) -> Any:
        credentials = f"{quote_plus(user)}:{quote_plus(password)}"
        address = server.doors["mongo"].replace("://", f"://{credentials}@")
        client: Any = pymongo.MongoClient(
            f"{address}/?replicaSet=globaldb&authSource={source}", **{"serverSelectionTimeoutMS": 5000, **options}
        )
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def owner(sign_in: Connect, name: str) -> Iterator[Any]:
    client = sign_in()
    client[name].things.insert_one({"_id": 1, "n": 1})
    client[f"{name}-other"].papers.insert_one({"_id": 1, "n": 1})
    yield client
    for database in (name, f"{name}-other", "admin"):
        for user in client[database].command("usersInfo", 1)["users"]:
            if user["user"] != "localhost":
                client[database].command("dropUser", user["user"])
    client.drop_database(name)
    client.drop_database(f"{name}-other")


def refused(do: Callable[[], Any]) -> int:
    with pytest.raises(OperationFailure) as failed:
        do()
    return int(failed.value.code or 0)


def test_read_write_in_one_database(owner: Any, sign_in: Connect, name: str) -> None:
    owner[name].command("createUser", "ann", pwd="pass wörd", roles=["readWrite"], customData={"team": 1})
    ann = sign_in("ann", "pass wörd", name)
    own, other = ann[name], ann[f"{name}-other"]
    own.things.insert_one({"_id": 2, "n": 2})
    assert own.things.find_one({"_id": 2}) == {"_id": 2, "n": 2}
    assert own.things.update_many({}, {"$inc": {"n": 1}}).modified_count == 2
    own.things.create_index("n")
    own.create_collection("more")
    own.drop_collection("more")
    assert sorted(own.list_collection_names()) == ["things"]
    assert ann.list_database_names() == [name]
    with ann.start_session() as session, session.start_transaction():
        own.things.insert_one({"_id": 3}, session=session)
    assert len(list(own.things.find(batch_size=1))) == 3
    lookup = [{"$lookup": {"from": "things", "localField": "n", "foreignField": "n", "as": "same"}}]
    assert len(list(own.things.aggregate(lookup))) == 3
    owner[name].command("profile", 2)
    owner[name].things.find_one()
    owner[name].command("profile", 0)
    own.create_collection("noted", viewOn="system.profile")
    forbidden: list[Callable[[], Any]] = [
        lambda: other.papers.find_one(),
        lambda: other.papers.find_one({"_id": 1}),
        lambda: other.papers.insert_one({}),
        lambda: other.list_collection_names(),
        lambda: own.things.aggregate([{"$out": {"db": other.name, "coll": "stolen"}}]),
        lambda: own.things.aggregate([{"$merge": {"into": {"db": other.name, "coll": "stolen"}}}]),
        lambda: own.command(
            "mapReduce", "things", map="emit(1, 1)", reduce="1", out={"replace": "c", "db": other.name}
        ),
        lambda: own.command("collMod", "things", validator={}),
        lambda: own.command("profile", 2),
        lambda: ann.drop_database(name),
        lambda: own.command("createUser", "eve", pwd="x", roles=["readWrite"]),
        lambda: own.command("updateUser", "ann", roles=[{"role": "root", "db": "admin"}]),
        lambda: own.command("dropUser", "ann"),
        lambda: ann.admin.command("renameCollection", f"{other.name}.papers", to=f"{other.name}.mine"),
        lambda: ann.admin.command(
            "bulkWrite", 1, ops=[{"delete": 0, "filter": {}}], nsInfo=[{"ns": f"{other.name}.papers"}]
        ),
        lambda: own.command("dataSize", f"{other.name}.papers"),
        lambda: (
            own.command("explain", {"find": "papers", "$db": other.name})
            and other.command("explain", {"find": "papers"})
        ),
        lambda: ann.admin.command("currentOp"),
        lambda: list(ann.admin.aggregate([{"$currentOp": {}}])),
        lambda: ann.watch(),
        lambda: other.watch(),
        lambda: ann.admin.command("serverStatus"),
        lambda: ann.admin.command("killAllSessions", []),
        lambda: ann.admin.command("killSessions", []),
        lambda: ann.admin.command("shardCollection", f"{other.name}.c", key={"a": 1}),
        lambda: own["system.profile"].find_one(),
        lambda: own.noted.find_one(),
        lambda: list(own.things.aggregate([{"$unionWith": "system.profile"}])),
    ]
    assert [refused(each) for each in forbidden] == [13] * len(forbidden)
    assert other.name in owner.list_database_names() and owner[other.name].papers.count_documents({}) == 1


def test_read_and_administration(owner: Any, sign_in: Connect, name: str) -> None:
    owner[name].command("createUser", "ben", pwd="b", roles=["read"])
    owner[name].command("createUser", "cat", pwd="c", roles=["dbAdmin"])
    ben, cat = sign_in("ben", "b", name), sign_in("cat", "c", name)
    assert ben[name].things.count_documents({}) == 1
    assert refused(lambda: ben[name].things.insert_one({})) == 13
    assert refused(lambda: ben[name].things.aggregate([{"$out": "copy"}])) == 13
    assert refused(lambda: cat[name].things.find_one()) == 13
    assert refused(lambda: cat[name].things.insert_one({})) == 13
    cat[name].things.create_index("n")
    cat[name].command("collMod", "things", validator={"n": {"$gt": 0}})
    assert cat[name].command("dbStats")["collections"] == 1
    cat.drop_database(name)


def test_roles_of_all_databases_are_roles_of_admin(owner: Any, sign_in: Connect, name: str) -> None:
    roles = ["readAnyDatabase", {"role": "readWrite", "db": name}]
    owner.admin.command("createUser", "dan", pwd="d", roles=roles)
    dan = sign_in("dan", "d")
    assert dan[f"{name}-other"].papers.count_documents({}) == 1
    assert refused(lambda: dan[f"{name}-other"].papers.insert_one({})) == 13
    dan[name].things.insert_one({"_id": 5})
    dan.watch().close()
    owner.admin.command("updateUser", "dan", roles=["readWriteAnyDatabase"])
    dan[f"{name}-other"].papers.insert_one({"_id": 5})
    assert refused(lambda: owner[name].command("createUser", "x", pwd="x", roles=["readAnyDatabase"])) == 31
    assert refused(lambda: owner[name].command("createUser", "x", pwd="x", roles=["root"])) == 31
    owner.admin.command("createUser", "eve", pwd="e", roles=["root"])
    sign_in("eve", "e").admin.command("dropUser", "dan")
    assert refused(lambda: dan[name].things.find_one()) in (13, 18)


def test_changes_of_users_count_at_once(owner: Any, sign_in: Connect, name: str) -> None:
    database = owner[name]
    database.command("createUser", "fay", pwd="f", roles=["readWrite"])
    # The client looks for a server when it is closed, with a password that is no more valid then.
    fay = sign_in("fay", "f", name, serverSelectionTimeoutMS=1500)
    fay[name].things.insert_many([{"_id": each} for each in range(10, 15)])
    cursor = fay[name].things.find(batch_size=2)
    next(cursor)
    database.command("updateUser", "fay", roles=["read"])
    assert refused(lambda: fay[name].things.insert_one({})) == 13
    assert len(list(cursor)) == 5
    database.command("updateUser", "fay", roles=[])
    assert refused(lambda: fay[name].things.find_one()) == 13
    database.command("updateUser", "fay", pwd="g", roles=["read"])
    with pytest.raises(PyMongoError):  # the connection is closed, and the old password opens no other
        fay[name].things.find_one()
    assert sign_in("fay", "g", name)[name].things.count_documents({}) == 6
    assert (
        refused(
            lambda: (
                sign_in("fay", "f", name).admin.command("ping") and sign_in("fay", "f", name)[name].things.find_one()
            )
        )
        == 18
    )


def test_cursors_and_sessions_are_a_users_own(owner: Any, sign_in: Connect, name: str) -> None:
    for user in ("gus", "hal"):
        owner[name].command("createUser", user, pwd=user, roles=["readWrite"])
    gus, hal = sign_in("gus", "gus", name), sign_in("hal", "hal", name)
    gus[name].things.insert_many([{"_id": each} for each in range(20, 30)])
    with gus.start_session() as session:
        opened = gus[name].command("find", "things", batchSize=2, session=session)["cursor"]["id"]
        more = {"getMore": opened, "collection": "things", "lsid": session.session_id}
        assert refused(lambda: hal[name].command(more)) in (43, 50738)
        assert hal[name].command("killCursors", "things", cursors=[opened])["cursorsNotFound"] == [opened]
        assert (
            len(gus[name].command("getMore", opened, collection="things", session=session)["cursor"]["nextBatch"]) == 9
        )


def test_authentication(owner: Any, sign_in: Connect, name: str) -> None:
    owner[name].command("createUser", "ida", pwd="i", roles=["read"])
    ida = sign_in("ida", "i", name)
    assert ida[name].command("connectionStatus", showPrivileges=True)["authInfo"] == {
        "authenticatedUsers": [{"user": "ida", "db": name}],
        "authenticatedUserRoles": [{"role": "read", "db": name}],
        "authenticatedUserPrivileges": [
            {
                "resource": {"db": name, "collection": ""},
                "actions": ["find", "listCollections", "listIndexes", "collStats", "dbStats", "changeStream"],
            }
        ],
    }
    for user, password, source, options in (
        ("ida", "i", "admin", {}),
        ("ida", "wrong", name, {}),
        ("unknown", "i", name, {}),
        ("ida", "i", name, {"authMechanism": "SCRAM-SHA-1"}),
    ):
        things = sign_in(user, password, source, **options)[name].things
        assert refused(things.find_one) == 18, (user, source)


def test_users_are_described(owner: Any, sign_in: Connect, name: str) -> None:
    database = owner[name]
    database.command("createUser", "jim", pwd="j", roles=["read", {"role": "dbAdmin", "db": f"{name}-other"}])
    database.command("createUser", "kay", pwd="k", roles=[], customData={"team": 1})
    jim = {
        "_id": f"{name}.jim",
        "user": "jim",
        "db": name,
        "roles": [{"role": "read", "db": name}, {"role": "dbAdmin", "db": f"{name}-other"}],
        "mechanisms": ["SCRAM-SHA-256"],
    }
    kay = {"_id": f"{name}.kay", "user": "kay", "db": name, "roles": [], "mechanisms": ["SCRAM-SHA-256"]}
    assert database.command("usersInfo", 1)["users"] == [jim, {**kay, "customData": {"team": 1}}]
    assert database.command("usersInfo", "jim")["users"] == [jim]
    assert database.command("usersInfo", {"user": "kay", "db": name})["users"] == [{**kay, "customData": {"team": 1}}]
    assert [each["user"] for each in owner.admin.command("usersInfo", {"forAllDBs": True})["users"]][:2] == [
        "jim",
        "kay",
    ]
    assert sign_in("jim", "j", name)[name].command("usersInfo", {"forAllDBs": True})["users"] == [jim]
    assert refused(lambda: database.command("usersInfo", 1, showCredentials=True)) == 115
    assert refused(lambda: database.command("createUser", "jim", pwd="j", roles=[])) == 51003
    assert refused(lambda: owner.admin.command("createUser", "localhost", pwd="j", roles=[])) == 51003
    assert refused(lambda: database.command("dropUser", "lea")) == 11
    assert refused(lambda: database.command("updateUser", "lea", roles=[])) == 11
    assert refused(lambda: database.command("updateUser", "jim")) == 2
    assert refused(lambda: database.command("createUser", "lea", roles=[])) == 40414
    assert refused(lambda: database.command("createUser", "lea", pwd="l", roles=["clusterAdmin"])) == 31
    assert refused(lambda: database.command("createUser", "lea", pwd="l", roles=[], mechanisms=["SCRAM-SHA-1"])) == 2
    roles = owner.admin.command("rolesInfo", 1)["roles"]
    assert "readWriteAnyDatabase" in [each["role"] for each in roles]


def test_a_dropped_user_leaves_nothing_to_the_next_of_its_name(owner: Any, sign_in: Connect, name: str) -> None:
    database = owner[name]
    database.command("createUser", "joe", pwd="j", roles=["readWrite"])
    joe = sign_in("joe", "j", name, serverSelectionTimeoutMS=1500)
    joe[name].things.insert_many([{"_id": each} for each in range(30, 40)])
    before = owner.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"]
    opened = joe[name].command("find", "things", batchSize=2)["cursor"]["id"]
    assert owner.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == before + 1
    database.command("dropUser", "joe")
    while owner.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] > before:
        pass  # it ends with the user, not after ten minutes
    database.command("createUser", "joe", pwd="k", roles=["readWrite"])
    again = sign_in("joe", "k", name)
    assert refused(lambda: again[name].command("getMore", opened, collection="things")) == 43


def test_a_user_has_a_bounded_number_of_roles(owner: Any, name: str) -> None:
    many = [{"role": "read", "db": f"d{number}"} for number in range(101)]
    assert refused(lambda: owner[name].command("createUser", "kim", pwd="k", roles=many)) == 2
    owner[name].command("createUser", "kim", pwd="k", roles=many[:100] + many[:50])
    assert refused(lambda: owner[name].command("updateUser", "kim", roles=many)) == 2
