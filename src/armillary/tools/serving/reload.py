"""SIGHUP: the settings are read again from their sources, with the certificate. Settings that can change at run time
take effect; the log names those that need a restart. Settings that cannot be read or do not fit leave everything as it
is.

Keys are settings like others here: whatever `resolve` finds, in the file, the environment or files of keys.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Final

from armillary.clock import Clock
from armillary.errors import Failure
from armillary.tools.resolve import check_exposure
from armillary.tools.serving import supervision
from armillary.tools.serving.doors import keys_of
from armillary.tools.serving.operating_settings import RELOADED
from armillary.tools.serving.runtime import Runtime
from armillary.tools.settings import OPTIONS, Settings

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
        self._running: asyncio.Task[None] | None = None
        self._is_due = False

    def on_hangup(self) -> None:
        """Obey SIGHUP from now on. Without a file to read again, and without a service manager, the signal ends the
        process, as it does when the terminal of a server is closed."""
        settings = self._settings
        has_files = settings.has_secret_files or settings.config is not None or settings.tls_certificate is not None
        if has_files or supervision.is_supervised():
            try:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._begin)
            except (AttributeError, NotImplementedError):  # Windows has no such signal
                log.info("changed settings and renewed certificates are read when the server is started again")

    def _begin(self) -> None:
        self._is_due = True
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._is_due:  # a signal that comes meanwhile is obeyed afterwards
            self._is_due = False
            supervision.reloading(self._machine)
            try:
                await self.reload()
            except Exception:
                log.exception("the settings could not be read again")
            supervision.tell(supervision.READY)
        self._running = None

    async def reload(self) -> None:
        try:
            settings = await asyncio.to_thread(self._reread)
            check_exposure(settings)
        except Failure as failure:
            log.error("The settings stay as they are: %s", failure.message)
            return
        await self._runtime.reload_certificate()
        changed = [name for name in OPTIONS if _value(settings, name) != _value(self._settings, name)]
        fixed = [name for name in changed if name not in RELOADED and name not in _KEYS]
        if any(name in _KEYS for name in changed):
            self._runtime.use_keys(*keys_of(settings))
        self._runtime.use(settings)
        self._settings = settings
        applied = [name for name in changed if name not in fixed]
        log.warning("settings were read again; changed: %s", ", ".join(applied) or "none")
        if fixed:
            log.warning("these settings have changed and need a restart: %s", ", ".join(fixed))


def _value(settings: Settings, name: str) -> object:
    return getattr(settings, OPTIONS[name].attribute)
