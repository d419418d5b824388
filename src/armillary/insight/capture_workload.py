"""A capture as a workload file: the rates of its operations, the shares of its keys and the paths that its queries
filter by, in the form that `estimate` and `simulate` read. Memory is bounded: keys and queries beyond a number are
counted together, and the file says so.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from armillary.errors import bad_request
from armillary.insight.captures import Capture, Captured

_POINT_KINDS: Final = ("read", "create", "upsert", "replace", "patch", "delete")
_KEYS_COUNTED_MAX: Final = 100_000
_KEYS_SHOWN: Final = 200  # by name, of each kind of operation; as many more stand for the others
_QUERIES_COUNTED_MAX, _QUERIES_SHOWN = 10_000, 80
_RUNS_KNOWN: Final = 10_000  # queries whose further pages are recognised
_FILTER_PATHS_MAX: Final = 10


@dataclass(slots=True)
class _Tally:
    count: int = 0
    size_bytes: int = 0
    rows: int = 0
    loaded: int = 0
    members: int = 0
    leaves: int = 0
    measured: int = 0  # of these, how many have a size
    keys: Counter[str] = field(default_factory=Counter)
    others: int = 0  # requests for keys beyond those that are counted

    def add(self, record: Captured) -> None:
        self.count += 1
        if record.size_bytes:
            self.measured += 1
            self.size_bytes += record.size_bytes
        self.leaves += len(record.leaf)
        self.add_key(record)

    def add_key(self, record: Captured) -> None:
        if not record.key:
            return
        name = str(record.values.get(record.key[0], record.key[0]))
        if name in self.keys or len(self.keys) < _KEYS_COUNTED_MAX:
            self.keys[name] += 1
        else:
            self.others += 1


@dataclass(frozen=True, slots=True)
class _QueryKind:
    paths: tuple[str, ...]
    values: int  # of a list over the partition key
    shape: str


class _Reading:
    """What a capture comes to."""

    def __init__(self, capture: Capture) -> None:
        self.head = capture.head
        self.kinds: dict[str, _Tally] = {}
        self.queries: dict[_QueryKind, _Tally] = {}
        self.left_out: Counter[str] = Counter()
        self.last_ms = 0
        self._runs: OrderedDict[str, None] = OrderedDict()
        self._group: str | None = None
        for record in capture.records:
            self._add(record)

    def _add(self, record: Captured) -> None:
        self.last_ms = max(self.last_ms, record.t_ms)
        if record.is_query:
            self._add_query(record)
        elif record.group is not None and record.operation in _POINT_KINDS:
            batches = self.kinds.setdefault("batch", _Tally())
            if record.group != self._group:
                batches.count += 1
                batches.add_key(record)
            batches.members += 1
            batches.measured += 1
            batches.size_bytes += record.size_bytes
        elif record.operation in _POINT_KINDS:
            self.kinds.setdefault(record.operation, _Tally()).add(record)
        else:
            self.left_out[record.operation] += 1
        self._group = record.group

    def _add_query(self, record: Captured) -> None:
        key = self.head.key[0] if self.head.key else ""
        pinned = {*record.equal, *([key] if key in record.lists else [])}
        paths = tuple(sorted(path for path in pinned if "[]" not in path)[:_FILTER_PATHS_MAX])
        values = record.lists[key].total if key in record.lists and key not in record.equal else 1
        kind = _QueryKind(paths, max(1, min(values, _QUERIES_COUNTED_MAX)), record.shape or "")
        if kind not in self.queries and len(self.queries) >= _QUERIES_COUNTED_MAX:
            self.left_out["query"] += 1
            return
        tally = self.queries.setdefault(kind, _Tally())
        tally.rows += record.rows
        tally.loaded += record.loaded
        if not self._is_continued(record):
            tally.count += 1
            pinned_key = record.equal.get(key)
            if pinned_key is not None:
                tally.keys[str(record.values.get(pinned_key, pinned_key))] += len(tally.keys) < _KEYS_COUNTED_MAX

    def _is_continued(self, record: Captured) -> bool:
        """Whether it is a further page or part of a query that was counted."""
        if record.run is None:
            return False
        is_known = record.run in self._runs
        self._runs[record.run] = None
        self._runs.move_to_end(record.run)
        if len(self._runs) > _RUNS_KNOWN:
            self._runs.popitem(last=False)
        return is_known


def workload_text(capture: Capture, throughput: dict[str, int] | None = None, size_bytes: int | None = None) -> str:
    """The file. `throughput` of the container, as the workload has it, and the size of its data, if they are known."""
    head = capture.head
    if not head.key:
        raise bad_request(
            "A workload needs a container with a partition key, and this capture does not say one: it is of a fixed "
            "container, or of the cloud's logs."
        )
    reading = _Reading(capture)
    seconds = max(1.0, reading.last_ms / 1000)
    return "\n".join(_lines(reading, throughput or {}, size_bytes, seconds)) + "\n"


def _lines(reading: _Reading, throughput: dict[str, int], size_bytes: int | None, seconds: float) -> Iterator[str]:
    head, kinds = reading.head, reading.kinds
    scale = 1 / (seconds * head.share)
    writes = [kinds[name] for name in ("create", "upsert", "replace") if name in kinds]
    stored = writes or [tally for name, tally in kinds.items() if name != "batch"]
    keys: Counter[str] = sum((tally.keys for tally in stored), Counter())
    keys = keys or sum((tally.keys for tally in (*kinds.values(), *reading.queries.values())), Counter())
    item_bytes = _mean([(tally.size_bytes, tally.measured) for tally in (stored or kinds.values())]) or 1024
    terms = _mean([(tally.leaves, tally.count) for tally in writes]) or 10
    yield f"# From a capture of {json.dumps(f'{head.database}/{head.container}')} of {head.begun_at}, {seconds:.0f} s."
    yield "# Keys are values of the first level of the partition key, or digests of them; rest-1 and so on stand for"
    yield "# the keys that are not listed. Terms of the index are estimated by the scalar properties of written items."
    for name, count in sorted(reading.left_out.items()):
        yield f"# Left out: {count} requests of the kind {name}, which a workload has not."
    container: dict[str, Any] = {"partition_key": list(head.key), **throughput}
    yield f"container = {_toml(container)}"
    data = {"size": f"{size_bytes or 0}B", "item_bytes": item_bytes, "terms": terms}
    yield f"data = {_toml({**data, 'keys': _keys(keys, sum(tally.others for tally in stored))})}"
    yield "operations = ["
    for name, tally in sorted(kinds.items()):
        operation: dict[str, Any] = {"kind": name, "rate": _rate(tally.count * scale)}
        if tally.measured:
            operation["item_bytes"] = max(1, round(tally.size_bytes / tally.measured))
        if name == "batch":
            operation["items"] = max(1, min(100, round(tally.members / max(1, tally.count))))
        if tally.keys:
            operation["keys"] = _keys(tally.keys, tally.others)
        yield f"    {_toml(operation)},"
    for kind, tally in sorted(reading.queries.items(), key=lambda each: -each[1].count)[:_QUERIES_SHOWN]:
        count = max(1, tally.count)
        operation = {"kind": "query", "rate": _rate(count * scale), "filter": list(kind.paths)}
        operation |= {"rows": round(tally.rows / count, 3), "loaded": round(tally.loaded / count, 3)}
        if kind.values > 1:
            operation["values"] = min(kind.values, _QUERIES_COUNTED_MAX)
        if tally.keys:
            operation["keys"] = _keys(tally.keys, 0)
        yield f"    # {_comment(kind.shape)}"
        yield f"    {_toml(operation)},"
    if len(reading.queries) > _QUERIES_SHOWN:
        yield f"    # Left out: the {len(reading.queries) - _QUERIES_SHOWN} rarest kinds of queries."
    yield "]"


def _mean(sums: list[tuple[int, int]]) -> int:
    total, count = sum(each[0] for each in sums), sum(each[1] for each in sums)
    return max(1, round(total / count)) if count and total else 0


def _rate(rate: float) -> float:
    return float(f"{rate:.6g}")


def _keys(counts: Counter[str], others: int) -> dict[str, Any]:
    if not counts:
        return {"uniform": 1000}
    shown = counts.most_common(_KEYS_SHOWN)
    found = {name: float(count) for name, count in shown}
    rest_keys, rest = len(counts) - len(shown), sum(counts.values()) + others - sum(count for _, count in shown)
    if rest:
        some = max(1, min(rest_keys, _KEYS_SHOWN))
        found |= {f"rest-{number}": _rate(rest / some) for number in range(1, some + 1)}
    return {"explicit": found}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join([f"{_name(name)} = {_toml(member)}" for name, member in value.items()]) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return _text(value) if isinstance(value, str) else repr(value)


def _name(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").isalnum() else _text(name)


def _text(text: str) -> str:
    """A basic string of TOML, which is as in JSON, but that it has no bare DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    return "".join([each if each.isprintable() else " " for each in text])[:160]
