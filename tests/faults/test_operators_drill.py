"""An operator's drill on a real server: upgrade, new keys, a new certificate, backup, restore to another directory, a
full disk, read-only mode, a restart. Meanwhile clients that retry write and read over TLS and never see an error that
lasts, every acknowledged item stays, and metrics are scraped with the read-only control key.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import re
import signal
import ssl
import tarfile
import threading
import time
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from support.certificates import Signed
from support.process import ServerProcess, run_armillary
from support.waiting import until

STORED = Path(__file__).parents[1] / "fixtures" / "stored" / "data.tar.xz"
WRITERS = 2
PASS = 25  # operations of the clients between two steps of the drill
LASTING_S = 60.0  # how long a client retries one operation


def key(number: int) -> str:
    return b64encode(bytes([number]) * 64).decode()


class Crew:
    """Clients that retry, each with items of its own, and a scraper."""

    def __init__(self, ca: Path) -> None:
        self.ca = ca
        self.port = 0
        self.keys = [key(1)]  # that clients know, the preferred one first
        self.is_down = False  # the server is being restarted
        self.done = 0
        self.retried: Counter[str] = Counter()
        self.scrapes = 0
        self.failures: list[str] = []
        self.acknowledged: set[tuple[str, str]] = set()
        self.pages: list[str] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(f"writer-{n}",)) for n in range(WRITERS)]
        self._threads.append(threading.Thread(target=self._scrape))

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def container(self) -> ContainerProxy:
        client = CosmosClient(f"https://localhost:{self.port}", self.keys[0], connection_verify=str(self.ca))
        return client.get_database_client("drill").get_container_client("items")

    def _write(self, name: str) -> None:
        number, container = 0, None
        while not self._is_over.is_set():
            number += 1
            item = {"id": f"{number}", "pk": name, "text": "x" * 200}
            begun_s = time.monotonic()
            while True:
                try:
                    container = container or self.container()
                    container.upsert_item(item)
                    assert container.read_item(item["id"], name)["text"] == item["text"]
                    break
                except (AzureError, AssertionError) as error:
                    container = None
                    status = getattr(error, "status_code", None)
                    self.retried[f"{status}/{getattr(error, 'sub_status', None) or 0}" if status else "connection"] += 1
                    if time.monotonic() - begun_s > LASTING_S:
                        self.failures.append(f"{name} {number}: {error}")
                        return
            self.acknowledged.add((name, item["id"]))
            self.done += 1

    def _scrape(self) -> None:
        while not self._is_over.is_set():
            before = self.is_down
            request = urllib.request.Request(
                f"http://127.0.0.1:{self.port}/_armillary/metrics", headers={"Authorization": f"Bearer {key(9)}"}
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    self.pages.append(response.read().decode())
                self.scrapes += 1
            except OSError as error:
                if not (before or self.is_down):
                    self.failures.append(f"scrape: {error}")
            self._is_over.wait(0.2)

    def work_on(self) -> None:
        """Wait until the clients have done some more."""
        wanted = self.done + PASS
        wait_for(lambda: self.done >= wanted or bool(self.failures), "operations of the clients")
        assert not self.failures

    def wait_for_refusal(self, what: str) -> None:
        before = self.retried[what]
        wait_for(lambda: self.retried[what] > before or bool(self.failures), f"a client that is told {what}")
        assert not self.failures


def wait_for(holds: Callable[[], bool], what: str) -> None:
    asyncio.run(until(holds, what))


class Drill:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.config = place / "armillary.toml"
        self.certificate, self.certificate_key = place / "tls.pem", place / "tls.key"
        self.authority = Signed("Drill authority")
        (place / "ca.pem").write_bytes(self.authority.pem)
        self.settings: dict[str, Any] = {
            "key": key(1),
            "secondary-key": key(2),
            "control-read-only-key": key(9),
            "durability": "relaxed",
            "tls-certificate": str(self.certificate),
            "tls-key": str(self.certificate_key),
        }
        self.new_certificate()
        self.write_settings()
        with lzma.open(STORED) as file, tarfile.open(fileobj=file) as packed:
            packed.extractall(place, filter="data")
            self.directory = place / packed.getnames()[0]
        self.server: ServerProcess | None = None
        self.port = 0

    def new_certificate(self) -> None:
        Signed("localhost", self.authority, ("localhost", "127.0.0.1")).write(self.certificate, self.certificate_key)

    def write_settings(self, **changed: Any) -> None:
        self.settings |= {name.replace("_", "-"): value for name, value in changed.items()}
        self.config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in self.settings.items()))

    def start(self) -> None:
        self.server = ServerProcess.start(
            self.directory, "--config", str(self.config), "--sql-port", str(self.port or 0)
        )
        self.port = self.server.port

    def reload(self, **changed: Any) -> None:
        self.write_settings(**changed)
        assert self.server is not None
        server, before = self.server, self.server.log.count("settings were read again")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: server.log.count("settings were read again") > before, "a reload")

    def command(self, *arguments: str) -> str:
        outcome = run_armillary(*arguments)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        return outcome.stdout

    def control(self, method: str, path: str, content: Any = None) -> Any:
        control_key = json.loads((self.directory / "control.json").read_text())["key"]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/_armillary/{path}",
            None if content is None else json.dumps(content).encode(),
            {"Authorization": f"Bearer {control_key}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())

    def serial(self) -> str:
        return ssl.get_server_certificate(("127.0.0.1", self.port))


@pytest.mark.soak
def test_an_operators_drill(tmp_path: Path) -> None:
    drill = Drill(tmp_path)
    crew = Crew(tmp_path / "ca.pem")

    # Upgrade, from what an earlier version has stored.
    assert "upgraded from format 2 to 3" in drill.command("upgrade", str(drill.directory))
    drill.start()
    crew.port = drill.port
    client = CosmosClient(f"https://localhost:{drill.port}", key(1), connection_verify=str(crew.ca))
    client.create_database("drill").create_container("items", PartitionKey("/pk"))
    crew.begin()
    try:
        run_drill(drill, crew)
        crew.end()
        found = {(item["pk"], item["id"]) for item in crew.container().read_all_items()}
        assert crew.acknowledged <= found, "an acknowledged item is missing"
    finally:
        crew.end()
        assert drill.server is not None
        drill.server.stop()
    assert not crew.failures
    assert crew.scrapes > 10
    assert all("\narmillary_uptime_seconds " in page for page in crew.pages)
    ServerProcess.check(drill.directory)
    print(f"\n{crew.done} operations, {crew.scrapes} scrapes; refused and retried: {dict(crew.retried)}")


def run_drill(drill: Drill, crew: Crew) -> None:
    server = drill.server
    assert server is not None
    crew.work_on()

    # Keys: clients move to the secondary one, the primary one changes, clients move back, the secondary one changes.
    crew.keys = [key(2)]
    drill.reload(key=key(3))
    crew.work_on()
    crew.keys = [key(3)]
    drill.reload(secondary_key=key(4))
    crew.work_on()
    with pytest.raises(CosmosHttpResponseError):
        CosmosClient(f"https://localhost:{drill.port}", key(1), connection_verify=str(crew.ca))

    # The certificate: files that do not fit change nothing, new ones are served.
    before = drill.serial()
    good = drill.certificate_key.read_bytes()
    drill.certificate_key.write_text("no key")
    drill.reload()
    assert "stays in use" in server.log
    assert drill.serial() == before
    drill.certificate_key.write_bytes(good)
    drill.new_certificate()
    drill.reload()
    assert drill.serial() != before
    crew.work_on()

    # Backup, and restore to another directory, which is served and has everything that was there at the time.
    known = set(crew.acknowledged)
    backups, restored = drill.place / "backups", drill.place / "restored"
    drill.command("backup", "create", str(backups), "--data", str(drill.directory))
    drill.command("backup", "verify", str(backups))
    drill.command("backup", "restore", str(backups), "--to", str(restored))
    assert "all is well" in drill.command("check", str(restored))
    second = ServerProcess.start(restored, "--durability", "relaxed")
    try:
        items = CosmosClient(second.url, second.key).get_database_client("drill").get_container_client("items")
        assert known <= {(item["pk"], item["id"]) for item in items.read_all_items()}
    finally:
        second.stop()
    crew.work_on()

    # A full disk: writes are refused with a status of its own, and go on when there is room.
    free = int(re.search(r"^armillary_disk_free_bytes (\d+)", crew.pages[-1], re.MULTILINE)[1])  # type: ignore[index]
    drill.reload(disk_reserve=free * 2)
    crew.wait_for_refusal("403/1005")
    assert drill.control("GET", "ready")["disk"] == "full"
    wait_for(lambda: "The disk of the data directory is full" in server.log, "a line about the full disk")
    wait_for(lambda: "\narmillary_disk_full 1\n" in crew.pages[-1], "the metric of a full disk")
    drill.reload(disk_reserve=0)
    crew.work_on()

    # Read-only mode.
    assert "read-only      true" in drill.command("runtime", "--read-only", "--data", str(drill.directory))
    before_scrapes = crew.scrapes
    crew.wait_for_refusal("403/0")
    wait_for(lambda: crew.scrapes > before_scrapes + 2, "scrapes")
    assert "\narmillary_read_only 1\n" in crew.pages[-1]
    drill.command("runtime", "--no-read-only", "--data", str(drill.directory))
    crew.work_on()

    # A restart, in which the upgrade is committed.
    crew.is_down = True
    server.stop()
    assert "is committed" in drill.command("upgrade", str(drill.directory), "--commit")
    drill.start()
    crew.is_down = False
    crew.work_on()
