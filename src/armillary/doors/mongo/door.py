"""The MongoDB door: reads a message, finds its client and session, and runs the function of its command. It translates
only: the operations are in `account/`, the meaning of filters and pipelines in `languages/mongo`.

Every exception is caught here and answered, so that no client waits for an answer that never comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bson.objectid import ObjectId

from armillary import limits, work
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.captures import notes
from armillary.account.following import FollowingAccount
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.audit import ACTOR
from armillary.clock import Clock
from armillary.doors.mongo import command_checks, command_counts, namespaces
from armillary.doors.mongo.call import Call, Command, Stream
from armillary.doors.mongo.client import NO_LINE, Client, Line, Statistics
from armillary.doors.mongo.commands import inline_commands, profiler
from armillary.doors.mongo.commands.command_table import COMMANDS
from armillary.doors.mongo.commands.fail_points import FailPoints
from armillary.doors.mongo.commands.hello import process_id_of, topology_of
from armillary.doors.mongo.elsewhere import patient_commands
from armillary.doors.mongo.elsewhere.other_doors import OtherDoors
from armillary.doors.mongo.errors import RESUMABLE, STATE_CHANGES, MalformedMessage, code_of, labels_of
from armillary.doors.mongo.reading import cursor_commands, point_reads
from armillary.doors.mongo.reading.change_streams import ChangeStream
from armillary.doors.mongo.reading.cursors import Cursors
from armillary.doors.mongo.replica_set import admission
from armillary.doors.mongo.replica_set.membership import Membership
from armillary.doors.mongo.sessions.authentication import Authenticator
from armillary.doors.mongo.sessions.cluster_time import ClusterTime, ProcessClusterTime
from armillary.doors.mongo.sessions.read_write_concerns import Snapshots
from armillary.doors.mongo.sessions.sessions import Sessions, transaction_name
from armillary.doors.mongo.sessions.transactions import Transaction
from armillary.doors.mongo.settings import Grant, MongoSettings, ProfilingLevels
from armillary.doors.mongo.wire import answers
from armillary.doors.mongo.wire.compression import NEVER_COMPRESSED
from armillary.doors.mongo.wire.messages import (
    ANSWER_BODY_AT,
    BODY_SECTION,
    MORE_TO_COME,
    OP_MSG,
    Envelope,
    failure_flags,
    frame,
    frame_answer,
    plain_answer,
    read_request,
)
from armillary.doors.mongo.writing import retryable_writes
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document
from armillary.net.requests.request_watch import RequestWatch

log = logging.getLogger(__name__)

_SWEEP_S: Final = 1.0


class MongoDoor:
    def __init__(
        self,
        account: Account,
        owners: Sequence[str | None],
        readers: Sequence[str | None],
        settings: MongoSettings,
        *,
        machine: Clock,
        begun_s: float | None = None,
    ) -> None:
        """`machine`: the time that work takes, even if the account's is being moved. `begun_s`: when the server was
        started, by that clock; None: now."""
        self.account = account
        self.settings = settings
        self.machine = machine
        self.throttle: SignInThrottle | None = None  # slows down failed sign-ins
        self.watch = RequestWatch()  # counts requests
        self.authenticator = Authenticator(account, owners, readers, machine)
        account.database_users.on_change.append(self._check_clients)
        topology, places, place = account.topology, account.other_places, account.place
        # The same in all processes of a server.
        self.process_id = ObjectId(process_id_of(account.secret) if places else account.clock.random_bytes(12))
        self.membership = Membership(account, topology, self.process_id) if topology is not None else None
        self.cluster_time = ClusterTime(account.clock) if self.membership is None else self.membership.times
        self.others: OtherDoors | None = None  # of the other processes
        if places and topology is None:
            self.cluster_time = times = ProcessClusterTime(account.clock, place, len(places) + 1)
            self.others = OtherDoors(places, place, machine, times)
        self.sessions = Sessions(account.clock)
        self._reader_sessions = Sessions(account.clock, Grant.READ)
        self.cursors: Cursors[Call] = Cursors(account.clock, place, len(places) + 1)
        self.snapshots = Snapshots(account.clock)
        self.open_transactions: set[Transaction] = set()
        self.streams: set[Stream] = set()  # that are open
        self.fail_points = FailPoints()
        self.profiler = ProfilingLevels()
        self.port = 0  # set once it is open
        self.forwarded: dict[int, Client] = {}  # whose commands are answered for other processes
        self._clients: dict[int, Client] = {}
        self._running: dict[int, tuple[Call, float]] = {}
        self._counts: Counter[str] = Counter()
        self._client_numbers = 0
        self._activity = account.clock.guid()[:24]  # activity ids: a random prefix and a counter
        self._answer_number = 0
        self._begun_s = begun_s if begun_s is not None else machine.monotonic_s()
        self._upkeep: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._upkeep = asyncio.get_running_loop().create_task(self._keep_up())

    async def close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        if self.membership is not None and not self.membership.leads:
            for transaction in list(self.open_transactions):
                transaction.forget()
        for sessions in self.all_sessions:
            for session in sessions.all():
                await self.end_session(sessions, session.id)
        await self.cursors.close()

    async def _keep_up(self) -> None:
        if self.others is not None:
            await self.others.adopt(self.fail_points, self.profiler)
        try:
            if not isinstance(self.account, FollowingAccount):
                await self.clear()
        except Failure as failure:
            log.error("collections of interrupted transactions could not be deleted: %s", failure.message)
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                await self.look_after()
            except Exception:
                log.exception("expired cursors, sessions and transactions could not be ended")

    async def clear(self) -> None:
        """Delete the collections of transactions that were open when the server stopped."""
        left = [each for each in self.account.containers if namespaces.is_left_pending(self.account, each.name)]
        for container in left:
            await containers.delete_container(self.account, container, None)

    async def look_after(self) -> None:
        """End cursors, snapshots, sessions and transactions that are past their time."""
        if self.membership is not None:
            self.membership.look()
        await self.cursors.expire()
        self.snapshots.expire()
        for sessions in self.all_sessions:
            for session in sessions.expire():
                await self.end_session(sessions, session.id)
        for transaction in list(self.open_transactions):
            if transaction.is_over_time:
                await transaction.abort()

    # Clients.

    def use_keys(self, owners: Sequence[str | None], readers: Sequence[str | None]) -> None:
        """Replace the account's keys. Connections that authenticated with another key are closed after the answer that
        is under way."""
        self.authenticator.use(owners, readers)
        self._check_clients()

    def _check_clients(self) -> None:
        self.authenticator.check_again(list(self._clients.values()), self.grant_of_strangers)
        self.cursors.end_orphans(self.authenticator.has_owner)

    @property
    def grant_of_strangers(self) -> Grant:
        return Grant.NOTHING if self.settings.needs_authentication else Grant.WRITE

    def welcome(self, line: Line, *, is_tls: bool, remote: tuple[str, int], local: tuple[str, int]) -> Client:
        self._client_numbers += 1
        number = self._client_numbers if self.others is None else self.others.distinct(self._client_numbers)
        client = Client(number, line, is_tls=is_tls, remote=remote, local=local, grant=self.grant_of_strangers)
        self._clients[client.id] = client
        return client

    def bid_farewell(self, client: Client) -> None:
        self._clients.pop(client.id, None)

    def address_of(self, client: Client) -> str:
        """The address of this server that the client is told."""
        host, port = client.local
        advertised = self.settings.advertised_host
        if advertised is not None:
            return advertised if ":" in advertised.rpartition("]")[2] else f"{advertised}:{port}"
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def sessions_of(self, client: Client) -> Sessions:
        return self.sessions if client.grant is Grant.WRITE else self._reader_sessions

    @property
    def all_sessions(self) -> tuple[Sessions, Sessions]:
        return self.sessions, self._reader_sessions

    async def end_session(self, sessions: Sessions, session_id: bytes) -> None:
        session = sessions.end(session_id)
        if session is not None and session.transaction is not None:
            await session.transaction.abort()
        for cursor_id in self.cursors.of_session(sessions.grant, session_id):
            await self.cursors.kill(cursor_id)

    async def is_watched(self, database: str, collection: str) -> bool:
        is_here = self.is_watched_here(database, collection)
        return is_here or (self.others is not None and await self.others.is_watched(database, collection))

    def is_watched_here(self, database: str, collection: str) -> bool:
        return any(stream.covers(database, collection) for stream in self.streams)

    async def announce(self, kind: str, database: str, collection: str, **extra: Any) -> None:
        """Send an event about a collection or a database to the open change streams that cover it."""
        await self.announce_here(kind, database, collection, extra)
        if self.others is not None:
            await self.others.announce(kind, database, collection, extra)

    async def announce_here(self, kind: str, database: str, collection: str, extra: Document) -> None:
        for stream in list(self.streams):
            if stream.covers(database, collection):
                await stream.tell(kind, database, collection, extra)

    async def end_cursors(self, namespace: str, reason: str) -> None:
        """Of a collection that is gone."""
        await self.end_cursors_here(namespace, reason)
        if self.others is not None:
            await self.others.end_cursors(namespace, reason)

    async def end_cursors_here(self, namespace: str, reason: str) -> None:
        await cursor_commands.end_of_collection(self.cursors, namespace, reason)

    # Figures of the running server.

    @property
    def commands(self) -> Mapping[str, Command]:
        return COMMANDS

    @property
    def uptime_s(self) -> float:
        return self.machine.monotonic_s() - self._begun_s

    @property
    def connection_count(self) -> int:
        return len(self._clients)

    @property
    def connections_total(self) -> int:
        return self._client_numbers

    @property
    def running_count(self) -> int:
        return len(self._running)

    @property
    def command_total(self) -> int:
        return sum(self._counts.values())

    @property
    def open_transaction_count(self) -> int:
        return len(self.open_transactions)

    def counted(self, name: str) -> int:
        return self._counts["find" if name == "query" else name]

    def running_commands(self, asking: Client) -> list[Document]:
        return command_counts.running(self._running, self.machine.elapsed_s(), self.address_of(asking))

    def kill(self, number: int) -> None:
        """Mark a running command as killed: it ends at its next check."""
        for each, (call, _) in self._running.items():
            if each == number:
                call.is_killed = True

    # Answering.

    def answer_at_once(self, client: Client, frame: bytes) -> bytes | None:
        """The answer to a point read that needs no waiting and no refusal; None: use `answer`."""
        if self.fail_points.are_set or self.profiler.is_on:
            return None
        begun_s = self.machine.elapsed_s()
        client.details = notes.begin("mongo") if self.account.captures.is_on else None
        found = point_reads.answer(self, client, frame)
        if found is None:
            return None
        document, charge_ru = found
        self._counts["find"] += 1
        if self.watch.report is None:
            activity_id = f"{self._activity}{self._answer_number & 0xFFFFFFFFFFFF:012x}"
            elapsed_s = self.machine.elapsed_s() - begun_s
            command_counts.count_find(self.watch, client, charge_ru, elapsed_s, activity_id)
        else:
            self._note(client, charge_ru, "find", begun_s, None, None)
        self._answer_number = number = self._answer_number % 0x7FFFFFFF + 1
        return plain_answer(frame, number, document)

    async def answer(self, client: Client, envelope: Envelope) -> bytes | None:
        """The frame to send; b"": none; None: the connection ends."""
        ACTOR.set(client.actor)
        begun_s = self.machine.elapsed_s()
        name = ""
        call: Call | None = None
        failed: Failure | None = None
        client.details = None
        try:
            if len(envelope.content) <= limits.WORK_AT_ONCE_BSON_BYTES:
                request = read_request(envelope, is_known=not client.is_stranger)
            else:  # gives way while it is decoded
                request = await work.run(lambda: read_request(envelope, is_known=not client.is_stranger))
            name = next(iter(request.body), "")
            call = Call(self, client, name, request)
            if self.account.captures.is_on:
                client.details = notes.begin("mongo", group=transaction_name(request.body))
            running = self.run(call, begun_s)
            document = await (running if inline_commands.runs_inline(call) else work.drive(running, call.check_work))
        except MalformedMessage:
            raise
        except Failure as failure:
            if failure.kind is Kind.DROPPED:
                return None
            # Its traceback refers to this frame, and with it to all that the command computed: no cycle may keep that.
            failed = failure.with_traceback(None)
            document = self._refuse(call, failure, client)
        except RecursionError:
            failed = refusal(15, "Document exceeds maximum nested object depth")
            document = self._refuse(call, failed, client)
        except Exception:
            log.exception("the command %s failed", name[:64])
            failed = Failure(Kind.INTERNAL, "The server failed to answer this command. Its log has the reason.")
            document = self._refuse(call, failed, client)
        if name.lower() != "getlastrequeststatistics":
            self._note(client, call.charge_ru if call is not None else 0.0, name, begun_s, failed, call)
        if self.profiler.is_on and call is not None and not call.is_forwarded:
            await self.note_profile(call, begun_s, failed)
        if envelope.wants_no_answer:
            # A client whose writes are not acknowledged learns of another primary by the end of its connection.
            is_lost = failed is not None and self.membership is not None and code_of(failed) in STATE_CHANGES
            return None if is_lost else b""
        self._answer_number = number = self._answer_number % 0x7FFFFFFF + 1
        compresses = envelope.compressor is not None and name.lower() not in NEVER_COMPRESSED
        flags = failure_flags(envelope) if failed is not None else 0
        allows_exhaust = envelope.allows_exhaust and call is not None and not call.is_forwarded
        if name == "getMore" and allows_exhaust and call is not None and failed is None:
            return await self._exhaust(client, envelope, call, document, number, begun_s)
        return frame_answer(envelope, number, document, compresses=compresses, flags=flags)

    async def answer_as(self, command: bytes, grant: Grant, address: str) -> tuple[bytes, Statistics] | None:
        """Answer a command of the portal, which has authenticated its sender: the reply, and what the command took.
        None: the connection is to end. Cursors stay open as for other clients."""
        client = self.welcome(NO_LINE, is_tls=True, remote=(address, 0), local=(address, self.port))
        client.grant = grant
        try:
            envelope = Envelope(0, OP_MSG, None, 0, bytes((BODY_SECTION,)) + command)
            answer = await self.answer(client, envelope)
        finally:
            self.bid_farewell(client)
        return (answer[ANSWER_BODY_AT:], client.statistics) if answer else None

    async def _exhaust(
        self, client: Client, envelope: Envelope, call: Call, document: bytes, number: int, begun_s: float
    ) -> bytes:
        """Exhaust cursors: batches are sent without further requests until the cursor has no more."""
        response_to = envelope.request_id
        while True:
            cursor = self.cursors.find(int(call.body["getMore"]))
            flags = MORE_TO_COME if cursor is not None else 0
            answer = frame(OP_MSG, number, response_to, document, compressor=envelope.compressor, flags=flags)
            if cursor is None or not await client.line.send(answer):
                return answer if cursor is None else b""
            response_to = number
            self._answer_number = number = self._answer_number % 0x7FFFFFFF + 1
            try:
                document = await work.drive(self.run(call, self.machine.elapsed_s()), call.check_work)
            except Failure as failure:
                document = self._refuse(call, failure, client)
                return frame(OP_MSG, number, response_to, document, compressor=envelope.compressor)
            await asyncio.sleep(0)

    async def run(self, call: Call, begun_s: float) -> bytes:
        """The document that answers a command."""
        command = COMMANDS.get(call.name)
        if command is None:
            raise refusal(59, f"no such command: '{call.name[:100]}'")
        if not call.is_forwarded:
            self._counts[call.name] += 1
        command_checks.check(call, command, begun_s)
        if self.others is not None and (not call.is_forwarded or call.meets_fail_points):
            answered = await self.others.answer(call, self.fail_points)
            if answered is not None:
                return answered
        # Registered before its first await: currentOp cannot run before that.
        number = id(call) if self.others is None else self.others.distinct(id(call))
        self._running[number] = (call, begun_s)
        member = self.membership
        try:
            if member is not None:
                await admission.admit(call, command, member)
            if call.reads_past:
                await self.snapshots.enter(call)
            extra = await self._met(call) if self.fail_points.are_set else None
            if self.others is not None:
                reply = await patient_commands.run(call, command)
            else:
                reply = await (command.run(call) if call.txn_number is None else retryable_writes.run(call, command))
            if member is not None:
                await admission.confirm(call, command, member)
        except Failure as failure:
            if member is not None and admission.is_answer_of_state(failure):
                await admission.confirm(call, command, member)
            raise
        finally:
            del self._running[number]
        if command.writes:
            self.cluster_time.tick()
        if call.extra:
            extra = {**call.extra, **(extra or {})}
        return answers.finished(reply, extra, self.cluster_time.elements())

    async def _met(self, call: Call) -> Document | None:
        """What a fail point adds to the answer. Raises the failure that it stands for."""
        if call.is_forwarded and not call.meets_fail_points:
            return None  # it has met them where it came from
        if self.others is not None and self.fail_points.are_elsewhere:
            return await self.others.meet_fail_point(call)
        return await self.fail_points.meet(call.name, call.body, call.client)

    def _refuse(self, call: Call | None, failure: Failure, client: Client) -> bytes:
        if failure.kind in (Kind.CORRUPT, Kind.INTERNAL):
            log.error("%s: %s", call.name if call is not None else "a message", failure.message)
        if client.is_load_balanced and self.membership is not None and not self.membership.leads:
            failure = admission.as_service(failure)
        labels: list[str] = []
        if call is not None:
            call.charge_ru += failure.charge_ru
            is_in_transaction = "autocommit" in call.body
            if "has_own_labels" not in failure.details:
                labels = labels_of(
                    failure,
                    is_retryable_write=call.txn_number is not None and not is_in_transaction,
                    is_in_transaction=is_in_transaction,
                    is_ending=is_in_transaction and call.name in ("commitTransaction", "abortTransaction"),
                )
            is_inside = not failure.details.get("is_before")
            if call.name == "getMore" and is_inside and code_of(failure) in RESUMABLE and self.is_stream(call):
                labels.append("ResumableChangeStreamError")
        client.statistics.retry_after_ms = failure.retry_after_ms or 0
        # A failed write has its writeConcernError too.
        extra = call.extra if call is not None else None
        # Not for the errors of fail points: drivers must take those for real state changes.
        is_state_change = code_of(failure) in STATE_CHANGES and "is_before" not in failure.details
        if call is not None and is_state_change:
            extra = {**(extra or {}), "topologyVersion": topology_of(call)}
        return answers.refused(failure, labels, extra, self.cluster_time.elements())

    async def note_profile(self, call: Call, begun_s: float, failed: Failure | None) -> None:
        if self.profiler.is_on:
            await profiler.note(call, int((self.machine.elapsed_s() - begun_s) * 1000), failed)

    def is_stream(self, call: Call) -> bool:
        """Whether a getMore is about a change stream."""
        if call.is_stream:
            return True
        wanted = call.body.get("getMore")
        cursor = self.cursors.find(int(wanted)) if isinstance(wanted, int) else None
        return cursor is not None and isinstance(cursor.source, ChangeStream)

    def _note(
        self, client: Client, charge_ru: float, name: str, begun_s: float, failed: Failure | None, call: Call | None
    ) -> None:
        """Count a command that is answered. `call`: None for point reads."""
        activity_id = f"{self._activity}{self._answer_number & 0xFFFFFFFFFFFF:012x}"
        times_s = begun_s, self.machine.elapsed_s() - begun_s
        command_counts.count(self.watch, client, name, charge_ru, times_s, activity_id, failed, call)
