"""Which process of a server answers a command (`armillary serve --processes`), and what a client is told where that
process has ended. Most commands are answered by the process that they came to. Elsewhere are

    cursors                          in the process that their ids name
    transactions                     in the one that follows from the session's id
    reads of a snapshot              in the one that has taken it, which its time says
    definitions and users            in the first process, which has the catalog
    what ends sessions or profiles   in all of them
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bson.timestamp import Timestamp

from armillary import limits
from armillary.account.visits.elsewhere.place import Lost, Place, Question, Unreached
from armillary.clock import Clock
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.commands.fail_points import FailPoints
from armillary.doors.mongo.elsewhere.door_questions import (
    AnnounceEvent,
    AskDoorState,
    DoorState,
    EndCursors,
    IsWatched,
    MeetFailPoint,
    UseFailPoints,
    adopt_levels,
)
from armillary.doors.mongo.elsewhere.forwarded_commands import AnswerCommand, CommandAnswered, LeaveCommand, told
from armillary.doors.mongo.sessions.cluster_time import ProcessClusterTime
from armillary.doors.mongo.settings import ProfilingLevels
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, decode, encode

log = logging.getLogger(__name__)

FIRST: Final = 0
_BY_CURSOR: Final = frozenset(("getMore", "killCursors"))
_AT_FIRST: Final = frozenset(
    "create drop dropDatabase renameCollection createIndexes dropIndexes collMod reIndex convertToCapped "
    "cloneCollectionAsCapped shardCollection enableSharding customAction createUser updateUser dropUser "
    "configureFailPoint".split()
)
_EVERYWHERE: Final = frozenset("endSessions killSessions killAllSessions refreshSessions profile".split())
_ROUTED: Final = _BY_CURSOR | _AT_FIRST | _EVERYWHERE | {"killOp"}
# About the connection that they came on.
_OF_CONNECTION: Final = frozenset(
    "hello isMaster ismaster ping saslStart saslContinue getnonce authenticate logout connectionStatus whatsmyuri "
    "getLastRequestStatistics GetLastRequestStatistics".split()
)
_ENDING: Final = ("commitTransaction", "abortTransaction")
_POLL_S: Final = 0.02


class _Route(NamedTuple):
    place: int
    why: str  # cursor, transaction, snapshot, catalog, fail points, operation


class OtherDoors:
    def __init__(self, places: Mapping[int, Place], number: int, machine: Clock, times: ProcessClusterTime) -> None:
        """`number`: of this process."""
        self.number = number
        self.count = len(places) + 1
        self._places = places
        self._machine = machine
        self._times = times
        self._asked = 0

    # Where a command is answered.

    async def answer(self, call: Call, fail_points: FailPoints) -> bytes | None:
        """The answer of another process; None: this one answers. Raises what the other one has refused it with."""
        route = self._route(call, fail_points)
        if route is not None:
            return await self._forward(call, route, fail_points)
        if call.name in _EVERYWHERE:
            await self.gather(call)
        return None

    def _route(self, call: Call, fail_points: FailPoints) -> _Route | None:
        body, name = call.body, call.name
        if fail_points.are_elsewhere and name not in _OF_CONNECTION:
            return _Route(FIRST, "fail points")
        if "autocommit" in body and call.session is not None:
            return self._elsewhere(self.keeper_of(call.session.id), "transaction")
        if call.reads_past:
            moment = (body.get("readConcern") or {}).get("atClusterTime")
            return self._elsewhere(self._times.place_of(moment), "snapshot") if type(moment) is Timestamp else None
        if name not in _ROUTED:
            return None
        if name == "getMore":
            return self._elsewhere(self.place_of_cursor(body[name]), "cursor")
        if name == "killCursors":
            ids = body.get("cursors")
            places = {self.place_of_cursor(each) for each in ids} if isinstance(ids, list) else set()
            return self._elsewhere(places.pop(), "cursor") if len(places) == 1 else None
        if name == "killOp":
            number = body.get("op")
            return self._elsewhere(int(number) % self.count, "operation") if isinstance(number, int) else None
        return self._elsewhere(FIRST, "catalog") if name in _AT_FIRST else None

    def _elsewhere(self, place: int, why: str) -> _Route | None:
        return _Route(place, why) if place != self.number else None

    def keeper_of(self, session_id: bytes) -> int:
        """The process that keeps the transactions of a session."""
        return int.from_bytes(session_id[-4:], "big") % self.count

    def place_of_cursor(self, cursor_id: Any) -> int:
        return cursor_id % self.count if isinstance(cursor_id, int) else self.number

    # Sending it there.

    async def _forward(self, call: Call, route: _Route, fail_points: FailPoints) -> bytes:
        meets = fail_points.are_elsewhere
        extra = await fail_points.meet(call.name, call.body, call.client) if fail_points.are_set and not meets else None
        answered = await self._answered(call, route, meets=meets)
        call.charge_ru += answered.charge_ru
        call.is_forwarded = True
        call.is_stream = answered.is_stream
        if answered.failure is not None:
            raise answered.failure
        assert answered.document is not None
        return answered.document if extra is None else encode({**decode(answered.document), **extra})

    def distinct(self, count: int) -> int:
        """A number that no other process gives."""
        return count * self.count + self.number

    def _asking(self, call: Call, body: bytes, *, meets: bool = False) -> AnswerCommand:
        self._asked += 1
        return AnswerCommand(self.distinct(self._asked), told(call.client), body, call.sequences, meets)

    async def _answered(self, call: Call, route: _Route, *, meets: bool) -> CommandAnswered:
        asked = self._asking(call, call.raw_body, meets=meets)
        number = asked.number
        place = self._places[route.place]
        await asyncio.sleep(0)  # a request is started without a task, which a wait needs
        call.client.on_leave = lambda: place.tell(LeaveCommand(number))
        ends_s = self._machine.monotonic_s() + limits.MONGO_PROCESS_SECONDS_MAX
        was_sent = False
        try:
            while True:
                try:
                    answered: CommandAnswered = await place.ask(asked, limit_s=limits.MONGO_FORWARD_SECONDS_MAX)
                    return answered
                except (Lost, Unreached, TimeoutError) as error:
                    was_sent = was_sent or not isinstance(error, Unreached)
                    if self._machine.monotonic_s() > ends_s or not _may_repeat(call, route, was_sent=was_sent):
                        raise _ended(call, route) from None
                await self._machine.sleep(_POLL_S)
        finally:
            call.client.on_leave = None

    async def gather(self, call: Call, command: Document | None = None) -> list[Document]:
        """What all other processes answer to the same command, or to this one; nothing of one that has ended."""
        if call.is_forwarded:
            return []
        body = encode(command) if command is not None else call.raw_body
        found = await asyncio.gather(*[self._gathered(call, number, body) for number in self._places])
        return [each for each in found if each is not None]

    async def _gathered(self, call: Call, number: int, body: bytes) -> Document | None:
        try:
            answered: CommandAnswered = await self._places[number].ask(
                self._asking(call, body), limit_s=limits.ADOPT_SECONDS_MAX
            )
        except (Lost, Unreached, TimeoutError):
            return None
        if answered.failure is not None:
            raise answered.failure
        return decode(answered.document or b"")

    async def killed_cursors(self, call: Call) -> dict[int, bool]:
        """Of those among the ids of killCursors that other processes have: whether there was such a cursor."""
        if call.is_forwarded:
            return {}
        by_place: dict[int, list[Any]] = {}
        for each in call.fields.array("cursors"):
            place = self.place_of_cursor(each)
            if place != self.number:
                by_place.setdefault(place, []).append(each)
        asked = [self._gathered(call, place, encode({**call.body, "cursors": ids})) for place, ids in by_place.items()]
        killed = {int(each) for found in await asyncio.gather(*asked) if found for each in found["cursorsKilled"]}
        return {int(each): each in killed for ids in by_place.values() for each in ids}

    # What the other doors are told.

    async def is_watched(self, database: str, collection: str) -> bool:
        return any(await self._ask_all(IsWatched(database, collection)))

    async def announce(self, kind: str, database: str, collection: str, extra: Document) -> None:
        await self._ask_all(AnnounceEvent(kind, database, collection, extra))

    async def end_cursors(self, namespace: str, reason: str) -> None:
        await self._ask_all(EndCursors(namespace, reason))

    async def share_fail_points(self, fail_points: FailPoints) -> None:
        """Of the first process, after they have changed."""
        await self._ask_all(UseFailPoints(fail_points.are_set))

    async def meet_fail_point(self, call: Call) -> Document | None:
        """For commands about the connection; all others are sent on to where they are counted."""
        try:
            asked = MeetFailPoint(call.name, call.body, told(call.client))
            found: Document | None = await self._places[FIRST].ask(asked, limit_s=limits.MONGO_FORWARD_SECONDS_MAX)
        except (Lost, Unreached, TimeoutError):
            return None
        return found

    async def adopt(self, fail_points: FailPoints, profiler: ProfilingLevels) -> None:
        """When this process begins to answer."""
        if self.number == FIRST:
            return
        try:
            state: DoorState = await self._places[FIRST].ask(AskDoorState(), limit_s=limits.ADOPT_SECONDS_MAX)
        except (Lost, Unreached, TimeoutError):
            return  # this process is about to end
        fail_points.are_elsewhere = fail_points.are_elsewhere or state.has_fail_points
        adopt_levels(profiler, state)

    async def _ask_all(self, question: Question) -> list[Any]:
        return await asyncio.gather(*[self._ask(place, question) for place in self._places.values()])

    async def _ask(self, place: Place, question: Question) -> Any:
        try:
            return await place.ask(question, limit_s=limits.ADOPT_SECONDS_MAX)
        except (Lost, Unreached, TimeoutError) as error:
            log.debug("process %d is not told: %r", place.number, error)  # with it its cursors and streams have ended
            return None


def _may_repeat(call: Call, route: _Route, *, was_sent: bool) -> bool:
    """Whether the command is sent again once the other process serves again."""
    if route.why == "cursor":
        return False
    if route.why == "transaction":
        if call.name == "commitTransaction":
            return True  # what is stored says whether it was done
        return not was_sent and "startTransaction" in call.body
    return not was_sent


def _ended(call: Call, route: _Route) -> Failure:
    """What clients are told if the process has ended that was to answer: drivers resume or retry by that."""
    if route.why == "cursor" and call.name == "getMore":
        return refusal(43, f"cursor id {call.body[call.name]} not found: the process that kept it has ended")
    if route.why == "transaction" and call.name != "commitTransaction":
        return refusal(
            251,
            f"Transaction with {{ txnNumber: {call.txn_number} }} has been aborted: the process that kept it has ended",
            labels=("TransientTransactionError",) if call.name not in _ENDING else (),
        )
    if route.why == "snapshot":
        return refusal(246, "The snapshot is gone: the process that kept it has ended. Read a new one.")
    return Failure(Kind.UNAVAILABLE, "The process that answers this command is being started. Try again.")
