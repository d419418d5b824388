"""The table of commands: what each is answered by, and what must hold before it runs. What is not in it does not exist;
what is known and not offered is in it by name, so that the refusal says so.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from armillary.doors.mongo import authentication, cursors, diagnostics, hello, sessions
from armillary.doors.mongo.call import Call, Reply
from armillary.languages.mongo.errors import refusal

Run = Callable[[Call], Coroutine[Any, Any, Reply]]


@dataclass(frozen=True, slots=True)
class Command:
    run: Run
    note: str
    is_open: bool = False  # to whoever has not authenticated
    writes: bool = False
    is_admin: bool = False  # on the admin database only
    is_stable: bool = False  # of API version 1
    is_retryable: bool = False
    fields: frozenset[str] | None = None  # None: what else it says is not looked at, as tools send all sorts of things


async def _not_offered(call: Call) -> Reply:
    raise refusal(115, f"The command {call.name} is not supported.")


_NO_SCRIPTS: Final = Command(_not_offered, "needs a JavaScript engine; there is none")
_LATER: Final = Command(_not_offered, "not offered yet")

_HELLO: Final = Command(hello.hello, "what a driver must know", is_open=True, is_stable=True)
_BUILD: Final = Command(diagnostics.build_info, "the version that is answered for", is_open=True)

COMMANDS: Final[dict[str, Command]] = {
    # First contact.
    "hello": _HELLO,
    "isMaster": _HELLO,
    "ismaster": _HELLO,
    "ping": Command(diagnostics.ping, "answers", is_open=True, is_stable=True),
    "buildInfo": _BUILD,
    "buildinfo": _BUILD,
    "saslStart": Command(authentication.start, "the first step of authentication", is_open=True),
    "saslContinue": Command(authentication.go_on, "a further step of authentication", is_open=True),
    "getnonce": Command(authentication.get_nonce, "for the oldest form of authentication", is_open=True),
    "authenticate": Command(authentication.authenticate, "refused: use SCRAM", is_open=True),
    "logout": Command(authentication.log_out, "forget who this is", is_open=True),
    "connectionStatus": Command(authentication.connection_status, "who this is", is_open=True),
    "whatsmyuri": Command(diagnostics.whats_my_uri, "the client's own address", is_open=True),
    # Cursors.
    "getMore": Command(
        cursors.get_more,
        "the next documents of a cursor",
        is_stable=True,
        fields=frozenset("getMore collection batchSize term lastKnownCommittedOpTime".split()),
    ),
    "killCursors": Command(cursors.kill_cursors, "close cursors", is_stable=True),
    # Sessions.
    "startSession": Command(sessions.start_session, "a new session"),
    "refreshSessions": Command(sessions.refresh_sessions, "keep sessions from ending", is_stable=True),
    "endSessions": Command(sessions.end_sessions, "end sessions", is_stable=True),
    "killSessions": Command(sessions.kill_sessions, "end sessions and what they run", is_stable=True),
    "killAllSessions": Command(sessions.kill_all_sessions, "end all sessions"),
    # What tools ask.
    "hostInfo": Command(diagnostics.host_info, "the machine"),
    "serverStatus": Command(diagnostics.server_status, "the server at work"),
    "getCmdLineOpts": Command(diagnostics.get_command_line, "how the server was started"),
    "getLog": Command(diagnostics.get_log, "lines of the log; there are none here"),
    "getParameter": Command(diagnostics.get_parameter, "parameters of the server"),
    "features": Command(diagnostics.features, "what old shells ask"),
    "top": Command(diagnostics.top, "time spent in collections"),
    "currentOp": Command(diagnostics.current_operations, "commands that run now"),
    "listCommands": Command(diagnostics.list_commands, "this table", is_open=True),
    "replSetGetStatus": Command(diagnostics.replica_set_status, "the one member of the set"),
    "profile": Command(diagnostics.profile, "always off"),
    "usersInfo": Command(diagnostics.users_info, "the one user"),
    "configureFailPoint": Command(diagnostics.configure_fail_point, "for tests of drivers", is_admin=True),
    # Known, and not offered.
    "mapReduce": _NO_SCRIPTS,
    "mapreduce": _NO_SCRIPTS,
    "eval": _NO_SCRIPTS,
    "$eval": _NO_SCRIPTS,
}
