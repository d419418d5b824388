"""The connections of one node to PostgreSQL. The lease, reading and upkeep have one each, shared by all logs that the
node carries; each log that it leads has one more for its appends, which wait for standbys.

A session is checked when it is opened, and for each log when that log uses it first: its generation must be the known
one. The server's configuration is checked again with every renewal of a lease. If it promises too little then, nothing
more is appended to any log: the sessions for that are opened anew, and so refused until the configuration is right.
"""

from __future__ import annotations

import asyncio

from armillary.storage.log.postgres_checks import Plans
from armillary.storage.log.postgres_connections import Connector, Lane, Session
from armillary.storage.log.replicated_log import LogRefused


class Lanes:
    def __init__(self, connector: Connector, call_seconds: float, check_seconds: float = 0.0) -> None:
        """`check_seconds`: how long a check of the configuration counts. Several logs renew their leases at the same
        time, on one session."""
        self.connector = connector
        self.leading, self.reading, self.upkeep = (Lane(connector, call_seconds) for _ in range(3))
        self._appending: set[Lane] = set()
        self._check_seconds = check_seconds

    def new_appending(self) -> Lane:
        """For the appends of one log; it has a session when it is used."""
        lane = Lane(self.connector, limit_s=None, plans=Plans.AUTO)
        self._appending.add(lane)
        return lane

    def end_appending(self, lane: Lane) -> None:
        self._appending.discard(lane)
        lane.close()

    async def check(self, session: Session) -> None:
        """Check the server's configuration again."""
        now_s = asyncio.get_running_loop().time()
        if now_s - session.checked_s < self._check_seconds:
            return
        try:
            await self.connector.check(session)
        except LogRefused as refusal:
            for lane in self._appending:
                lane.cut(str(refusal))
            raise
        session.checked_s = now_s

    def close(self) -> None:
        for lane in (*self._appending, self.leading, self.reading, self.upkeep):
            lane.close()
