"""Which host names are this server's, and which pages may send requests to it.

Against cross-site requests and DNS rebinding: where the account's key is the well-known one, as on loopback, only the
Host and Origin headers tell such requests from others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

# Names of the host machine as containers see it; `internal` is a domain that is never registered.
_OF_CONTAINERS: Final = frozenset(("host.docker.internal", "gateway.docker.internal", "host.containers.internal"))
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443"}
# What forms and scripts of a page may POST to another site without asking it first; no client of ours does.
SIMPLE_MEDIA_TYPES: Final = frozenset((b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data"))

FOREIGN_HOST: Final = (
    "The request is for another host than this machine. Use localhost or 127.0.0.1, or start the server with "
    "--advertise and the name."
)
FOREIGN_ORIGIN: Final = "The request comes from a page of another origin."
SIMPLE_MEDIA: Final = "The body is of a type that is not read here: send 'Content-Type: application/json'."


class HostNames:
    """The names under which a server is reached.

    `names`: further ones that its operator gave, without ports. On loopback nothing else is taken but names of this
    machine. A server for other machines is reached under names that it cannot know: with a secret key it takes all of
    them; with the well-known key it takes those that cannot be a name on the internet.
    """

    def __init__(self, names: Iterable[str] = (), *, is_public: bool = False, is_key_known: bool = True) -> None:
        self._names = frozenset([_name_of(name.lower()) for name in names])
        self._is_public = is_public
        self.takes_all = is_public and not is_key_known

    def is_ours(self, host: str) -> bool:
        """Of a Host header: a name or address, with or without port."""
        if self.takes_all:
            return True
        name = _name_of(host.lower())
        if name == "localhost" or name.endswith(".localhost") or name in self._names or name in _OF_CONTAINERS:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            # A name without a dot is one of the local network, as that of a container; no site can have it.
            return self._is_public and bool(name) and "." not in name
        mapped = getattr(address, "ipv4_mapped", None)
        return self._is_public or (mapped or address).is_loopback

    def is_own_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this origin belongs to the host that a request is for, or to a name that was given."""
        scheme, separator, authority = origin.lower().partition("://")
        if not separator or not authority:
            return False
        port = _DEFAULT_PORTS.get(scheme, "")
        if authority.removesuffix(port) == host.lower().removesuffix(port):
            return True
        return _name_of(authority) in self._names

    def is_welcome(self, host: bytes, origin: bytes | None) -> bool:
        """Both at once, as they stand in the headers."""
        if self.takes_all:
            return True
        named = host.decode("latin-1")
        return self.is_ours(named) and (origin is None or self.is_own_origin(origin.decode("latin-1"), named))


ANY_HOST: Final = HostNames(is_public=True, is_key_known=False)


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0].removesuffix(".")
