"""One measurement with wrk: generates a Lua script, runs it for some seconds, and parses the result.

The load generator has one thread; on a machine of two cores the server has the other one, less what the kernel takes.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import protocol
from bench.protocol import BATCH_ITEMS, DECADE, NUMBER, PARTITION, PARTITION_FIRST, PARTITIONS, REVISION

NUMBERS_PER_RUN = 2_000_000  # more than one measurement can use up


@dataclass(frozen=True)
class Measured:
    """The result of one measurement. Rates are items per second, so that batches compare with single writes."""

    per_s: float
    requests: int
    errors: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    server_cpu_us: float  # of the server process, all its threads, for each item
    answer_bytes: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)


def reads(container: str, numbers: range) -> str:
    """Point reads of existing items in a mixed order."""
    return from_table(protocol.read_texts(container, numbers))


def creates(container: str, first: int) -> str:
    """New items in sequence; successive items are in different logical partitions."""
    return f"""
local number = {first - 1}
local partition = 0
function request()
  number = number + 1
  partition = {PARTITION_FIRST} + number % {PARTITIONS}
  local revision = number
  return {_lua(protocol.create_text(container))}
end
"""


def upserts(container: str, numbers: range, revision: int) -> str:
    """Existing items, each time with another amount. 7919 is coprime to the count, so all items are used in turn."""
    return f"""
local step = 0
local revision = {revision}
function request()
  step = (step + 7919) % {len(numbers)}
  revision = revision + 1
  local number = {numbers.start} + step
  local partition = {PARTITION_FIRST} + math.floor(number / {BATCH_ITEMS}) % {PARTITIONS}
  return {_lua(protocol.create_text(container, is_upsert=True))}
end
"""


def batches(container: str, first: int) -> str:
    """Transactional batches of a hundred new items, each in one logical partition."""
    body = len(protocol.batch_body(protocol.NUMBER_FIRST, PARTITION_FIRST))
    headers = protocol.batch_headers(container) | {"content-length": str(body)}
    head = protocol.request_text("POST", f"/{protocol.container_link(container)}/docs", headers)
    return f"""
local number = {first - 1}
local member = {{}}
function request()
  local partition = {PARTITION_FIRST} + math.floor(number / {BATCH_ITEMS}) % {PARTITIONS}
  for at = 1, {BATCH_ITEMS} do
    number = number + 1
    local revision = number
    member[at] = {_lua(protocol.batch_member())}
  end
  return {_lua(head)} .. "[" .. table.concat(member, ",") .. "]"
end
"""


def run_wrk(port: int, script: str, *, connections: int, seconds: float, cpu_pid: int, items: int = 1) -> Measured:
    with tempfile.TemporaryDirectory(prefix="armillary-bench-") as directory:
        file = Path(directory) / "load.lua"
        file.write_text(script + _DONE, "latin-1")
        command = ["wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{seconds:g}s"]
        cpu_before_s = cpu_seconds(cpu_pid)
        outcome = subprocess.run(
            [*command, "--timeout", "10s", "--script", str(file), f"http://127.0.0.1:{port}/"],
            capture_output=True,
            text=True,
            timeout=seconds + 60,
            check=False,
        )
        cpu_s = cpu_seconds(cpu_pid) - cpu_before_s
    found = re.search(r"^RESULT (.*)$", outcome.stdout, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"wrk gave no result: {outcome.stdout} {outcome.stderr}")
    result = json.loads(found[1])
    answered = max(1, result["requests"])
    good = result["requests"] - result["errors"]
    return Measured(
        per_s=good * items / (result["duration_us"] / 1e6),
        requests=result["requests"],
        errors=result["errors"],
        p50_ms=result["p50_us"] / 1e3,
        p99_ms=result["p99_us"] / 1e3,
        max_ms=result["max_us"] / 1e3,
        server_cpu_us=cpu_s * 1e6 / (answered * items),
        answer_bytes=result["bytes"] / answered,
    )


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100  # in ticks, a hundred a second on Linux


def from_table(texts: Iterable[str]) -> str:
    """These requests in turn, in a mixed order."""
    # 7919 is coprime to the number of texts: all are used in turn, and neighbours never in succession.
    rows = ",\n".join(_quoted(text) for text in texts)
    return f"""
local texts = {{
{rows}
}}
local at = 0
function request()
  at = (at + 7919) % #texts
  return texts[at + 1]
end
"""


def _lua(text: str) -> str:
    """A Lua expression that makes `text` with its holes filled from the variables number, partition, revision."""
    names = {NUMBER: "number", PARTITION: "partition", REVISION: "revision", DECADE: "math.floor(number / 10)"}
    parts = re.split(f"([{NUMBER}{PARTITION}{REVISION}{DECADE}])", text)
    return " .. ".join(names.get(part) or _quoted(part) for part in parts if part)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", "\\r").replace("\n", "\\n")
    return f'"{escaped}"'


_DONE = """
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"duration_us":%d,"bytes":%d,"errors":%d,"p50_us":%d,"p99_us":%d,"max_us":%d}\\n',
    summary.requests, summary.duration, summary.bytes, e.status + e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(99), latency.max))
end
"""
