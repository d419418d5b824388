"""The TLS contexts of a server by its settings: the operator's certificate or the development certificate, and their
reload. How a context is made of files is left to `net/tls.py` and `net/certificate.py`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from armillary.clock import Clock
from armillary.errors import Failure
from armillary.net.certificate import (
    CERTIFICATE_FILE,
    context_of,
    development_context,
    ensure_certificate,
    log_certificate,
    make_certificate,
    public_part,
)
from armillary.net.listen import Listener
from armillary.net.tls import TlsFiles, ask_for_client_certificate, operator_context
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")

_CONTROLLED: Final = ("sql", "management", "portal")  # the ports on which control keys are used


class DoorTls:
    def __init__(self, settings: Settings, clock: Clock, in_memory: tuple[bytes, bytes] | None = None) -> None:
        """`in_memory`: certificate and key that another process of a server without a directory has made."""
        self._settings = settings
        self._clock = clock
        self._loaded: dict[str, ssl.SSLContext] = {}
        self._in_memory = in_memory  # certificate and key of a server without a directory
        self._making = Lock()  # contexts are made in threads

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

    def public_certificate(self) -> bytes:
        """What clients see, with its chain, in PEM form. Makes a development certificate if there is none yet."""
        settings = self._settings
        if settings.tls_certificate is not None:
            return public_part(settings.tls_certificate)
        if settings.is_in_memory:
            return self._made_in_memory()[0]
        with self._making:
            return public_part(ensure_certificate(settings.directory, settings.named_hosts, clock=self._clock)[0])

    def shared_certificate(self) -> tuple[bytes, bytes] | None:
        """Makes the development certificate, if there is to be one, before other processes look for it. Returns it with
        its key where it is in no file."""
        settings = self._settings
        if settings.tls_certificate is not None:
            return None
        if settings.is_in_memory:
            return self._made_in_memory()
        self.public_certificate()
        return None

    def _made_in_memory(self) -> tuple[bytes, bytes]:
        """The same for all doors, so that clients need to trust one certificate."""
        with self._making:
            if self._in_memory is None:
                self._in_memory = make_certificate(self._settings.named_hosts, clock=self._clock)
            return self._in_memory

    async def reload(self, listeners: Mapping[str, Listener]) -> bool:
        """Read the operator's files again. False: they cannot be used, and those that were loaded before stay in
        use."""
        if self._settings.tls_certificate is None:
            return True
        try:
            contexts = await asyncio.get_running_loop().run_in_executor(None, self._load)
        except Failure as failure:
            log.error("%s The certificate that was loaded before stays in use.", failure.message)
            return False
        for door, listener in listeners.items():
            listener.use_tls(contexts[door])
        log.warning("TLS certificate and key were read again")
        return True

    def _load(self) -> dict[str, ssl.SSLContext]:
        settings = self._settings
        other = self._context("")
        controlled = {door: self._context(door) for door in _CONTROLLED}
        if settings.tls_certificate is not None:
            log_certificate(settings.tls_certificate, settings.named_hosts, self._clock)
        return {**dict.fromkeys(("gateway", "table", "mongo", "gremlin", "health"), other), **controlled}

    def _context(self, door: str) -> ssl.SSLContext:
        settings = self._settings
        if settings.tls_certificate is not None and settings.tls_key is not None:
            files = TlsFiles(settings.tls_certificate, settings.tls_key)
            context = operator_context(files)
        elif settings.is_in_memory:
            context = context_of(*self._made_in_memory())
        else:
            context = development_context(settings.directory, settings.named_hosts, clock=self._clock)
        if door in _CONTROLLED and settings.tls_client_ca is not None:
            ask_for_client_certificate(context, settings.tls_client_ca)
        return context
