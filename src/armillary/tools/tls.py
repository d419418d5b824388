"""The TLS contexts of a server by its settings: the operator's certificate or the development certificate, and their
reload on SIGHUP. How a context is made of files is left to `net/tls.py` and `net/certificate.py`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

from armillary.clock import Clock
from armillary.errors import Failure
from armillary.net.certificate import CERTIFICATE_FILE, development_context, log_certificate
from armillary.net.listen import Listener
from armillary.net.tls import TlsFiles, ask_for_client_certificate, operator_context
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")


class DoorTls:
    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._loaded: dict[str, ssl.SSLContext] = {}

    async def check(self) -> None:
        """Load the operator's files, and where TLS is required the certificate too, before any door opens: a server
        that cannot serve TLS is not to start."""
        settings = self._settings
        if settings.tls_certificate is not None or settings.tls_client_ca is not None or settings.requires_tls:
            self._loaded = await asyncio.get_running_loop().run_in_executor(None, self._load)

    def of(self, door: str) -> Callable[[], ssl.SSLContext]:
        """How a door gets its context, with the first TLS connection."""
        return lambda: self._loaded.pop(door, None) or self._context(door)

    @property
    def certificate_file(self) -> Path | None:
        """The file whose first certificate clients see; None: it is in no file."""
        settings = self._settings
        if settings.tls_certificate is not None:
            return settings.tls_certificate.resolve()
        return None if settings.is_in_memory else settings.directory.resolve() / CERTIFICATE_FILE

    def reload_on_hangup(self, listeners: Mapping[str, Listener]) -> None:
        """On SIGHUP read the operator's files again. Without such files the signal ends the process, as always."""
        if self._settings.tls_certificate is None:
            return
        loop = asyncio.get_running_loop()
        running: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = loop.create_task(self._reload(listeners))
            running.add(task)
            task.add_done_callback(running.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)

    async def _reload(self, listeners: Mapping[str, Listener]) -> None:
        try:
            contexts = await asyncio.get_running_loop().run_in_executor(None, self._load)
        except Failure as failure:
            log.error("%s The certificate that was loaded before stays in use.", failure.message)
            return
        for door, listener in listeners.items():
            listener.use_tls(contexts[door])
        log.warning("TLS certificate and key were read again")

    def _load(self) -> dict[str, ssl.SSLContext]:
        settings = self._settings
        sql, other = self._context("sql"), self._context("")
        if settings.tls_certificate is not None:
            log_certificate(settings.tls_certificate, settings.named_hosts, self._clock)
        return {"sql": sql, "table": other, "mongo": other, "gremlin": other}

    def _context(self, door: str) -> ssl.SSLContext:
        settings = self._settings
        if settings.tls_certificate is not None and settings.tls_key is not None:
            files = TlsFiles(settings.tls_certificate, settings.tls_key)
            context = operator_context(files)
        else:
            directory = None if settings.is_in_memory else settings.directory
            context = development_context(directory, settings.named_hosts, clock=self._clock)
        if door == "sql" and settings.tls_client_ca is not None:  # the control API is on this port
            ask_for_client_certificate(context, settings.tls_client_ca)
        return context
