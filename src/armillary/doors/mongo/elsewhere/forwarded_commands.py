"""A command that another process answers (`armillary serve --processes`): it is sent there whole, with the client as
this process has authenticated it, and comes back as the document of its answer or as the failure that clients are told.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from armillary import work
from armillary.account.captures import notes
from armillary.account.visits.elsewhere.place import LocalPlace, Question, Told
from armillary.audit import ACTOR
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.client import NO_LINE, Client, Login
from armillary.doors.mongo.commands import inline_commands
from armillary.doors.mongo.sessions.sessions import transaction_name
from armillary.doors.mongo.settings import Grant
from armillary.doors.mongo.wire.messages import Request, decode_document
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal

log = logging.getLogger(__name__)

MONGO = "mongo"  # the name of this door among those of a place


class Answering(Protocol):
    """The door that answers (`door.py`)."""

    forwarded: dict[int, Client]  # the clients of commands that it answers for other processes

    async def run(self, call: Call, begun_s: float) -> bytes: ...
    async def note_profile(self, call: Call, begun_s: float, failed: Failure | None) -> None: ...
    def is_stream(self, call: Call) -> bool: ...


@dataclass(slots=True)
class ClientTold:
    """A client, as the process that it is connected to knows it. Other processes believe what it says: messages come
    over connections that no client can reach."""

    id: int
    grant: int
    user: str | None
    login: tuple[str, str, str] | None
    app_name: str
    is_tls: bool
    remote: tuple[str, int]
    local: tuple[str, int]

    def made(self) -> Client:
        client = Client(
            self.id, NO_LINE, is_tls=self.is_tls, remote=self.remote, local=self.local, grant=Grant(self.grant)
        )
        client.user, client.app_name = self.user, self.app_name
        client.login = Login(*self.login) if self.login is not None else None
        return client


def told(client: Client) -> ClientTold:
    login = tuple(client.login) if client.login is not None else None
    return ClientTold(
        client.id,
        int(client.grant),
        client.user,
        cast(tuple[str, str, str] | None, login),
        client.app_name,
        client.is_tls,
        client.remote,
        client.local,
    )


@dataclass(slots=True)
class CommandAnswered:
    document: bytes | None  # None: it has failed
    failure: Failure | None = None
    charge_ru: float = 0.0
    is_stream: bool = False  # the cursor that has failed is a change stream's


@dataclass(slots=True)
class AnswerCommand(Question):
    number: int  # by which the process that asks calls it later
    client: ClientTold
    body: bytes
    sequences: dict[str, list[bytes]] = field(default_factory=dict)
    meets_fail_points: bool = False

    async def answer(self, here: LocalPlace) -> CommandAnswered:
        # Not cancelled with the connection to the process that asks: half a command would remain.
        return await asyncio.shield(asyncio.ensure_future(self._answer(here)))

    async def _answer(self, here: LocalPlace) -> CommandAnswered:
        door = cast(Answering, await here.doors[MONGO].load())
        client = door.forwarded[self.number] = self.client.made()
        try:
            return await self._answer_at(door, client, here)
        finally:
            del door.forwarded[self.number]

    async def _answer_at(self, door: Answering, client: Client, here: LocalPlace) -> CommandAnswered:
        ACTOR.set(client.actor)
        services = cast(Any, door)
        body = await work.run(lambda: decode_document(self.body))
        call = Call(services, client, next(iter(body), ""), Request(body, self.body, self.sequences))
        call.is_forwarded, call.meets_fail_points = True, self.meets_fail_points
        begun_s = services.machine.elapsed_s()
        if here.account.captures.is_on:
            notes.begin(MONGO, group=transaction_name(body))
        failed: Failure | None = None
        document: bytes | None = None
        try:
            running = door.run(call, begun_s)
            document = await (running if inline_commands.runs_inline(call) else work.drive(running, call.check_work))
        except Failure as failure:
            failed = failure.with_traceback(None)
        except RecursionError:
            failed = refusal(15, "Document exceeds maximum nested object depth")
        except Exception:
            log.exception("the command %s failed", call.name[:64])
            failed = Failure(Kind.INTERNAL, "The server failed to answer this command. Its log has the reason.")
        await door.note_profile(call, begun_s, failed)
        return CommandAnswered(document, failed, call.charge_ru, failed is not None and door.is_stream(call))


@dataclass(slots=True)
class LeaveCommand(Told):
    """The client of a command has gone, or the server closes: what waits on its behalf ends."""

    number: int

    def take(self, here: LocalPlace) -> None:
        late = here.doors.get(MONGO)
        door = cast(Answering | None, late.made) if late is not None else None
        client = door.forwarded.get(self.number) if door is not None else None
        if client is not None:
            client.leave()
