"""What the settings of a server mean together for its reach: whether other machines may connect, whether TLS is
required, which addresses clients are told, and which keys and tokens are accepted there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from armillary.tools import parsing

# The key that Microsoft publishes for its emulator, and the default of many clients. It is no secret, so it is for
# loopback only.
WELL_KNOWN_KEY: Final = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
# The same of Azure Storage's emulators, of the account devstoreaccount1.
STORAGE_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PUBLIC_KEYS: Final = frozenset((WELL_KNOWN_KEY, STORAGE_KEY))


class Exposure:
    """Read from the fields of `Settings`, which inherits it."""

    __slots__ = ()

    host: str
    advertise: str | None
    mongo_advertised_host: str | None
    key: str
    secondary_key: str | None
    read_only_key: str | None
    secondary_read_only_key: str | None
    allows_well_known_key: bool
    tls_certificate: Path | None
    require_tls: bool | None
    aad: str

    @property
    def is_public(self) -> bool:
        """Whether other machines may reach the doors."""
        return not parsing.is_loopback(self.host)

    @property
    def has_exposed_key(self) -> bool:
        """Whether other machines may reach the doors with a key that is known publicly."""
        keys = (self.key, self.secondary_key, self.read_only_key, self.secondary_read_only_key)
        return self.is_public and not PUBLIC_KEYS.isdisjoint(keys)

    @property
    def requires_tls(self) -> bool:
        if self.require_tls is not None:
            return self.require_tls
        return self.is_public and not self.allows_well_known_key

    @property
    def advertised_host(self) -> str | None:
        """The host of --advertise, without port and brackets."""
        return parsing.split_port(self.advertise)[0] if self.advertise is not None else None

    def advertised_address(self, port: int) -> str | None:
        """HOST:PORT as clients are to use it, with this port where --advertise names none."""
        if self.advertise is None:
            return None
        host, given = parsing.split_port(self.advertise)
        return f"{f'[{host}]' if ':' in host else host}:{given or port}"

    @property
    def mongo_address(self) -> str | None:
        """What clients of the MongoDB door are told to reach it at: HOST, or HOST:PORT if the port is not its own."""
        given = self.mongo_advertised_host or self.advertised_host
        return f"[{given}]" if given is not None and given.count(":") > 1 and "[" not in given else given

    def client_url(self, door: str, port: int) -> str:
        """Where clients reach a door that listens on this port."""
        host = self.advertised_host or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        address = f"{f'[{host}]' if ':' in host else host}:{port}"
        if door == "sql":
            address = self.advertised_address(port) or address
        elif door == "mongo" and self.mongo_address is not None:
            has_port = ":" in self.mongo_address.rpartition("]")[2]
            address = self.mongo_address if has_port else f"{self.mongo_address}:{port}"
        return f"{self.scheme(door)}://{address}"

    def scheme(self, door: str) -> str:
        """Of a door's addresses: with TLS where that is required, or has a certificate that was made for it. MongoDB's
        say by an option whether they have it, not by their scheme."""
        secure = self.requires_tls or self.tls_certificate is not None
        of_door = {"mongo": "mongodb", "gremlin": "wss" if secure else "ws", "health": "http"}
        return of_door.get(door, "https" if secure else "http")

    @property
    def named_hosts(self) -> list[str]:
        """The names besides loopback under which clients reach the server: of --host and --advertise."""
        names = [self.host] if not parsing.is_unspecified(self.host) else []
        names += [self.advertised_host] if self.advertised_host is not None else []
        return [name for name in dict.fromkeys(names) if name.lower() not in ("localhost", "127.0.0.1", "::1")]

    @property
    def accepts_aad(self) -> bool:
        return self.aad == "on" or (self.aad == "auto" and not self.is_public and self.key == WELL_KNOWN_KEY)


def keys_of(settings: Exposure) -> tuple[str | None, ...]:
    """Those that may do everything, and those that may only read."""
    return settings.key, settings.secondary_key, settings.read_only_key, settings.secondary_read_only_key
