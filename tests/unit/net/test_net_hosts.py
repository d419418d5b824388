"""Which names are a server's, by what it is open to and whether its key is a secret."""

from __future__ import annotations

import pytest

from armillary.net.hosts import ANY_HOST, HostNames

LOOPBACK = HostNames(["Db.Example.", "10.1.2.3", "fd00::7"])
KNOWN_KEY = HostNames(["db.example"], is_public=True)


@pytest.mark.parametrize(
    ("host", "on_loopback", "with_known_key"),
    [
        ("localhost:8081", True, True),
        ("LOCALHOST.", True, True),
        ("a.b.localhost", True, True),
        ("notlocalhost", False, True),
        ("127.0.0.1", True, True),
        ("[::1]:8081", True, True),
        ("[::ffff:127.0.0.1]", True, True),
        ("10.1.2.3:8081", True, True),
        ("[fd00::7]", True, True),
        ("10.1.2.4", False, True),
        ("db.example", True, True),
        ("DB.example.:8081", True, True),
        ("x.db.example", False, False),
        ("cosmos:8081", False, True),  # the name of a container
        ("host.docker.internal:8081", True, True),
        ("evil.docker.internal", False, False),
        ("evil.example", False, False),
        ("localhost.evil.example", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("2130706433", False, True),  # no browser sends it so
        ("", False, False),
    ],
)
def test_hosts(host: str, on_loopback: bool, with_known_key: bool) -> None:
    assert LOOPBACK.is_ours(host) is on_loopback
    assert KNOWN_KEY.is_ours(host) is with_known_key
    assert ANY_HOST.is_ours(host)


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://localhost:8081", "localhost:8081", True),
        ("HTTPS://LocalHost:8081", "localhost:8081", True),
        ("http://localhost", "localhost:80", True),
        ("https://localhost:443", "localhost", True),
        ("https://localhost", "localhost:80", False),
        ("http://localhost:3000", "localhost:8081", False),
        ("http://127.0.0.1:8081", "localhost:8081", False),
        ("https://db.example:9443", "localhost:8081", True),  # behind a proxy
        ("https://evil.example", "localhost:8081", False),
        ("null", "localhost:8081", False),
        ("null", "null", False),
        ("file://", "", False),
        ("", "", False),
    ],
)
def test_origins(origin: str, host: str, is_own: bool) -> None:
    assert LOOPBACK.is_own_origin(origin, host) is is_own
