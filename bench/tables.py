"""The Table API compared with Azurite's table service: insert, get, point update, a partition of 1,000 entities, and a
filter over 10,000. `python -m bench.tables`; `make bench` does not run it, because Azurite installs 360 MB.

Both servers accept the same key and get the same requests. Azurite keeps its tables in memory and writes them to disk
from time to time; Armillary is measured at both durabilities.
"""

from __future__ import annotations

import argparse
import base64
import hmac
import http.client
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from email.utils import formatdate
from pathlib import Path
from typing import Final

from bench.load import Measured, from_table, run_wrk
from bench.servers import ROOT, Server, Unavailable, start_tables

ACCOUNT: Final = "devstoreaccount1"  # Azurite's account, with its published key
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_AZURITE: Final = ROOT / "bench/azurite"
_ENTITIES: Final = 10_000
_PARTITION: Final = 1_000
_BATCH: Final = 100
_READY_S: Final = 30.0


def entity(partition: str, row: str, number: int) -> dict[str, object]:
    """A customer record of about 600 bytes."""
    return {
        "PartitionKey": partition,
        "RowKey": row,
        "Number": number,
        "Name": f"Customer {number}",
        "Email": f"customer{number}@example.com",
        "Score": number / 7,
        "IsActive": number % 3 == 0,
        "Balance@odata.type": "Edm.Int64",
        "Balance": str(number * 10**10),
        "Since@odata.type": "Edm.DateTime",
        "Since": "2024-01-05T10:11:12.1234567Z",
        "Reference@odata.type": "Edm.Guid",
        "Reference": "c9da6455-213d-42c9-9a79-3e9149a57833",
        "Notes": "x" * 200,
    }


def request(method: str, path: str, query: str = "", body: str = "", extra: str = "") -> str:
    """A request as it goes over the wire. The signature holds for a quarter of an hour."""
    date = formatdate(usegmt=True)
    target = f"/{ACCOUNT}{path}"
    text = f"{date}\n/{ACCOUNT}{target}"
    mac = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return (
        f"{method} {target}{'?' + query if query else ''} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-ms-version: 2019-02-02\r\n"
        f"x-ms-date: {date}\r\nAuthorization: SharedKeyLite {ACCOUNT}:{mac}\r\nDataServiceVersion: 3.0\r\n"
        f"Accept: application/json;odata=minimalmetadata\r\n{content}{extra}\r\n{body}"
    )


def inserts(first: int) -> str:
    """New entities in sequence over a hundred partitions. Bodies are not signed, so one signature is enough."""
    body = json.dumps(entity("pXXX", "YYYYYYYYYY", 123456789), separators=(",", ":"))
    head, _, rest = request("POST", "/people", body=body, extra="Prefer: return-no-content\r\n").partition("pXXX")
    middle, _, tail = rest.partition("YYYYYYYYYY")
    quoted = [
        part.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
        for part in (head, middle, tail)
    ]
    return f"""
local number = {first}
function request()
  number = number + 1
  local partition, row = string.format("p%03d", number % 100), string.format("%010d", number)
  return "{quoted[0]}" .. partition .. "{quoted[1]}" .. row .. "{quoted[2]}"
end
"""


def gets() -> str:
    return from_table(request("GET", _point(number)) for number in range(0, _ENTITIES, 5))


def updates() -> str:
    texts = []
    for number in range(0, _ENTITIES, 5):
        partition, row = _keys(number)
        body = json.dumps(entity(partition, row, number + 1), separators=(",", ":"))
        texts.append(request("PUT", _point(number), body=body, extra="If-Match: *\r\n"))
    return from_table(texts)


def scan() -> str:
    return from_table([request("GET", "/scanned()", "$filter=PartitionKey%20eq%20'p'")])


def filtered() -> str:
    """A filter on two properties that returns a hundred of ten thousand entities."""
    return from_table(
        [request("GET", "/people()", "$filter=Number%20ge%209900%20and%20Number%20lt%2020000%20and%20Score%20gt%201.0")]
    )


def _keys(number: int) -> tuple[str, str]:
    return f"p{number % 100:03}", f"{number:010}"


def _point(number: int) -> str:
    partition, row = _keys(number)
    return f"/people(PartitionKey='{partition}',RowKey='{row}')"


def prepare(port: int) -> None:
    """Two tables: 10,000 entities over a hundred partitions, and 1,000 in one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    _send(connection, request("POST", "/Tables", body='{"TableName":"people"}'))
    _send(connection, request("POST", "/Tables", body='{"TableName":"scanned"}'))
    for partition in range(100):
        numbers = range(partition, _ENTITIES, 100)
        _send(connection, _batch("people", [entity(*_keys(number), number) for number in numbers]))
    for first in range(0, _PARTITION, _BATCH):
        _send(connection, _batch("scanned", [entity("p", f"{n:010}", n) for n in range(first, first + _BATCH)]))
    connection.close()


def _batch(table: str, entities: list[dict[str, object]]) -> str:
    parts = "".join(
        "--changeset_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        f"POST http://127.0.0.1/{ACCOUNT}/{table} HTTP/1.1\r\nContent-Type: application/json\r\n"
        "Accept: application/json\r\nPrefer: return-no-content\r\nDataServiceVersion: 3.0\r\n\r\n"
        f"{json.dumps(each)}\r\n"
        for each in entities
    )
    head = "--batch_1\r\nContent-Type: multipart/mixed; boundary=changeset_1\r\n\r\n"
    body = f"{head}{parts}--changeset_1--\r\n--batch_1--\r\n"
    text = request("POST", "/$batch", body=body)
    return text.replace("Content-Type: application/json", "Content-Type: multipart/mixed; boundary=batch_1", 1)


def _send(connection: http.client.HTTPConnection, text: str) -> None:
    head, _, body = text.partition("\r\n\r\n")
    line, *lines = head.split("\r\n")
    method, target, _ = line.split(" ")
    headers = dict(each.split(": ", 1) for each in lines)
    connection.request(method, target, body.encode() if body else None, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300 or b"HTTP/1.1 4" in content:
        raise RuntimeError(f"{method} {target}: {answer.status} {content[:300]!r}")


def start_azurite(directory: Path) -> Server:
    program = _AZURITE / "node_modules/.bin/azurite-table"
    if shutil.which("node") is None or not program.exists():
        raise Unavailable("Azurite is not installed: run npm ci in bench/azurite")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--silent", "--location", str(directory), "--tablePort", str(port), "--disableTelemetry"]
    process = subprocess.Popen([str(program), *arguments], stdout=subprocess.PIPE, text=True)
    deadline_s = time.monotonic() + _READY_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return Server("azurite", process, port)
    process.kill()
    raise Unavailable("Azurite does not start")


def contests(first: int) -> Iterator[tuple[str, str]]:
    yield "get", gets()
    yield "point update", updates()
    yield "partition of 1,000", scan()
    yield "filter over 10,000", filtered()
    yield "insert", inserts(first)  # last, because it enlarges the tables


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.tables", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    found: dict[str, dict[str, list[Measured]]] = {}
    with ExitStack() as opened:
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="armillary-bench-tables-")))
        servers = [start_tables(place / each, each, ACCOUNT, KEY) for each in ("relaxed", "full")]
        try:
            servers.append(start_azurite(place / "azurite"))
        except Unavailable as reason:
            print(f"without Azurite: {reason}", file=sys.stderr)
        for server in servers:
            opened.callback(server.stop)
            prepare(server.port)
        for turn in range(options.rounds):
            for server in servers:
                for name, script in contests(10**6 + turn * 10**7):
                    measured = run_wrk(
                        server.port,
                        script,
                        connections=options.connections,
                        seconds=options.seconds,
                        cpu_pid=server.pid,
                    )
                    found.setdefault(name, {}).setdefault(server.name, []).append(measured)
                    print(f"{server.name}: {name}: {measured.per_s:.0f}/s, errors {measured.errors}", file=sys.stderr)
    head = f"Requests a second (and µs of CPU each), {options.connections} connections, {options.seconds:g} s each"
    print(f"{head}, median of {options.rounds}")
    for name, by_server in found.items():
        rates = {server: statistics.median(each.per_s for each in all_) for server, all_ in by_server.items()}
        errors = sum(each.errors for all_ in by_server.values() for each in all_)
        cpu_us = {server: statistics.median(each.server_cpu_us for each in all_) for server, all_ in by_server.items()}
        cells = [f"{server} {rate:,.0f} ({cpu_us[server]:,.0f} µs)" for server, rate in rates.items()]
        other = rates.get("azurite")
        if other:
            cells += [f"{server} ÷ azurite {rate / other:.1f}" for server, rate in rates.items() if server != "azurite"]
        print(f"{name}: " + "; ".join(cells) + (f"; {errors} errors" if errors else ""))
    if options.json is not None:
        figures = {
            name: {server: [each.to_json() for each in all_] for server, all_ in by.items()}
            for name, by in found.items()
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
