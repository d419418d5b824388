"""The pages of a SQL query, asked one after the other over the REST protocol with all that the server tells about
a query: charge by its parts, a row for each partition, used and possible indexes, advice. The server merges the rows of
several partitions. Requests that are refused for lack of throughput are repeated after the time that the server says.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import orjson

from armillary.errors import Failure, Kind
from armillary.tools.remote import TIMEOUT_S, Line, Where, account_key, find_line
from armillary.tools.settings import Settings
from armillary.tools.transfer.endpoints.cosmos import THROTTLED, ContainerLink, Signer, message_of, refusal
from armillary.tools.transfer.endpoints.http_client import Answer

_ASKED: Final = {
    "content-type": "application/query+json",
    "x-ms-documentdb-isquery": "true",
    "x-ms-documentdb-query-enablecrosspartition": "true",
    "x-ms-documentdb-populatequerymetrics": "true",
    "x-ms-cosmos-populateindexmetrics-v2": "true",
    "x-ms-cosmos-populatequeryadvice": "true",
    "x-armillary-explain": "true",
}


_MISSING_PARAMETER: Final = re.compile(r"Identifier '@(\w+)' could not be resolved")


class Asked(NamedTuple):
    """A query as it is asked."""

    place: ContainerLink
    text: str
    parameters: list[dict[str, Any]]
    key: list[Any] | None = None  # of one logical partition; None: all partitions


class Figures:
    """What a query did and cost, summed over its pages."""

    def __init__(self) -> None:
        self.rows = self.pages = self.refused = 0
        self.charge_ru = 0.0
        self.parts: dict[str, dict[str, float]] = {}  # by what was charged for: ru, count, bytes
        self.partitions: dict[Any, dict[str, Any]] = {}  # by id; None: those that one answer could not list
        self.metrics: dict[str, float] = {}
        self.indexes: dict[str, Any] = {}
        self.advice: list[str] = []
        self.is_complete = False  # whether the last page was read

    def add(self, headers: Mapping[str, str], row_count: int) -> None:
        self.pages += 1
        self.rows += row_count
        self.charge_ru += float(headers.get("x-ms-request-charge") or 0)
        for part in _json(headers.get("x-armillary-charge")) or []:
            sums = self.parts.setdefault(part["what"], {"ru": 0.0, "count": 0, "bytes": 0})
            for name in sums:
                sums[name] += part.get(name, 0)
        for each in _json(headers.get("x-armillary-partitions")) or []:
            found = self.partitions.setdefault(each["id"], {**each, **dict.fromkeys(_SUMMED, 0)})
            for name in _SUMMED:
                found[name] += each[name]
        for pair in (headers.get("x-ms-documentdb-query-metrics") or "").split(";"):
            name, _, value = pair.partition("=")
            if value:
                self.metrics[name] = self.metrics.get(name, 0.0) + float(value)
        self.indexes = _json(unquote(headers.get("x-ms-cosmos-index-utilization") or "")) or self.indexes
        self.advice = self.advice or [
            each["Id"] for each in _json(unquote(headers.get("x-ms-cosmos-query-advice") or "")) or []
        ]

    @property
    def partition_count(self) -> int:
        return sum(each.get("count", 1) for each in self.partitions.values())


_SUMMED: Final = ("ru", "loaded", "returned", "bytes", "ms")


class SqlAccount:
    """The SQL API of a server, with a key of the account."""

    def __init__(self, line: Line, key: str, patience_s: float = TIMEOUT_S) -> None:
        """`patience_s`: how long a page is asked for again while it is refused for lack of throughput."""
        self._line = line
        self._signer = Signer(key, line.url)
        self._patience_s = patience_s

    @classmethod
    def find(cls, settings: Settings, where: Where) -> SqlAccount:
        """With the key that is given; else the one that the control API tells; else the well-known one."""
        return cls(find_line(settings, where), account_key(settings, where), where.timeout_s)

    def close(self) -> None:
        self._line.close()

    def pages(self, asked: Asked, figures: Figures, page_rows: int, rows_max: int | None = None) -> Iterator[list[Any]]:
        """The rows of each page; at most `rows_max` in all. `figures` grows with each page."""
        body = orjson.dumps({"query": asked.text, "parameters": asked.parameters})
        continuation: str | None = ""
        while continuation is not None:
            left = page_rows if rows_max is None else min(page_rows, rows_max - figures.rows)
            if left <= 0:
                return
            headers = {**_ASKED, "x-ms-max-item-count": str(left)}
            if asked.key is not None:
                headers["x-ms-documentdb-partitionkey"] = json.dumps(asked.key)
            if continuation:
                headers["x-ms-continuation"] = continuation
            answer = self._ask(asked, headers, body, figures)
            rows: list[Any] = orjson.loads(answer.body)["Documents"]
            figures.add(answer.headers, len(rows))
            yield rows
            continuation = answer.headers.get("x-ms-continuation")
        figures.is_complete = True

    def _ask(self, asked: Asked, headers: Mapping[str, str], body: bytes, figures: Figures) -> Answer:
        place, begun_s = asked.place, time.monotonic()
        while True:
            signed = {**headers, **dict(self._signer.headers("POST", "docs", place.link))}
            answer = Answer(*self._line.exchange("POST", f"{place.target}/docs", body, signed, changes=False))
            if answer.status == THROTTLED:
                figures.refused += 1
                if time.monotonic() - begun_s >= self._patience_s:
                    raise self._starved(asked)
                time.sleep(max(float(answer.headers.get("x-ms-retry-after-ms") or 100), 1.0) / 1000)
                continue
            if answer.status < 400:
                return answer
            raise self._refusal(answer, asked)

    def _starved(self, asked: Asked) -> Failure:
        name = f"{asked.place.database}/{asked.place.container}"
        return Failure(
            Kind.THROTTLED,
            f"{name} has refused the query for lack of throughput (429) for {self._patience_s:g} s. Provision more "
            f"with `armillary scale {name} RU`, look for a fault rule with `armillary faults`, or wait longer with "
            "--timeout.",
        )

    def _refusal(self, answer: Answer, asked: Asked) -> Failure:
        """In the words of the command line, with the next step."""
        if answer.status == 404:
            return Failure(
                Kind.NOT_FOUND,
                f"There is no container {asked.place.database}/{asked.place.container}. `armillary containers` lists "
                "those of the server.",
            )
        if answer.status == 400:
            return Failure(Kind.BAD_REQUEST, _mistake(message_of(answer), asked.text))
        return refusal(answer, self._line.url)


def _mistake(message: str, text: str) -> str:
    """A refusal of a query, with the place of the mistake in a query of several lines."""
    found = _json(message)
    try:
        first = found["errors"][0]
        said, start = str(first["message"]), first.get("location", {}).get("start", 0)
    except (KeyError, TypeError, IndexError):
        return f"The query is refused: {message}"
    missing = _MISSING_PARAMETER.match(said)
    if missing is not None:
        said += f" Give it with --parameter {missing[1]}=VALUE, in the shell with \\parameter."
    before = text[:start]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"The query is refused at line {line}, column {column}: {said}"


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None
