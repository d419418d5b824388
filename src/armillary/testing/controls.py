"""What a test does with a server besides its protocols: fault rules, latency, splits, the clock, partitions, charges,
the change feed, snapshots. Every call is a request of the control API (docs/control.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote_plus

from armillary.account.security.connection_strings import connection_strings
from armillary.errors import Failure, Kind, bad_request
from armillary.testing.charges import Charges, totals_of
from armillary.testing.fault_rules import THROTTLED, FaultRule, Selection, rule_fields
from armillary.tools.exposure import WELL_KNOWN_KEY
from armillary.tools.remote import Server as ControlApi

WAIT_S: Final = 30.0  # the default of everything that waits
CLEAN: Final = "armillary-testing-clean"  # the snapshot that `restore_clean` restores
_POLL_S: Final = 0.01
_TABLES: Final = "TablesDB"  # the database of the Table door's tables


class Controls:
    """The addresses and keys of a running server, and its control API as methods. They may be called from any thread.
    A container is named "database/container", or is a client's object for it: azure-cosmos' ContainerProxy, pymongo's
    Collection, azure-data-tables' TableClient."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}  # by door: sql, table, mongo, gremlin
        self.key = WELL_KNOWN_KEY
        self.account = "localhost"
        self.control_key = ""
        self._connections = threading.local()
        self._opened: list[ControlApi] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.addresses.get('sql', 'that is not running')}>"

    # Addresses

    @property
    def url(self) -> str:
        """Of the SQL API."""
        return self._address("sql")

    @property
    def table_url(self) -> str:
        return self._address("table")

    @property
    def gremlin_url(self) -> str:
        return f"{self._address('gremlin')}/"

    @property
    def mongo_url(self) -> str:
        """With the user and the password, as drivers read it. directConnection: the port may be a mapped one."""
        host = self._address("mongo").removeprefix("mongodb://")
        return f"mongodb://{self.account}:{quote_plus(self.key)}@{host}/?directConnection=true"

    @property
    def connection_strings(self) -> dict[str, str]:
        """What SDKs read in place of an address and a key, by door: sql, table, mongo, gremlin."""
        made = connection_strings(self.addresses, self.account, {"primary": self.key})
        return {each.door: each.value for each in made} | {"mongo": self.mongo_url}

    @property
    def control(self) -> ControlApi:
        """The control API itself, for what has no method here. Each thread has a connection of its own."""
        found: ControlApi | None = getattr(self._connections, "control", None)
        if found is None or found.url != self.url:
            found = self._connections.control = ControlApi(self.url, self.control_key)
            self._opened.append(found)
        return found

    def _close_connections(self) -> None:
        for each in self._opened:
            each.close()

    def _forget_server(self) -> None:
        """After the server has stopped."""
        self.addresses = {}
        self._opened.clear()
        self._connections = threading.local()

    def _address(self, door: str) -> str:
        if door not in self.addresses:
            reason = (
                f"has no {door} door" if self.addresses else "is not running. Start it, or use it in a `with` block"
            )
            raise Failure(Kind.UNAVAILABLE, f"The server {reason}.")
        return self.addresses[door]

    # Faults

    def fail(
        self, status: int, *, sub_status: int | None = None, retry_after_ms: int | None = None, after: bool = False,
        container: Any = None, **selection: Any,
    ) -> FaultRule:  # fmt: skip
        """Requests fail with a status: 404, 408, 410, 429, 449, 500 or 503. `after`: the write is carried out first.
        Which requests: operations, container, key, partition, skip, every, count, probability, seed."""
        selected = _selection(container, selection)
        return self._rule(
            rule_fields(selected, status=status, sub_status=sub_status, retry_after_ms=retry_after_ms, after=after)
        )

    def throttle(
        self, count: int | None = None, *, retry_after_ms: int = 10, container: Any = None, **selection: Any
    ) -> FaultRule:
        """The next `count` requests get 429; without a number all of them, until the rule is removed."""
        return self.fail(
            THROTTLED, retry_after_ms=retry_after_ms, container=container, **selection, **_given(count=count)
        )

    def delay(self, milliseconds: int, *, container: Any = None, **selection: Any) -> FaultRule:
        """Requests are answered late."""
        return self._rule(rule_fields(_selection(container, selection), delay_ms=milliseconds))

    def drop(self, *, after: bool = False, container: Any = None, **selection: Any) -> FaultRule:
        """Connections end without an answer. `after`: writes, given as `operations`, are carried out first."""
        return self._rule(rule_fields(_selection(container, selection), drops=True, after=after))

    def remove_faults(self) -> None:
        self.control.delete("faults")

    def _rule(self, fields: dict[str, Any]) -> FaultRule:
        return FaultRule(lambda: self.control, self.control.post("faults", body=fields))

    # Partitions

    def partitions(self, container: Any) -> list[dict[str, Any]]:
        """The physical partitions, with `id`, `low`, `high`, `items`, `bytes`, `budgetRu`, `chargedRu` and the rest of
        docs/control.md."""
        found: list[dict[str, Any]] = self.control.get(*_path(container), "partitions", keys="none")["partitions"]
        return found

    def split(
        self, container: Any, partition: int | None = None, *, waits: bool = True, timeout_s: float = WAIT_S
    ) -> list[dict[str, Any]]:
        """Split a partition now, by default the largest, and wait until its children serve. Answers the partitions."""
        self.control.post(*_path(container), "split", body=_given(partition=partition))
        return self.wait_for_splits(container, timeout_s) if waits else self.partitions(container)

    def merge(
        self, container: Any, partitions: Sequence[int] = (), *, waits: bool = True, timeout_s: float = WAIT_S
    ) -> list[dict[str, Any]]:
        """Merge two neighbours, by default the smallest."""
        self.control.post(*_path(container), "merge", body={"partitions": list(partitions)} if partitions else {})
        return self.wait_for_splits(container, timeout_s) if waits else self.partitions(container)

    def wait_for_splits(self, container: Any, timeout_s: float = WAIT_S) -> list[dict[str, Any]]:
        """Until no split or merge of a container runs, and its throughput is the one that was asked for."""
        path = _path(container)

        def are_done() -> bool:
            running = self.control.get(*path, "reshapes")["reshapes"]
            return not running and not self.control.get(*path)["throughput"]["pending"]

        self._wait(are_done, timeout_s, f"the splits of {path[1]}/{path[3]}")
        return self.partitions(container)

    def scale(
        self, container: Any, throughput: int, *, waits: bool = True, timeout_s: float = WAIT_S
    ) -> list[dict[str, Any]]:
        """Another throughput in RU/s, and the splits that it needs."""
        self.control.put(*_path(container), "throughput", body={"throughput": throughput})
        return self.wait_for_splits(container, timeout_s) if waits else self.partitions(container)

    def pause_splits(self, *points: str) -> None:
        """Every split stops at these points, until `continue_splits`. Without any: nowhere from now on."""
        self.control.put("reshapes", "pauses", body={"points": list(points)})

    def continue_splits(self) -> None:
        """Splits that have stopped go on, to the next point."""
        self.control.post("reshapes", "advance", body={})

    # Throughput

    def set_mode(self, container: Any, mode: str | None) -> None:
        """Of one container: enforce, observe or off; None for the server's own."""
        self.control.put(*_path(container), "mode", body={"mode": mode})

    @contextmanager
    def charges(self, container: Any) -> Iterator[Charges]:
        """What is charged in a `with` block. The figures are there after it."""
        path = _path(container)
        counted = Charges()
        before = totals_of(self.control, path[1], path[3])
        yield counted
        counted.end(before, totals_of(self.control, path[1], path[3]))

    # The clock

    @property
    def now_s(self) -> float:
        """The server's time, in seconds since 1970."""
        return float(self.control.get("clock")["nowSeconds"])

    def stop_clock(self) -> None:
        """Needs a server with clock="movable", as the next two."""
        self.control.post("clock", body={"frozen": True})

    def advance_clock(self, by: float | timedelta) -> float:
        """By seconds or a timedelta; the new time. It stands still afterwards if it did before."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        return float(self.control.post("clock", body={"advanceSeconds": seconds})["nowSeconds"])

    def start_clock(self) -> None:
        self.control.post("clock", body={"frozen": False})

    # The change feed

    def changes(self, container: Any, *, mode: str = "latest") -> list[dict[str, Any]]:
        """The change feed from the beginning: in mode "latest" the items, in "all-versions" one row a change."""
        rows: list[dict[str, Any]] = []
        query: dict[str, Any] = {"mode": mode, "from": "beginning"}
        while True:
            page = self.control.get(*_path(container), "changes", **query)
            rows += page["changes"]
            if page["isEnd"] or not page["changes"]:
                return rows
            query = {"mode": mode, "position": page["position"]}

    def wait_for_changes(
        self, container: Any, count: int = 1, *, mode: str = "latest", timeout_s: float = WAIT_S
    ) -> list[dict[str, Any]]:
        """The change feed from the beginning, as soon as it has `count` changes."""
        rows: list[dict[str, Any]] = []

        def are_there() -> bool:
            nonlocal rows
            rows = self.changes(container, mode=mode)
            return len(rows) >= count

        self._wait(are_there, timeout_s, lambda: f"{count} changes; the feed has {len(rows)}")
        return rows

    def _wait(self, is_done: Any, timeout_s: float, what: Any) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not is_done():
            if time.monotonic() >= deadline_s:
                said = what() if callable(what) else what
                raise TimeoutError(f"waited {timeout_s:g} s for {said}")
            time.sleep(_POLL_S)

    # Snapshots

    def snapshot(self, name: str) -> None:
        """Of all databases, in memory: docs/backup.md."""
        self.control.post("snapshots", name, body={})

    def restore(self, name: str) -> None:
        self.control.post("snapshots", name, "restore", body={})

    def keep_clean(self) -> None:
        """What the server has now is what `restore_clean` restores."""
        self.snapshot(CLEAN)

    def restore_clean(self) -> None:
        """Undo what a test has done: items and definitions, fault rules, pauses of splits, a clock that stands still. A
        clock that was moved stays where it is."""
        self.remove_faults()
        self.pause_splits()
        self.continue_splits()
        if self.control.get("clock").get("frozen"):
            self.start_clock()
        self.restore(CLEAN)


def _selection(container: Any, selection: dict[str, Any]) -> Selection:
    names = [each.name for each in fields(Selection)]
    unknown = sorted(set(selection) - set(names))
    if unknown:
        known = ", ".join(name for name in names if name != "database")
        raise bad_request(f"A fault rule does not select requests by {unknown[0]!r}. It selects by {known}.")
    if container is None:
        return Selection(**selection)
    database, name = container_name(container)
    return Selection(**{**selection, "database": database, "container": name})


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _path(container: Any) -> tuple[str, str, str, str]:
    database, name = container_name(container)
    return "databases", database, "containers", name


def container_name(container: Any) -> tuple[str, str]:
    """The database and the container that a text or a client's object names."""
    if isinstance(container, str):
        database, slash, name = container.partition("/")
        if slash and database and name:
            return database, name
        raise bad_request(f"{container!r} names no container; expected one such as 'shop/orders'.")
    link = getattr(container, "container_link", None)  # azure-cosmos: dbs/shop/colls/orders
    if isinstance(link, str) and len(parts := link.strip("/").split("/")) == 4:
        return parts[1], parts[3]
    table = getattr(container, "table_name", None)  # azure-data-tables
    if isinstance(table, str):
        return _TABLES, table
    full = getattr(container, "full_name", None)  # pymongo: shop.orders, where database names have no dots
    if isinstance(full, str) and "." in full:
        database, _, name = full.partition(".")
        return database, name
    raise bad_request(
        f"{type(container).__name__} names no container; expected a text such as 'shop/orders', or a ContainerProxy, "
        "Collection or TableClient."
    )
