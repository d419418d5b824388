"""The client of one connection: its metadata, its grant, and the statistics of its last command.

The door makes one for every connection. Sessions and cursors belong to the door, since they outlive connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from armillary import limits
from armillary.account.captures.notes import Request as Notes
from armillary.audit import Actor
from armillary.doors.mongo.sessions.scram import Conversation
from armillary.doors.mongo.settings import Grant


@dataclass(slots=True)
class Statistics:
    """Of the last command, for getLastRequestStatistics."""

    command: str = ""
    charge_ru: float = 0.0
    duration_ms: int = 0
    activity_id: str = "00000000-0000-0000-0000-000000000000"
    retry_after_ms: int = 0


class Login(NamedTuple):
    """A user of a database, as it was when the client signed in."""

    database: str
    name: str
    serial: str  # of its password


class Line(Protocol):
    """The connection, as the door sees it."""

    async def send(self, answer: bytes) -> bool: ...
    def retire(self) -> None: ...


class _NoLine:
    """Of clients that send one command without a connection of their own."""

    async def send(self, answer: bytes) -> bool:
        return False

    def retire(self) -> None:
        pass


NO_LINE: Final[Line] = _NoLine()


class Client:
    __slots__ = (
        "_gone",
        "actor",
        "app_name",
        "came_with",
        "compressors",
        "conversation",
        "details",
        "grant",
        "has_metadata",
        "id",
        "is_load_balanced",
        "is_tls",
        "line",
        "local",
        "login",
        "on_leave",
        "remote",
        "statistics",
        "user",
    )

    def __init__(
        self, number: int, line: Line, *, is_tls: bool, remote: tuple[str, int], local: tuple[str, int], grant: Grant
    ) -> None:
        self.id = number
        self.line = line
        self.is_tls = is_tls
        self.remote = remote
        self.actor = Actor("mongo", remote[0])
        self.local = local
        self.grant = grant
        self.user: str | None = None  # once authenticated
        self.login: Login | None = None  # of a user of a database; None: of a key of the account
        self.came_with = ""  # the key that it authenticated with
        self.conversation: Conversation | None = None
        self.has_metadata = False
        self.is_load_balanced = False  # it knows the node that leads as a service, and no replica set
        self.app_name = ""
        self.compressors: list[str] = []
        self.statistics = Statistics()
        self.details: Notes | None = None  # what the account notes of its command while that is asked for
        self.on_leave: Callable[[], None] | None = None  # while another process answers its command
        self._gone: asyncio.Event | None = None

    @property
    def is_stranger(self) -> bool:
        return self.grant is Grant.NOTHING

    @property
    def owner(self) -> str:
        """Cursors and sessions belong to the user that made them, and not to one that is made later with the same name;
        those of clients with keys have no owner."""
        login = self.login
        return "" if login is None else f"{login.database}\0{login.name}\0{login.serial}"

    @property
    def message_bytes_max(self) -> int:
        return limits.MONGO_MESSAGE_BYTES_MAX if self.grant else limits.MONGO_STRANGER_BYTES_MAX

    # Waiting on behalf of a client that may leave.

    def leave(self) -> None:
        self._gone = self._gone or asyncio.Event()
        self._gone.set()
        if self.on_leave is not None:
            self.on_leave()

    async def pause(self, seconds: float) -> bool:
        """Wait; False: the client disconnected or the server closes."""
        self._gone = self._gone or asyncio.Event()
        await asyncio.sleep(0)  # a request is started without a task, which a timeout needs
        try:
            await asyncio.wait_for(self._gone.wait(), seconds)
        except TimeoutError:
            return True
        return False


def application_in(told: Any) -> str:
    """The name of the application that a client's metadata gives."""
    application = told.get("application") if isinstance(told, dict) else None
    name = application.get("name") if isinstance(application, dict) else None
    return name[:128] if isinstance(name, str) else ""
