"""SIGHUP: the settings are read again from their sources, with the certificate. Settings that can change at run time
take effect; the log names those that need a restart. Settings that cannot be read or do not fit leave everything as it
is.

Keys are settings like others here: whatever `resolve` finds, in the file, the environment or files of keys.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from armillary.clock import Clock
from armillary.errors import Failure
from armillary.tools.exposure import keys_of
from armillary.tools.resolve import check_exposure
from armillary.tools.serving import supervision
from armillary.tools.serving.operating_settings import RELOADED
from armillary.tools.settings import OPTIONS, Settings

if TYPE_CHECKING:  # the supervisor of several processes has none, and imports little
    from armillary.tools.serving.runtime import Runtime

log = logging.getLogger("armillary")

Reread = Callable[[], Settings]

# The account's keys: they are replaced while clients stay connected.
_KEYS: Final = ("key", "secondary-key", "read-only-key", "secondary-read-only-key")


class Reload:
    def __init__(self, settings: Settings, reread: Reread, runtime: Runtime, machine: Clock) -> None:
        self._settings = settings
        self._reread = reread
        self._runtime = runtime
        self._machine = machine

    def on_hangup(self) -> None:
        obey_hangups(self._settings, self._machine, self.reload)

    async def reload(self) -> None:
        try:
            settings = await asyncio.to_thread(self._reread)
            check_exposure(settings)
        except Failure as failure:
            log.error("The settings stay as they are: %s", failure.message)
            return
        await use_reread(self._settings, settings, self._runtime)
        log_changes(self._settings, settings)
        self._settings = settings


async def use_reread(former: Settings, settings: Settings, runtime: Runtime, *, is_told: bool = True) -> None:
    """Have a process obey those that can change at run time, and its certificate. `is_told`: whether the security log
    is told."""
    await runtime.reload_certificate()
    if keys_of(settings) != keys_of(former):
        runtime.use_keys(*keys_of(settings))
    runtime.use(settings, is_told=is_told)


def obey_hangups(settings: Settings, machine: Clock, reload: Callable[[], Awaitable[None]]) -> None:
    """Obey SIGHUP from now on. Without a file to read again, and without a service manager, the signal ends the
    process, as it does when the terminal of a server is closed."""
    has_files = settings.has_secret_files or settings.config is not None or settings.tls_certificate is not None
    if has_files or supervision.is_supervised():
        try:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _Hangups(machine, reload).begin)
        except (AttributeError, NotImplementedError):  # Windows has no such signal
            log.info("changed settings and renewed certificates are read when the server is started again")


class _Hangups:
    def __init__(self, machine: Clock, reload: Callable[[], Awaitable[None]]) -> None:
        self._machine = machine
        self._reload = reload
        self._running: asyncio.Task[None] | None = None
        self._is_due = False

    def begin(self) -> None:
        self._is_due = True
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._is_due:  # a signal that comes meanwhile is obeyed afterwards
            self._is_due = False
            supervision.reloading(self._machine)
            try:
                await self._reload()
            except Exception:
                log.exception("the settings could not be read again")
            supervision.tell(supervision.READY)
        self._running = None


def log_changes(former: Settings, settings: Settings) -> None:
    changed = [name for name in OPTIONS if _value(settings, name) != _value(former, name)]
    applied = [name for name in changed if _is_reloaded(name)]
    log.warning("settings were read again; changed: %s", ", ".join(applied) or "none")
    fixed = [name for name in changed if not _is_reloaded(name)]
    if fixed:
        log.warning("these settings have changed and need a restart: %s", ", ".join(fixed))


def with_reloaded(former: Settings, settings: Settings) -> Settings:
    """The settings of a server in which those are changed that are used without a restart."""
    reloaded: dict[str, Any] = {
        OPTIONS[name].attribute: _value(settings, name) for name in OPTIONS if _is_reloaded(name)
    }
    return replace(former, **reloaded)


def _is_reloaded(name: str) -> bool:
    return name in RELOADED or name in _KEYS


def _value(settings: Settings, name: str) -> object:
    return getattr(settings, OPTIONS[name].attribute)
