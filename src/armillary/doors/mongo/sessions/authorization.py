"""What users of databases may do: the right that each command needs. A command that is not
listed here is refused to them. The account's keys and the role `root` may do everything that their grant allows.

Rights are looked up for every command, so that a change of roles counts at once. Commands that name another database
than the one that they are sent to ask again for that one (`require`).
"""

from __future__ import annotations

from typing import Final

from armillary.account.security.database_users import DatabaseUser
from armillary.doors.mongo.call import Call, Command
from armillary.doors.mongo.sessions.roles import NOTHING, Right, is_root, rights_of
from armillary.doors.mongo.settings import Grant
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal

_READS: Final = "find count distinct aggregate mapReduce mapreduce explain"
_WRITES: Final = "insert update delete findAndModify findandmodify cloneCollectionAsCapped"
_SHOWS: Final = "listCollections listIndexes collStats collstats dbStats dbstats"
_DEFINES: Final = "create drop createIndexes dropIndexes convertToCapped"
_ADMINISTERS: Final = "collMod validate reIndex planCacheClear profile dropDatabase"
# These check for themselves which databases, cursors and sessions they are about.
_ALWAYS: Final = (
    "bulkWrite renameCollection dataSize getMore killCursors startSession refreshSessions endSessions killSessions "
    "commitTransaction abortTransaction listDatabases usersInfo rolesInfo getLastRequestStatistics "
    "GetLastRequestStatistics"
)
# One of the rights is enough.
_NEEDED: Final[dict[str, Right]] = {
    **dict.fromkeys(_READS.split(), Right.READ),
    **dict.fromkeys(_WRITES.split(), Right.WRITE),
    **dict.fromkeys(_SHOWS.split(), Right.READ | Right.ADMIN),
    **dict.fromkeys(_DEFINES.split(), Right.WRITE | Right.ADMIN),
    **dict.fromkeys(_ADMINISTERS.split(), Right.ADMIN),
    **dict.fromkeys(_ALWAYS.split(), NOTHING),
}
_SYSTEM: Final = "system."


def user_of(call: Call) -> DatabaseUser | None:
    """The user that sent the command; None: the client has a key of the account, or none is needed."""
    login = call.login
    if login is None:
        return None
    user = call.account.database_users.find(login.database, login.name)
    if user is None or user.serial != login.serial:
        raise refused(call, call.database)
    return user


def is_limited(call: Call) -> bool:
    """Whether the client is a user with fewer rights than the account's keys have."""
    user = user_of(call)
    return user is not None and not is_root(user)


def check(call: Call, command: Command) -> None:
    """Refuse a command for which the user has no right in the database that it is sent to."""
    if call.login is None or command.is_open:
        return
    user = user_of(call)
    if user is None or is_root(user):
        return
    name, body = call.name, call.body
    if name == "explain":
        body = body["explain"] if isinstance(body["explain"], dict) else {}
        name = next(iter(body), "")
    needed = _NEEDED.get(name)
    if needed is None or (needed and not rights_of(user, call.database) & needed):
        raise refused(call, call.database)
    target = body.get("collection" if name == "getMore" else name)
    if isinstance(target, str):
        check_collection(call, call.database, target)


def check_collection(call: Call, database: str, collection: str) -> None:
    """What the profiler has noted is for administrators only, also through views and `$lookup`. MongoDB's other system
    collections do not exist."""
    if collection.startswith(_SYSTEM):
        require(call, Right.ADMIN, database)


def require(call: Call, right: Right, database: str) -> None:
    """Refuse a command that is also about this database if the user has no such right there."""
    user = user_of(call)
    if user is not None and not rights_of(user, database) & right:
        raise refused(call, database)


def require_for_cursor(call: Call, command: str) -> None:
    """Refuse to read on in a cursor of its own if the user lost the right to the command that opened it."""
    if command != "bulkWrite":  # the cursor has what became of the user's own statements
        require(call, _NEEDED.get(command, Right.READ), call.database)


def require_everywhere(call: Call) -> None:
    """Refuse what is about all databases."""
    user = user_of(call)
    if user is None or is_root(user):
        return
    names = {role.name for role in user.roles if role.database == "admin"}
    if not names & {"readAnyDatabase", "readWriteAnyDatabase"}:
        raise refused(call, "")


def require_owner(call: Call) -> None:
    """Refuse what is for the account's keys and for `root`."""
    if is_limited(call) or call.client.grant is not Grant.WRITE:
        raise refused(call, call.database)


def refuse_limited(call: Call) -> None:
    """Refuse what shows or touches what other clients do."""
    if is_limited(call):
        raise refused(call, call.database)


def may_see(call: Call, database: str) -> bool:
    user = user_of(call)
    return user is None or bool(rights_of(user, database))


def refused(call: Call, database: str) -> Failure:
    return refusal(13, f"not authorized on {database or 'all databases'} to execute command {call.name}")
