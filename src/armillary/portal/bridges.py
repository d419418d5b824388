"""Bridges: requests of the portal's pages to the SQL, MongoDB and Gremlin doors, answered in this process with the
rights of the log-in, so that no key of the account reaches the browser. Routing, errors, charges, faults and metrics
are the door's own. Only this module and `language_bridges.py` call `answer_as` of a door.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from armillary.doors.control.access.authentication import Access
from armillary.doors.sql.access.authorization import MASTER, READ_ONLY
from armillary.doors.sql.door import SqlDoor
from armillary.errors import Failure, Kind
from armillary.late import Late
from armillary.net.http import HANG_UP, Request, Response
from armillary.portal.policy import PREFIX, with_policy

if TYPE_CHECKING:
    from armillary.portal.language_bridges import LanguageBridges

SQL: Final = PREFIX + b"/sql"
MONGO: Final = PREFIX + b"/mongo"
GREMLIN: Final = PREFIX + b"/gremlin"

# Of the portal's own log-in, and nothing to the SQL protocol.
_OWN_HEADERS: Final = frozenset((b"authorization", b"cookie", b"x-armillary-csrf", b"origin", b"referer"))


class Bridges:
    def __init__(self, sql: SqlDoor, languages: Late[LanguageBridges]) -> None:
        self._sql = sql
        self._languages = languages

    @staticmethod
    def leads_to(request: Request) -> bytes | None:
        """The bridge that a target names."""
        path = request.target.partition(b"?")[0]
        if path in (MONGO, GREMLIN):
            return path
        return SQL if path == SQL or path.startswith(SQL + b"/") else None

    async def answer(self, bridge: bytes, request: Request, access: Access) -> Response:
        if bridge == SQL:
            return await self._answer_sql(request, access)
        if request.method != "POST":
            raise Failure(Kind.METHOD_NOT_ALLOWED, "Use POST.", details={"allowed": ["POST"]})
        languages = await self._languages.load()
        return await (languages.answer_mongo if bridge == MONGO else languages.answer_gremlin)(request, access)

    def needs_leader(self, bridge: bytes, request: Request) -> bool:
        """Whether, in a cluster, only the node that leads may answer: all but what the SQL door answers anywhere."""
        return bridge != SQL or self._sql.needs_leader(_sql_request(request))

    # SQL: as it is.

    async def _answer_sql(self, request: Request, access: Access) -> Response:
        response = await self._sql.answer_as(_sql_request(request), READ_ONLY if access.is_read_only else MASTER)
        return response if response is HANG_UP else with_policy(response)


def _sql_request(request: Request) -> Request:
    """As the SQL door would have got it."""
    headers = {name: value for name, value in request.headers.items() if name not in _OWN_HEADERS}
    target = request.target[len(SQL) :]
    target = target if target.startswith(b"/") else b"/" + target
    made = Request(request.method, target, headers, request.body, request.is_tls, request.peer, request.has_certificate)
    made.is_known = request.is_known
    return made
