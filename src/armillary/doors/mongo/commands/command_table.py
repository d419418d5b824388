"""The table of commands: the function that answers each, and the checks before it runs. Known commands that are not
supported are in the table too, so that the refusal says so.
"""

from __future__ import annotations

from typing import Final

from armillary.doors.mongo.call import Call, Command, Reply
from armillary.doors.mongo.commands import (
    capped,
    collections,
    diagnostics,
    explain,
    hello,
    indexes,
    map_reduce,
    profiler,
    sharding,
    user_commands,
    views,
)
from armillary.doors.mongo.reading import aggregation, cursor_commands, find
from armillary.doors.mongo.replica_set import replica_set_status
from armillary.doors.mongo.sessions import session_commands, sign_in_commands
from armillary.doors.mongo.writing import bulk_write, find_and_modify, inserts, updates_and_deletes
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expressions.accumulators import distinct_values


async def _not_offered(call: Call) -> Reply:
    raise refusal(115, f"The command {call.name} is not supported.")


async def _only_atlas(call: Call) -> Reply:
    raise aggregation.only_atlas()


async def _aggregate(call: Call) -> Reply:
    if call.fields.flag("explain", False):
        return await explain.of_aggregate(call, "queryPlanner")
    return await aggregation.aggregate(call)


def _check_reading(call: Call) -> None:
    if "writeConcern" in call.body:
        raise refusal(72, f"{call.name} does not support writeConcern")


async def _find(call: Call) -> Reply:
    _check_reading(call)
    if views.find(call, call.collection()) is None:
        return await find.find(call)
    inner = views.as_aggregate(call, views.find_stages(call))
    reply = await aggregation.aggregate(inner)
    call.spend(inner.charge_ru)
    call.documents_returned = inner.documents_returned
    return reply


async def _count(call: Call) -> Reply:
    _check_reading(call)
    if views.find(call, call.collection()) is None:
        return await find.count(call)
    inner = views.as_aggregate(call, views.count_stages(call))
    found = await aggregation.documents_of(inner)
    call.spend(inner.charge_ru)
    return {"n": found[0]["n"] if found else 0}


async def _distinct(call: Call) -> Reply:
    _check_reading(call)
    if views.find(call, call.collection()) is None:
        return await find.distinct(call)
    inner = views.as_aggregate(call, [{"$match": call.fields.document("query", {})}])
    values = distinct_values(await aggregation.documents_of(inner), call.fields.text("key"))
    call.spend(inner.charge_ru)
    return {"values": values}


_NO_SCRIPTS: Final = Command(_not_offered, "JavaScript runs in filters and aggregations only", is_local=True)
_OPERATING: Final = Command(_not_offered, "the control API is for operating the server", is_admin=True, is_local=True)
_ROLES: Final = Command(_not_offered, "users have the built-in roles only", is_local=True)
_SEARCH_INDEXES: Final = Command(_only_atlas, "another service's", writes=True)

_FIND_AND_MODIFY: Final = Command(
    find_and_modify.find_and_modify,
    "change one document and see it",
    writes=True,
    is_stable=True,
    is_retryable=True,
    fields=find_and_modify.FIELDS,
)
_MAP_REDUCE: Final = Command(
    map_reduce.map_reduce, "JavaScript over documents: map, group, reduce", fields=map_reduce.FIELDS
)
_COLLECTION_STATISTICS: Final = Command(collections.collection_statistics, "measures of a collection")
_DATABASE_STATISTICS: Final = Command(collections.database_statistics, "measures of a database")
_STATISTICS: Final = Command(
    diagnostics.last_request_statistics, "what the last command on this connection cost", is_local=True
)
_HELLO: Final = Command(hello.hello, "what a driver must know", is_open=True, is_stable=True)
_BUILD: Final = Command(diagnostics.describe_build, "the version that is answered for", is_open=True)

COMMANDS: Final[dict[str, Command]] = {
    # Handshake and authentication.
    "hello": _HELLO,
    "isMaster": _HELLO,
    "ismaster": _HELLO,
    "ping": Command(diagnostics.ping, "answers", is_open=True, is_stable=True),
    "buildInfo": _BUILD,
    "buildinfo": _BUILD,
    "saslStart": Command(sign_in_commands.start, "the first step of authentication", is_open=True),
    "saslContinue": Command(sign_in_commands.go_on, "a further step of authentication", is_open=True),
    "getnonce": Command(sign_in_commands.get_nonce, "for the oldest form of authentication", is_open=True),
    "authenticate": Command(sign_in_commands.authenticate, "refused: use SCRAM", is_open=True),
    "logout": Command(sign_in_commands.log_out, "end the authentication of this connection", is_open=True),
    "connectionStatus": Command(sign_in_commands.connection_status, "the authenticated user", is_open=True),
    "whatsmyuri": Command(diagnostics.whats_my_uri, "the client's own address", is_open=True),
    # Cursors.
    "getMore": Command(
        cursor_commands.get_more,
        "the next documents of a cursor",
        is_stable=True,
        fields=frozenset("getMore collection batchSize term lastKnownCommittedOpTime".split()),
        is_local=True,
    ),
    "killCursors": Command(
        cursor_commands.kill_cursors,
        "close cursors",
        is_stable=True,
        fields=frozenset(("killCursors", "cursors")),
        is_local=True,
    ),
    # Documents.
    "find": Command(_find, "documents that match", is_stable=True, fields=find.FIND_FIELDS),
    "count": Command(_count, "how many documents match", is_stable=True, fields=find.COUNT_FIELDS),
    "distinct": Command(_distinct, "the values of a field", fields=find.DISTINCT_FIELDS),
    "aggregate": Command(_aggregate, "a pipeline", is_stable=True, fields=aggregation.FIELDS),
    "mapReduce": _MAP_REDUCE,
    "mapreduce": _MAP_REDUCE,
    "explain": Command(explain.explain, "how a command would be answered", is_stable=True),
    "insert": Command(
        inserts.insert, "new documents", writes=True, is_stable=True, is_retryable=True, fields=inserts.INSERT_FIELDS
    ),
    "update": Command(
        updates_and_deletes.update,
        "changes of documents",
        writes=True,
        is_stable=True,
        is_retryable=True,
        fields=updates_and_deletes.UPDATE_FIELDS,
    ),
    "delete": Command(
        updates_and_deletes.delete,
        "delete documents",
        writes=True,
        is_stable=True,
        is_retryable=True,
        fields=updates_and_deletes.DELETE_FIELDS,
    ),
    "bulkWrite": Command(
        bulk_write.bulk_write,
        "statements of all kinds",
        writes=True,
        is_admin=True,
        is_stable=True,
        is_retryable=True,
        fields=bulk_write.FIELDS,
    ),
    "findAndModify": _FIND_AND_MODIFY,
    "findandmodify": _FIND_AND_MODIFY,
    # Collections and databases.
    "create": Command(
        collections.create, "a new collection", writes=True, is_stable=True, fields=collections.CREATE_FIELDS
    ),
    "drop": Command(collections.drop, "delete a collection", writes=True, is_stable=True, fields=frozenset(("drop",))),
    "dropDatabase": Command(
        collections.drop_database,
        "delete a database",
        writes=True,
        is_stable=True,
        fields=frozenset(("dropDatabase",)),
    ),
    "listCollections": Command(collections.list_collections, "the collections of a database", is_stable=True),
    "listDatabases": Command(collections.list_databases, "all databases", is_stable=True),
    "collStats": _COLLECTION_STATISTICS,
    "collstats": _COLLECTION_STATISTICS,
    "dbStats": _DATABASE_STATISTICS,
    "dbstats": _DATABASE_STATISTICS,
    "dataSize": Command(collections.measured_size, "the size of a collection"),
    "validate": Command(collections.validate, "what there is of a collection"),
    "createIndexes": Command(
        indexes.create_indexes, "new indexes", writes=True, is_stable=True, fields=indexes.CREATE_FIELDS
    ),
    "listIndexes": Command(indexes.list_indexes, "the indexes of a collection", is_stable=True),
    "dropIndexes": Command(
        indexes.drop_indexes,
        "delete indexes",
        writes=True,
        is_stable=True,
        fields=frozenset(("dropIndexes", "index")),
    ),
    "reIndex": Command(indexes.rebuild_indexes, "nothing to do: indexes are kept with the documents", writes=True),
    "collMod": Command(
        indexes.modify_collection, "change options", writes=True, is_stable=True, fields=indexes.MODIFY_FIELDS
    ),
    "renameCollection": Command(
        collections.rename,
        "another name",
        writes=True,
        is_admin=True,
        fields=frozenset(("renameCollection", "to", "dropTarget", "stayTemp")),
    ),
    "convertToCapped": Command(capped.convert, "a collection that keeps its newest documents", writes=True),
    "cloneCollectionAsCapped": Command(capped.clone, "the same under another name", writes=True),
    # Commands of Cosmos DB.
    "shardCollection": Command(sharding.shard_collection, "spread a collection by a key", writes=True),
    "enableSharding": Command(sharding.enable_sharding, "a database whose collections can be sharded", writes=True),
    "customAction": Command(sharding.custom_action, "collections and databases with throughput", writes=True),
    "getLastRequestStatistics": _STATISTICS,
    "GetLastRequestStatistics": _STATISTICS,
    # Sessions.
    "startSession": Command(session_commands.start_session, "a new session", is_local=True),
    "refreshSessions": Command(
        session_commands.refresh_sessions, "keep sessions from ending", is_stable=True, is_local=True
    ),
    "endSessions": Command(session_commands.end_sessions, "end sessions", is_stable=True, is_local=True),
    "killSessions": Command(
        session_commands.kill_sessions, "end sessions and what they run", is_stable=True, is_local=True
    ),
    "killAllSessions": Command(
        session_commands.kill_all_sessions, "end all sessions", acts_on_others=True, is_local=True
    ),
    "commitTransaction": Command(session_commands.commit, "do it all", is_admin=True, is_stable=True, is_ending=True),
    "abortTransaction": Command(
        session_commands.abort, "do nothing of it", is_admin=True, is_stable=True, is_ending=True
    ),
    # Diagnostics.
    "hostInfo": Command(diagnostics.describe_host, "the machine", is_local=True),
    "serverStatus": Command(diagnostics.server_status, "the server at work", is_local=True),
    "getCmdLineOpts": Command(diagnostics.get_command_line, "how the server was started", is_local=True),
    "getLog": Command(diagnostics.get_log, "lines of the log; there are none here", is_local=True),
    "getParameter": Command(diagnostics.get_parameter, "parameters of the server", is_local=True),
    "features": Command(diagnostics.features, "what old shells ask", is_local=True),
    "top": Command(diagnostics.top, "time spent in collections", is_local=True),
    "currentOp": Command(diagnostics.current_operations, "commands that run now", is_local=True),
    "killOp": Command(diagnostics.kill_operation, "end a command that runs", writes=True, is_admin=True, is_local=True),
    "listCommands": Command(diagnostics.list_commands, "this table", is_open=True),
    "replSetGetStatus": Command(replica_set_status.status, "the members of the replica set", is_local=True),
    "replSetGetConfig": Command(replica_set_status.configuration, "how the set was made", is_admin=True, is_local=True),
    "getDefaultRWConcern": Command(
        diagnostics.default_concerns, "what is meant without saying", is_admin=True, is_local=True
    ),
    "planCacheClear": Command(diagnostics.forget_plans, "nothing to do: no plans are kept", is_local=True),
    "rolesInfo": Command(user_commands.describe_roles, "the roles that users can have", is_local=True),
    "fsync": Command(diagnostics.sync, "nothing to do: what is answered is durable", is_admin=True, is_local=True),
    "profile": Command(profiler.profile, "what is noted of commands", fields=profiler.FIELDS, is_local=True),
    "usersInfo": Command(
        user_commands.describe_users, "the users of databases", fields=user_commands.SHOW_FIELDS, is_local=True
    ),
    "createUser": Command(
        user_commands.create, "a new user of a database", writes=True, fields=user_commands.CREATE_FIELDS
    ),
    "updateUser": Command(
        user_commands.update, "another password or other roles", writes=True, fields=user_commands.UPDATE_FIELDS
    ),
    "dropUser": Command(user_commands.drop, "delete a user", writes=True, fields=frozenset(("dropUser",))),
    "configureFailPoint": Command(
        diagnostics.configure_fail_point, "for tests of drivers", is_admin=True, acts_on_others=True, is_local=True
    ),
    # Known, not supported.
    "createSearchIndexes": _SEARCH_INDEXES,
    "updateSearchIndex": _SEARCH_INDEXES,
    "dropSearchIndex": _SEARCH_INDEXES,
    "compact": _OPERATING,
    "setParameter": _OPERATING,
    "setDefaultRWConcern": _OPERATING,
    "logRotate": _OPERATING,
    "dbHash": _OPERATING,
    "createRole": _ROLES,
    "eval": _NO_SCRIPTS,
    "$eval": _NO_SCRIPTS,
}
