"""The client of one connection: the graph and the rights that its credentials gave it, and the requests that wait for
its authentication."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Principal(NamedTuple):
    """Credentials name a graph: all requests of the connection are about it."""

    database: str
    graph: str
    is_read_only: bool
    # Of resource tokens.
    container_rid: str = ""  # of the one container that it is for; "": whatever has the name
    expires_s: int | None = None
    permission_rid: str = ""
    keys_number: int = 0  # which keys the account had when its seal was last looked at
    came_with: bytes = b""  # the key, or the token
    database_rid: str = ""
    grant: str = ""  # of its permission, when the token was made

    @property
    def rids(self) -> tuple[str, str]:
        """Of database and container, where the token is for one incarnation of them; "": whatever has the name."""
        return self.database_rid, self.container_rid

    @property
    def credential(self) -> str:
        """Its kind, for the security log."""
        if self.expires_s is not None:
            return "resource token"
        return "read-only key" if self.is_read_only else "key"


class Line(Protocol):
    """The connection, as the door sees it."""

    def send(self, message: bytes, is_text: bool) -> None: ...
    async def drained(self) -> None: ...
    def close(self, code: int) -> None: ...
    def hang_up(self) -> None: ...


class Client:
    def __init__(self, line: Line) -> None:
        self.line = line
        self.address = ""  # the client's, once it is connected
        self.principal: Principal | None = None
        self.pending: dict[str, Any] = {}  # requests that were challenged, by their ids
        self.pending_bytes = 0
        self.is_gone = False
        self.reads_properties = True  # of elements in GraphBinary
