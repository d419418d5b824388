"""The requests of released clients, as `make clients` recorded them, are answered as they were then. No client and no
toolchain is needed.
"""

from __future__ import annotations

import gzip
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from clients.recording.exchanges import FILE_BYTES_MAX, FOLDER, SUFFIX, read_recording
from clients.recording.proxies import Ports
from clients.replaying.replay import replay
from clients.running import CONTROL_KEY, SERVER_ARGUMENTS, management_arguments, ports_of
from support.process import KEY, ServerProcess

RECORDINGS = sorted(FOLDER.glob(f"*{SUFFIX}"))
SHOWN_MAX = 10


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Of a new server: the names and numbers that it gives are then those of the recording, where they are counted. Its
    clock is moved by recorded requests alone, so that nothing expires on a slow machine."""
    server = ServerProcess.start(None, *SERVER_ARGUMENTS, *management_arguments())
    ports = ports_of(server)
    headers = {"authorization": f"Bearer {CONTROL_KEY}", "content-type": "application/json"}
    address = f"http://127.0.0.1:{ports.http}/_armillary/clock"
    with urllib.request.urlopen(urllib.request.Request(address, b'{"frozen": true}', headers), timeout=60):
        pass
    yield ports
    server.stop()


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.removesuffix(SUFFIX))
def test_recorded_requests_are_answered_alike(path: Path, ports: Ports) -> None:
    _, exchanges = read_recording(path)
    found = [f"{number}. {request}: {each}" for number, request, each in replay(exchanges, ports)]
    assert not found, "\n".join([*found[:SHOWN_MAX], f"({len(found)} differences in all)"])


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.removesuffix(SUFFIX))
def test_recordings_are_small_and_tell_nothing_of_the_machine(path: Path) -> None:
    assert path.stat().st_size <= FILE_BYTES_MAX
    text = gzip.decompress(path.read_bytes()).decode()
    secrets = (KEY, CONTROL_KEY, quote(KEY, safe=""), "type=master", "type%3Dmaster", "Bearer ")
    places = ("/home/", "/root/", "/tmp/", "127.0.0.1:", "localhost:")
    assert [each for each in (*secrets, *places) if each in text] == []


def test_there_are_recordings() -> None:
    assert RECORDINGS
