"""Connections to PostgreSQL for the replicated log: the primary is found among several hosts, each new session gets its
settings and is checked, and a session that met anything unexpected is never used again.

A statement is not cancelled: PostgreSQL reports a commit as done when the wait for its standbys is cancelled. A peer
that is gone is found by TCP, a primary that was replaced by asking the other hosts for a higher timeline, and then the
connection is cut. A node that stops in the middle of a statement keeps its locks on the server: a call that waits for
them ends that node's session.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from armillary import limits
from armillary.limits import LOG_CONNECT_SECONDS, LOG_KEEPALIVE_SECONDS
from armillary.storage.log import postgres_statements as sql
from armillary.storage.log.postgres_checks import APPLICATION_NAME, Plans, check, facts_of, set_up
from armillary.storage.log.postgres_schema import identity_of
from armillary.storage.log.replicated_log import NO_LOG, OTHER_LOG, LogRefused, LogUnavailable

_log = logging.getLogger("armillary.storage")
T = TypeVar("T")

_NO_ANSWER = (
    "PostgreSQL did not answer in time. It waits if no server that synchronous_standby_names lists is connected"
)
_SCHEMES = ("postgresql", "postgres")


def driver() -> Any:
    try:
        import asyncpg
    except ImportError:
        raise LogRefused(
            "The replicated log needs asyncpg, which is not installed: pip install 'armillary[cluster]'."
        ) from None
    return asyncpg


def host_urls(url: str) -> list[str]:
    """One URL for each host of a URL with several: `postgresql://user@a:5432,b:5433/database`."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise LogRefused("The address of the replicated log must begin with postgresql://.")
    user, at, hosts = parts.netloc.rpartition("@")
    # The primary is looked for here, one host after the other, each within its own time.
    options = [each for each in parts.query.split("&") if each and not each.startswith("target_session_attrs=")]
    rest = parts._replace(query="&".join(options))
    return [rest._replace(netloc=user + at + host).geturl() for host in hosts.split(",")]


class Session:
    """A connection whose server was found fit."""

    def __init__(self, connection: Any, url: str, timeline: int) -> None:
        self.connection = connection
        self.url = url
        self.timeline = timeline
        self.warning: str | None = None
        self.logs: set[int] = set()  # that have the generation which this node knows
        self.tables_ends: dict[int, int] = {}  # by log: the first seq that may have no table
        self.checked_s = float("-inf")  # when its server's configuration was found good
        self.reason: str | None = None  # why it was cut
        connection.add_log_listener(self._warn)

    def _warn(self, connection: Any, message: Any) -> None:
        self.warning = str(message)

    def cut(self, reason: str | None = None) -> None:
        self.reason = self.reason or reason
        self.connection.terminate()


class Connector:
    """Opens sessions on the primary."""

    def __init__(self, url: str, log: int, *, allows_single: bool) -> None:
        self._driver = driver()
        self._urls = host_urls(url)  # the one of the primary first, as far as it is known
        self._log = log
        self._allows_single = allows_single
        self.timeline = 0  # the highest that was seen: a primary of an earlier one was replaced
        self.generation: bytes | None = None  # of the log, once it is known
        # The last is what the driver raises for a connection on which the server has announced its end.
        self.errors = (
            OSError,
            self._driver.PostgresError,
            self._driver.InterfaceError,
            self._driver.InternalClientError,
        )
        self.is_locked = self._driver.LockNotAvailableError

    async def connect(self, plans: Plans) -> Session:
        """Raises LogRefused if a primary was found that must not be used, else LogUnavailable if there is none."""
        reasons: list[str] = []
        refusal: LogRefused | None = None
        for url in list(self._urls):
            try:
                return await self._connect(url, plans)
            except LogRefused as error:
                refusal = error
            except LogUnavailable as error:
                reasons.append(str(error))
        if refusal is not None:
            raise refusal
        raise LogUnavailable("no primary of PostgreSQL answers: " + "; ".join(reasons))

    def is_broken(self, connection: Any, error: Exception) -> bool:
        """Whether an exception means that the connection broke. When a connection is cut between two steps of one
        statement, the driver raises what it happens to stumble over."""
        return isinstance(error, self.errors) or bool(connection.is_closed())

    async def check(self, session: Session) -> None:
        """Check a server again: its configuration may have been changed and reloaded."""
        facts = await facts_of(session.connection)
        check(facts, allows_single=self._allows_single)

    async def is_replaced(self, session: Session) -> bool:
        """Whether another host was promoted after the session's."""
        for url in [each for each in self._urls if each != session.url]:
            if self.timeline > session.timeline:
                break
            try:
                (await self._connect(url, Plans.CUSTOM)).cut()
            except LogUnavailable:
                continue
        return self.timeline > session.timeline

    async def end_stuck(self, session: Session) -> None:
        """End the sessions of nodes that have stopped while they hold what the session waits for."""
        try:
            asking = await self._connect(session.url, Plans.CUSTOM)
        except (LogUnavailable, LogRefused):
            return
        limit = asyncio.get_running_loop().call_later(LOG_CONNECT_SECONDS, asking.cut)
        arguments = (session.connection.get_server_pid(), limits.LOG_STUCK_SECONDS, APPLICATION_NAME)
        try:
            ended = await asking.connection.fetch(sql.END_STUCK, *arguments)
        except Exception as error:
            if not self.is_broken(asking.connection, error):
                raise
            return
        finally:
            limit.cancel()
            asking.cut()
        if ended:
            _log.warning("ended sessions in PostgreSQL of a node that stopped while this one waited: %d", len(ended))

    async def _connect(self, url: str, plans: Plans) -> Session:
        try:
            # Text of a driver's own error for a malformed URL is of no use to an operator.
            connection = await self._driver.connect(url, timeout=LOG_CONNECT_SECONDS, target_session_attrs="any")
        except ValueError:
            raise LogRefused("The address of the replicated log is malformed.") from None
        except (*self.errors, TimeoutError) as error:
            raise LogUnavailable(_text(error)) from None
        limit = asyncio.get_running_loop().call_later(LOG_CONNECT_SECONDS, connection.terminate)
        is_fit = False
        try:
            timeline = await self._prepare(connection, plans)
            is_fit = True
        except LogUnavailable:
            raise
        except Exception as error:
            if not self.is_broken(connection, error):
                raise
            raise LogUnavailable(_text(error)) from None
        finally:
            limit.cancel()
            if not is_fit:
                connection.terminate()
        self._urls.sort(key=lambda each: each != url)
        self.timeline = max(self.timeline, timeline)
        session = Session(connection, url, timeline)
        if self.generation is not None:
            session.logs.add(self._log)
        return session

    async def _prepare(self, connection: Any, plans: Plans) -> int:
        """Set up and check a new session. Returns the timeline of its server."""
        _find_dead_peers(connection)
        await set_up(connection, plans)
        facts = await facts_of(connection)
        check(facts, allows_single=self._allows_single)
        if facts.timeline < self.timeline:
            raise LogUnavailable("the server was the primary before another one was promoted")
        if self.generation is not None:
            await check_generation(connection, self._log, self.generation)
        return facts.timeline


async def check_generation(connection: Any, log: int, generation: bytes) -> None:
    """Raises LogRefused if a server has another log, or none."""
    identity = await identity_of(connection, log)
    if identity is None:
        raise LogRefused(NO_LOG)
    if identity[0] != generation:
        raise LogRefused(OTHER_LOG)


class Lane:
    """One session, for one call at a time, opened when it is needed. Calls that take longer than the limit are given
    up; their outcome is unknown then."""

    def __init__(self, connector: Connector, limit_s: float | None, plans: Plans = Plans.CUSTOM) -> None:
        self._connector = connector
        self._plans = plans
        self._limit_s = limit_s
        self._session: Session | None = None
        self._lock = asyncio.Lock()
        self._rests = False  # the session is not needed after this call
        self._is_closed = False

    async def run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Call `work` with the session. Raises LogUnavailable if its outcome is unknown: an error, a warning of the
        server, no answer."""
        async with self._lock:
            session = await self._open()
            is_sound = False
            try:
                result = await self._watched(session, work)
                if session.warning is not None:
                    raise LogUnavailable(session.warning)
                is_sound = True
                return result
            except LogUnavailable:
                raise
            except Exception as error:
                if not self._connector.is_broken(session.connection, error):
                    raise
                raise LogUnavailable(session.reason or _text(error)) from None
            finally:
                if not is_sound or self._rests:
                    self._session = None
                    session.cut()
                self._rests = False

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        async def work(session: Session) -> list[Any]:
            found: list[Any] = await session.connection.fetch(statement, *arguments)
            return found

        return await self.run(work)

    def cut(self, reason: str) -> None:
        """End the session, also if a call uses it: its outcome is unknown then. The next call opens another one."""
        if self._session is not None:
            self._session.cut(reason)

    def rest(self) -> None:
        """End the session, but only after the call that uses it. The next call opens another one."""
        if self._lock.locked():
            self._rests = True
        elif self._session is not None:
            self._session.cut()
            self._session = None

    def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            self._session.cut()

    async def _open(self) -> Session:
        self._check_open()
        if self._session is not None and self._session.timeline < self._connector.timeline:
            self._session.cut()
        if self._session is None or self._session.connection.is_closed():
            self._session = await self._connector.connect(self._plans)
            if self._is_closed:
                self._session.cut()
            self._check_open()
        return self._session

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogUnavailable("the log is closed")

    async def _watched(self, session: Session, work: Callable[[Session], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        watches: list[asyncio.Task[None]] = []
        timers = [
            loop.call_later(limits.LOG_PRIMARY_SECONDS, lambda: watches.append(loop.create_task(self._watch(session)))),
        ]
        if self._limit_s is not None:
            timers.append(loop.call_later(self._limit_s, session.cut, _NO_ANSWER))
        try:
            return await work(session)
        finally:
            for timer in timers:
                timer.cancel()
            for watch in watches:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)

    async def _watch(self, session: Session) -> None:
        """Cut the session if its server is not the primary any more: a server that is stopped or cut off from its
        standbys keeps its connections and answers none of them. If it waits for a node that has stopped, end that."""
        while True:
            _, is_replaced = await asyncio.gather(
                self._connector.end_stuck(session), self._connector.is_replaced(session)
            )
            if is_replaced:
                break
            await asyncio.sleep(limits.LOG_PRIMARY_SECONDS)
        session.cut("another server was promoted")


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _find_dead_peers(connection: Any) -> None:
    """Let TCP end a connection whose peer is gone, both while nothing is sent and while what was sent is not
    acknowledged."""
    pair = connection._transport.get_extra_info("socket")  # the driver has no public way to it
    if pair is None or pair.family == socket.AF_UNIX:
        return
    with socket.socket(fileno=os.dup(pair.fileno())) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, LOG_KEEPALIVE_SECONDS)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOG_KEEPALIVE_SECONDS * 1000)
