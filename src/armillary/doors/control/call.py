"""One request of the control API: the names in its path, its query, its body and its answer; and the table of routes
that finds the function for a path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, unquote

import orjson

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.security.credentials import Credentials
from armillary.clock import MovableClock
from armillary.doors.control.access.authentication import NO_ACCESS, Access, ControlGuard
from armillary.doors.control.access.log_ins import LogIns
from armillary.doors.control.errors import HEADERS
from armillary.doors.control.fields import Fields
from armillary.doors.control.foresight.jobs import Jobs
from armillary.doors.control.foresight.uploads import Uploads
from armillary.doors.control.live.long_polls import LongPolls
from armillary.doors.control.snapshots.snapshot_transfers import Transfers
from armillary.errors import Failure, Kind, bad_request
from armillary.insight.load_watch import LoadWatch
from armillary.model.json_members import shown
from armillary.model.resources import ResourceType
from armillary.net.http import BareResponse, Request, Response
from armillary.net.requests.request_watch import LoopLag, RequestWatch

if TYPE_CHECKING:  # metrics are loaded when they are read
    from armillary.doors.control.metrics.metric_table import Told

Action = Callable[["Call"], Coroutine[Any, Any, Response]]


async def no_pages() -> Mapping[int, Told]:
    return {}


@dataclass(slots=True)
class ServerFacts:
    """What `tools/serving` knows of the process and its settings."""

    started_s: float = 0.0  # since the epoch
    elapsed_s: Callable[[], float] = lambda: 0.0  # since the start
    settings: Sequence[Mapping[str, Any]] = ()
    # The addresses of each door for a client that reached this server by this host name, the preferred one first.
    endpoints: Callable[[str], Mapping[str, Sequence[str]]] = lambda host: {}
    certificate: Callable[[], bytes] = bytes  # that TLS clients see, with its chain, in PEM form; reads files
    connections: Callable[[], Mapping[str, int]] = dict
    connections_max: int | None = None
    watch: RequestWatch | None = None  # counts the requests of all doors
    loop_lag: LoopLag | None = None
    runtime: Any = None  # what can be changed while the server runs: `live/server.py`
    process: Callable[[], Mapping[str, float]] = dict  # figures of the process by the names of metrics; run in a thread
    # Of the other processes of the server, by their numbers: samples of their metrics.
    other_pages: Callable[[], Awaitable[Mapping[int, Told]]] = no_pages
    # Memory and disk, which take time to find out: run in a thread.
    measured: Callable[[], Mapping[str, Any]] = field(default=dict)


class Services(Protocol):
    """What actions use of the server beside their own call: `ControlDoor` offers it."""

    account: Account
    clock: MovableClock | None  # None: it cannot be moved
    credentials: Credentials | None
    addresses: Mapping[str, str]  # of the doors, as clients reach them
    transfers: Transfers
    begun_s: float
    connection_count: Callable[[], int]
    log_ins: LogIns
    guard: ControlGuard
    facts: ServerFacts
    long_polls: LongPolls
    jobs: Jobs
    uploads: Uploads
    load_watch: LoadWatch

    def signed_in(self, address: str, credential: str) -> None:
        """For the security log."""


class Call:
    __slots__ = ("_query", "access", "account", "names", "request", "services")

    def __init__(
        self,
        services: Services,
        request: Request,
        names: list[str],
        query: Mapping[str, str],
        access: Access = NO_ACCESS,
    ) -> None:
        self.services = services
        self.access = access
        self.account = services.account
        self.request = request
        self.names = names  # those in the path, in their order
        self._query = dict(query)

    def database(self) -> Record:
        """The database that the path names."""
        name = self.names[0]
        try:
            return self.account.database(name)
        except Failure as failure:
            raise _missing_database(name, failure.kind) from None

    def container(self) -> Container:
        """The container that the path names."""
        database, name = self.names[:2]
        try:
            return self.account.container(database, name)
        except Failure as failure:
            if failure.kind not in (Kind.NOT_FOUND, Kind.OWNER_NOT_FOUND):
                raise
            if self.account.catalog.find(ResourceType.DATABASE, b"", database) is None:
                raise _missing_database(database, failure.kind) from None
            raise Failure(
                failure.kind,
                f"The container '{shown(name)}' does not exist in the database '{shown(database)}'. "
                f"`armillary containers list {shown(database)}` lists its containers.",
            ) from None

    def query(self, *known: str) -> dict[str, str]:
        """The query parameters; any but the `known` are refused."""
        for name in self._query:
            if name not in known:
                raise bad_request(f"Unknown query parameter '{shown(name)}'.")
        return self._query

    def count(self, name: str, default: int, most: int) -> int:
        """The only query parameter of the request, a number from 1 to `most`."""
        self.query(name)
        return self.whole(name, default, 1, most)

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """A query parameter that is a number. Which parameters there may be is said by `query`."""
        text = self._query.get(name, str(default))
        if len(text) > 16 or not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise bad_request(f"'{name}' must be a whole number from {low} to {high}, not '{shown(text)}'.")
        return int(text)

    def fields(self, what: str) -> Fields:
        self.query()
        request = self.request
        if len(request.body) > limits.CONTROL_BODY_BYTES_MAX:
            raise Failure(Kind.TOO_LARGE, f"The body is larger than {limits.CONTROL_BODY_BYTES_MAX} bytes.")
        # Pages of another site can send forms and plain text without a CORS preflight, but not this media type.
        media_type = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if request.body and media_type != b"application/json":
            raise Failure(Kind.UNSUPPORTED_MEDIA, "The body must be JSON: send 'Content-Type: application/json'.")
        return Fields(request.body, what)

    @staticmethod
    def answer(content: Any, status: int = 200) -> Response:
        return BareResponse(status, HEADERS, orjson.dumps(content))


def _missing_database(name: str, kind: Kind) -> Failure:
    return Failure(
        kind, f"The database '{shown(name)}' does not exist. `armillary databases list` lists those that do."
    )


class Routes:
    """The functions of the API by method and path."""

    def __init__(self, actions: Iterable[tuple[str, str, Action]]) -> None:
        """Method, path and action of each route. A path segment in braces stands for a name."""
        self._actions: dict[tuple[str, ...], dict[str, Action]] = {}
        for method, path, action in actions:
            segments = tuple("" if part.startswith("{") else part for part in path.split("/"))
            self._actions.setdefault(segments, {})[method] = action

    def find(self, method: str, path: str) -> tuple[Action, list[str]]:
        """The action for a path, and the names in the path."""
        parts = path.split("/")
        allowed: set[str] = set()
        for segments, actions in self._actions.items():
            if len(segments) != len(parts) or any(
                segment and segment != part for segment, part in zip(segments, parts, strict=True)
            ):
                continue
            if method in actions:
                return actions[method], [_name(p) for s, p in zip(segments, parts, strict=True) if not s]
            allowed |= actions.keys()
        if allowed:
            raise Failure(
                Kind.METHOD_NOT_ALLOWED,
                f"{shown(method)} is not possible here; use {' or '.join(sorted(allowed))}.",
                details={"allowed": sorted(allowed)},
            )
        raise Failure(Kind.NOT_FOUND, f"There is nothing at '{shown(path)}'; docs/control.md lists what there is.")


def _name(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise bad_request(f"'{shown(part)}' is not percent-encoded UTF-8.") from None


def read_target(target: bytes, prefix: bytes) -> tuple[str, dict[str, str]]:
    """The path after the prefix, still encoded, and the query."""
    path, _, query = target[len(prefix) :].decode("latin-1").partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=20)
    except ValueError:
        raise bad_request("The query of the address cannot be read: write NAME=VALUE pairs joined by &.") from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise bad_request("The query of the address has a parameter twice: give each once.")
    return path.strip("/"), dict(pairs)
