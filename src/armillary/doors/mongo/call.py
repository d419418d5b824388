"""One command on its way through the MongoDB door: its fields, its client and session, its deadline, and its charge so
far. `Services` is what a command may use of the server; `Command` is an entry of the table of commands.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from armillary import limits
from armillary.account.account import Account
from armillary.account.collections import document_operations
from armillary.account.collections.document_operations import RetryRecord
from armillary.account.container import Container
from armillary.account.items.procedures import document_functions
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.account.snapshots.snapshot_reads import PastAccount
from armillary.clock import Clock
from armillary.doors.mongo.client import Client
from armillary.doors.mongo.commands.fail_points import FailPoints
from armillary.doors.mongo.errors import out_of_time
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.reading.cursors import Cursors
from armillary.doors.mongo.replica_set.membership import Membership
from armillary.doors.mongo.sessions.authentication import Authenticator
from armillary.doors.mongo.sessions.cluster_time import ClusterTime
from armillary.doors.mongo.sessions.sessions import Session, Sessions
from armillary.doors.mongo.sessions.transactions import Transaction
from armillary.doors.mongo.settings import Grant, MongoSettings, ProfilingLevels
from armillary.doors.mongo.wire.answers import Elements, Reply
from armillary.doors.mongo.wire.messages import Request
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, type_name
from armillary.model.keys import Key

__all__ = ["Call", "Elements", "Reply"]

_NOT_IN_DATABASES: Final = frozenset('/\\. "$*<>:|?\x00')
_DATABASE_BYTES_MAX: Final = 63
_NAMESPACE_BYTES_MAX: Final = 255


class Stream(Protocol):
    """An open change stream, as other commands see it."""

    def covers(self, database: str, collection: str) -> bool: ...
    async def tell(self, kind: str, database: str, collection: str, extra: Document) -> None: ...


class Others(Protocol):
    """The doors of the other processes of a server (`elsewhere/other_doors.py`)."""

    async def gather(self, call: Call, command: Document | None = None) -> list[Document]: ...
    async def killed_cursors(self, call: Call) -> dict[int, bool]: ...
    async def share_fail_points(self, fail_points: FailPoints) -> None: ...


class Services(Protocol):
    """What commands use of the server beside their own call: `MongoDoor` offers it."""

    account: Account
    settings: MongoSettings
    machine: Clock  # the time that work takes, even if the account's clock is moved
    throttle: SignInThrottle | None
    authenticator: Authenticator
    cluster_time: ClusterTime
    cursors: Cursors[Call]
    open_transactions: set[Transaction]
    streams: set[Stream]
    fail_points: FailPoints
    profiler: ProfilingLevels
    process_id: ObjectId
    membership: Membership | None  # of a replica set of several nodes

    @property
    def others(self) -> Others | None: ...
    @property
    def commands(self) -> Mapping[str, Command]: ...
    @property
    def grant_of_strangers(self) -> Grant: ...
    @property
    def all_sessions(self) -> tuple[Sessions, Sessions]: ...
    @property
    def uptime_s(self) -> float: ...
    @property
    def connection_count(self) -> int: ...
    @property
    def connections_total(self) -> int: ...
    @property
    def running_count(self) -> int: ...
    @property
    def command_total(self) -> int: ...
    @property
    def open_transaction_count(self) -> int: ...
    def counted(self, name: str) -> int: ...
    def address_of(self, client: Client) -> str: ...
    def sessions_of(self, client: Client) -> Sessions: ...
    async def end_session(self, sessions: Sessions, session_id: bytes) -> None: ...
    async def is_watched(self, database: str, collection: str) -> bool: ...
    async def announce(self, kind: str, database: str, collection: str, **extra: Any) -> None: ...
    async def end_cursors(self, namespace: str, reason: str) -> None: ...
    def running_commands(self, asking: Client) -> list[Document]: ...
    def kill(self, number: int) -> None: ...


class RetryableWrite:
    """The session and the number of a retryable write: what its statements were answered before, and the records of
    those that are done now."""

    def __init__(self, session_id: bytes, number: int) -> None:
        self.session_id = session_id
        self.number = number

    async def known(self, container: Container) -> dict[int, bytes]:
        """Statements that were done before, with their answers."""
        return await document_operations.recorded(container, self.session_id, self.number)

    def record(self, statements: tuple[int, ...], answers: tuple[bytes, ...] | None = None) -> RetryRecord:
        return document_operations.retry_record(self.session_id, self.number, statements, answers)


class Call:
    __slots__ = (
        "account",
        "body",
        "charge_ru",
        "client",
        "clock",
        "database",
        "deadline_s",
        "documents_examined",
        "documents_returned",
        "extra",
        "fields",
        "is_forwarded",
        "is_killed",
        "is_stream",
        "javascript",
        "keys_examined",
        "login",
        "meets_fail_points",
        "name",
        "needs_primary",
        "past",
        "past_time",
        "raw_body",
        "reads_past",
        "retryable",
        "sequences",
        "services",
        "session",
        "slices",
        "statements",
        "transaction",
        "txn_number",
    )

    def __init__(self, services: Services, client: Client, name: str, request: Request) -> None:
        self.services = services
        self.account: Account = services.account
        self.clock: Clock = services.account.clock
        self.client = client
        # Of the command, not of the connection: a cursor outlives the login of the connection that opened it.
        self.login = client.login
        self.name = name
        self.body: Document = request.body
        self.raw_body = request.raw_body
        self.sequences = request.sequences
        self.statements: list[Document] | None = None  # of a write, if already decoded
        self.fields = Fields(request.body, name)
        self.database = database_of(request.body)
        self.session: Session | None = None
        self.txn_number: int | None = None
        self.retryable: RetryableWrite | None = None
        self.transaction: Transaction | None = None
        self.reads_past = False  # reads a snapshot outside of a transaction
        self.past: PastAccount | None = None  # the snapshot that it reads
        self.past_time: Timestamp | None = None
        self.charge_ru = 0.0
        self.documents_examined = self.keys_examined = 0
        self.documents_returned: int | None = None  # of a batch; None: the command returns none
        self.slices = 0  # of evaluation since the last page was read
        self.deadline_s: float | None = None  # on the machine's clock
        self.is_killed = False  # by killOp
        self.is_forwarded = False  # from or to another process
        self.meets_fail_points = False  # although it comes from another process
        self.is_stream = False  # the next events of a change stream
        self.needs_primary = False  # its answer is that of a node that leads
        self.javascript: Callable[[Document], Any] | None = None  # runs its functions, once it has called one
        self.extra: Document | None = None  # fields at the end of the answer, such as writeConcernError

    # The collection.

    def collection(self, field: str | None = None) -> str:
        """The collection that the command names in its first field."""
        value = self.body.get(field or self.name)
        if type(value) is not str:
            raise refusal(73, f"collection name has invalid type {type_name(value)}")
        return check_collection(self.database, value)

    @property
    def namespace(self) -> str:
        return f"{self.database}.{self.body.get(self.name)}"

    async def scoped(self, container: Container, key: Key | None) -> Container:
        """The container as the command's transaction sees it, or as it was when the command's snapshot was taken.
        `key`: which logical partition the command is about; None: it names none."""
        if self.past is not None:
            then = await self.past.of(container)
            if then is None:
                raise refusal(
                    246,
                    f"Unable to read from a snapshot due to pending collection catalog changes to '{container.name}'; "
                    "please retry the operation.",
                )
            return then
        if self.transaction is None:
            return container
        return await self.transaction.within(container, key)

    # Time and work.

    @property
    def time_left_s(self) -> float | None:
        return None if self.deadline_s is None else max(0.0, self.deadline_s - self.services.machine.elapsed_s())

    def check_time(self) -> None:
        """Raise if the command was killed or is past its deadline."""
        self.check_killed()
        if self.deadline_s is not None and self.services.machine.elapsed_s() > self.deadline_s:
            raise out_of_time()

    def check_work(self) -> None:
        """The same after each slice of evaluation, whose number between two pages is limited."""
        self.check_time()
        self.slices += 1
        if self.slices * limits.WORK_SLICE_UNITS > limits.WORK_REQUEST_UNITS_MAX:
            raise Failure(
                Kind.TIMED_OUT,
                f"The command needs more than {limits.WORK_REQUEST_UNITS_MAX // 10_000_000} seconds to evaluate its "
                "expressions over the documents of one page. Filter before it, or make its arrays shorter.",
                details={"code": 50},
            )

    def run_javascript(self, request: Document) -> Any:
        """Run a function that the command carries, in another process."""
        if self.javascript is None:
            self.javascript = document_functions(self.account, self.database)
        return self.javascript(request)

    def check_killed(self) -> None:
        if self.is_killed:
            raise refusal(11601, "operation was interrupted")

    def spend(self, charge_ru: float) -> None:
        self.charge_ru += charge_ru

    def examine(self, documents: int, charge_ru: float, *, is_keyed: bool) -> None:
        """Count the documents that were read for a page, and its charge. `is_keyed`: through an index."""
        self.slices = 0
        self.charge_ru += charge_ru
        self.documents_examined += documents
        if is_keyed:
            self.keys_examined += documents


@dataclass(frozen=True, slots=True)
class Command:
    """An entry of the table of commands."""

    run: Callable[[Call], Coroutine[Any, Any, Reply]]
    note: str
    is_open: bool = False  # to clients that have not authenticated
    writes: bool = False
    acts_on_others: bool = False  # on other clients' sessions, or on the server: not with a key that may only read
    is_admin: bool = False  # on the admin database only
    is_stable: bool = False  # of API version 1
    is_retryable: bool = False
    is_local: bool = False  # about this node, not about what is stored: every member of a replica set answers
    is_ending: bool = False  # ends a transaction
    fields: frozenset[str] | None = None  # None: unknown fields are ignored

    @property
    def needs_primary(self) -> bool:
        return (self.writes and not self.is_local) or self.is_ending


def read_only(call: Call) -> Failure:
    return refusal(13, f"not authorized on {call.database} to execute command {call.name}: the key may only read")


def database_of(body: Document) -> str:
    name = body.get("$db")
    if name is None:
        raise refusal(40571, "OP_MSG requests require a $db argument")
    if type(name) is not str:
        raise refusal(14, f"BSON field '$db' is the wrong type '{type_name(name)}', expected type 'string'")
    return name


def check_database(name: str) -> str:
    is_short = 0 < len(name.encode("utf-8", "replace")) <= _DATABASE_BYTES_MAX
    if not is_short or (_NOT_IN_DATABASES & set(name) and name != "$external"):
        raise refusal(73, f"Invalid database name: '{name[:100]}'")
    return name


def check_collection(database: str, name: str) -> str:
    namespace = f"{database}.{name}"
    if not name or "\x00" in name or name.startswith("."):
        raise refusal(73, f"Invalid namespace specified '{namespace[:300]}'")
    if len(namespace.encode("utf-8", "replace")) > _NAMESPACE_BYTES_MAX:
        raise refusal(73, f"Fully qualified namespace is too long. Namespace: {namespace[:300]} Max: 255")
    return name
