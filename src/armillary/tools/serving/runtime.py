"""What an operator changes while the server runs: read-only mode, the level of the log, the logs of requests, the
disk's reserve. The control API changes it (`PUT runtime`), and so does SIGHUP from the settings.

Also the watch over the event loop's lag and over the disk, which is warned about before it is full.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from armillary import audit, limits
from armillary.account.account import Account
from armillary.account.security.credentials import Credentials
from armillary.account.server_figures import disk_warning, storage_of
from armillary.clock import Clock
from armillary.net.listen import Listener
from armillary.net.requests.request_watch import Answered, LoopLag, RequestWatch
from armillary.tools.serving.request_log import RequestLog
from armillary.tools.serving.tls import DoorTls
from armillary.tools.settings import OPTIONS, Settings

log = logging.getLogger("armillary")

_DISK_EVERY: Final = 20  # looks at the loop's lag
_OPTION_OF: Final = {
    "readOnly": "read-only",
    "logLevel": "log-level",
    "logRequests": "log-requests",
    "logSlowMs": "log-slow",
}


class Traces(Protocol):
    """Sends spans; `tracing.py` makes it."""

    share: float

    def report(self, answered: Answered) -> None: ...


class Runtime:
    def __init__(self, settings: Settings, machine: Clock) -> None:
        self.watch = RequestWatch()
        self.loop_lag = LoopLag()
        self.request_log = RequestLog(settings.log_requests, settings.log_slow_ms)
        self.traces: Traces | None = None
        self.credentials: Credentials | None = None  # of the account that is served
        self.is_read_only = settings.is_read_only
        self.drain_s = float(settings.drain_s)
        self.log_level = settings.log_level
        self.hidden: set[str | None] = set()  # what the log must not hold
        self._tls: DoorTls | None = None
        self._listeners: Mapping[str, Listener] = {}
        self._machine = machine
        self._account: Account | None = None
        self._reserve_bytes = settings.reserve_bytes()
        self._warned_s = float("-inf")
        self._warned_of_full = False
        self._task: asyncio.Task[None] | None = None

    def adopt(self, account: Account) -> None:
        """An account is served: it obeys what is set now."""
        self._account = account
        self._apply()

    def serves(self, tls: DoorTls, listeners: Mapping[str, Listener]) -> None:
        """The ports are open."""
        self._tls, self._listeners = tls, listeners

    async def reload_certificate(self) -> None:
        if self._tls is not None:
            await self._tls.reload(self._listeners)

    def use_keys(self, *given: str | None) -> None:
        """The account's keys were changed in the settings."""
        self.hidden.update(given)
        if self.credentials is not None:
            self.credentials.use_given(given)

    def trace(self, traces: Traces) -> None:
        self.traces = traces
        self._apply()

    def _apply(self) -> None:
        reports: list[Callable[[Answered], None]] = [self.request_log.report] if self.request_log.is_on else []
        if self.traces is not None:
            reports.append(self.traces.report)
        self.watch.tell(reports)
        account = self._account
        if account is not None:
            account.is_read_only = self.is_read_only
            account.note_details(self.request_log.wants_details or self.traces is not None)
            keep_free = getattr(account.engine, "keep_free", None)  # None: everything is in memory
            if keep_free is not None:
                keep_free(self._reserve_bytes)

    # Changing it.

    def shown(self) -> dict[str, Any]:
        return {
            "readOnly": self.is_read_only,
            "logLevel": self.log_level,
            "logRequests": self.request_log.requests,
            "logSlowMs": self.request_log.slow_ms,
        }

    def change(self, changes: Mapping[str, Any]) -> None:
        """By the names of `shown`. Raises ValueError with what is expected."""
        parsed: dict[str, Any] = {}
        for name, value in changes.items():
            option = OPTIONS[_OPTION_OF[name]]
            try:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                parsed[name] = option.parse(text)
            except ValueError:
                raise ValueError(f"'{name}' must be {option.expected}.") from None
        self._set(
            is_read_only=parsed.get("readOnly", self.is_read_only),
            log_level=parsed.get("logLevel", self.log_level),
            requests=parsed.get("logRequests", self.request_log.requests),
            slow_ms=parsed.get("logSlowMs", self.request_log.slow_ms),
        )

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Have those of the first process, by the names of `shown`."""
        self._set(
            is_read_only=settings["readOnly"],
            log_level=settings["logLevel"],
            requests=settings["logRequests"],
            slow_ms=settings["logSlowMs"],
            is_told=False,
        )

    def use(self, settings: Settings, *, is_told: bool = True) -> None:
        """The settings were read again."""
        self._reserve_bytes = settings.reserve_bytes()
        self.drain_s = float(settings.drain_s)
        if self.traces is not None:
            self.traces.share = settings.tracing_share
        self._set(
            is_read_only=settings.is_read_only,
            log_level=settings.log_level,
            requests=settings.log_requests,
            slow_ms=settings.log_slow_ms,
            is_told=is_told,
        )

    def _set(self, *, is_read_only: bool, log_level: str, requests: str, slow_ms: int, is_told: bool = True) -> None:
        before = self.shown()
        self.is_read_only = is_read_only
        if log_level != self.log_level:
            self.log_level = log_level
            logging.getLogger().setLevel(log_level.upper())
        self.request_log.requests, self.request_log.slow_ms = requests, slow_ms
        self._apply()
        changed = {name: value for name, value in self.shown().items() if value != before[name]}
        if changed and is_told:
            audit.record("runtime.changed", **changed)

    # Watching.

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep_watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _keep_watch(self) -> None:
        looks = 0
        while True:
            begun_s = self._machine.elapsed_s()
            await self._machine.sleep(limits.LOOP_LAG_SECONDS)
            self.loop_lag.note(self._machine.elapsed_s() - begun_s - limits.LOOP_LAG_SECONDS)
            looks += 1
            if looks % _DISK_EVERY == 1:
                try:
                    self.look_at_disk()
                except Exception:  # the watch must not end with it
                    log.exception("the disk could not be looked at")

    def look_at_disk(self) -> None:
        """Warn in the log: at once when the disk becomes full, and else once in ten minutes."""
        figures = storage_of(self._account) if self._account is not None else None
        warning = disk_warning(figures)
        is_full = figures is not None and figures.is_full
        now_s = self._machine.elapsed_s()
        if warning is None:
            if self._warned_s > float("-inf"):
                log.warning("the disk of the data directory has room again")
            self._warned_s, self._warned_of_full = float("-inf"), False
        elif now_s - self._warned_s >= limits.FREE_DISK_WARNING_SECONDS or is_full != self._warned_of_full:
            self._warned_s, self._warned_of_full = now_s, is_full
            log.log(logging.ERROR if is_full else logging.WARNING, "%s", warning)
