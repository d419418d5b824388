"""Metrics in the text format of Prometheus (`GET metrics`), made when they are asked for from what the server counts
anyway. `metric_table.py` names them all.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from armillary import __version__
from armillary.account import overview
from armillary.account.account import Account
from armillary.account.cluster_operations import OwnFigures
from armillary.account.server_figures import (
    CacheFigures,
    StorageFigures,
    backlog_of,
    cache_figures,
    read_cache_of,
    storage_of,
)
from armillary.doors.control.call import Call, Services
from armillary.doors.control.errors import HEADERS
from armillary.doors.control.metrics.metric_table import Labels, Page
from armillary.net.http import BareResponse, Response
from armillary.net.requests.request_watch import RequestWatch

_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
Rows = list[tuple[Labels, float]]


async def read_metrics(call: Call) -> Response:
    """`?process=N`: what that one of several processes has counted, in place of the sums."""
    asked = call.query("process")
    headers = [(name, _CONTENT_TYPE if name == b"content-type" else value) for name, value in HEADERS]
    operations = call.account.operations
    figures = await operations.own_figures() if operations is not None else None
    others = await call.services.facts.other_pages()
    if "process" not in asked:
        page = await page_of(call.services, is_whole=True)
        for told in others.values():
            page.adopt(told)
    elif number := call.whole("process", 0, 0, max(others, default=0)):
        page = Page.of(others.get(number, []))  # empty: it is being started
    else:
        page = await page_of(call.services, is_whole=not others)
    return BareResponse(200, headers, text_of(page, figures).encode("utf-8", "replace"))


def text_of(page: Page, figures: OwnFigures | None) -> str:
    """`figures`: of a node of a cluster."""
    if figures is not None:
        _add_node(page, figures)
        _add_log(page, figures)
    return page.text(is_node=figures is not None)


async def page_of(services: Services, *, is_whole: bool) -> Page:
    """Of this process. `is_whole`: with the partitions that others hold, as far as they have told of them."""
    process = await asyncio.to_thread(services.facts.process)
    account, facts = services.account, services.facts
    page = Page()
    page.add("info", [((("version", __version__),), 1)])
    page.add_one("uptime_seconds", round(account.clock.elapsed_s() - services.begun_s, 3))
    page.add_one("read_only", int(account.is_read_only))
    page.add("connections", [((("door", door),), count) for door, count in facts.connections().items()])
    page.add_one("connections_max", facts.connections_max)
    if facts.watch is not None:
        _add_requests(page, facts.watch)
    lag = facts.loop_lag
    if lag is not None:
        page.add_times("event_loop_lag_seconds", [((), lag.observed)])
        page.add_one("event_loop_lag_worst_seconds", lag.worst_s)
        lag.worst_s = 0.0
    metadata = account.budgets.metadata.totals
    page.add_one("metadata_requests_total", metadata.requests)
    page.add_one("metadata_charge_request_units_total", metadata.charged_ru)
    _add_containers(page, account, is_whole=is_whole)
    _add_partitions(page, account, is_whole=is_whole)
    page.add("fault_hits_total", [((("rule", str(rule.id)),), rule.hits) for rule in account.faults.rules.values()])
    _add_background(page, account)
    storage = storage_of(account)
    _add_caches(page, cache_figures() if storage is None else [*cache_figures(), *read_cache_of(storage)])
    if storage is not None:
        _add_storage(page, storage)
    for name, value in process.items():
        page.add_one(f"process_{name}", value)
    return page


def _add_requests(page: Page, watch: RequestWatch) -> None:
    observed = sorted(watch.times.items())
    named: list[tuple[Labels, str]] = []
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, times in observed:
        door, _, operation = name.partition(" ")
        named.append(((("door", door), ("operation", operation)), name))
        for kind, count in times.kinds.items():
            kinds[door][kind.name.lower()] += count
    page.add_times("request_duration_seconds", [(labels, watch.times[name]) for labels, name in named])
    page.add(
        "responses_total",
        [
            ((*labels, ("status", str(status or "dropped"))), count)
            for labels, name in named
            for status, count in watch.times[name].statuses.items()
        ],
    )
    page.add(
        "errors_total",
        [((("door", door), ("kind", kind)), n) for door, counted in kinds.items() for kind, n in counted.items()],
    )


def _add_containers(page: Page, account: Account, *, is_whole: bool) -> None:
    rows: defaultdict[str, Rows] = defaultdict(list)
    for container in account.containers:
        labels = (("database", container.database.name), ("container", container.name))
        totals = overview.container_totals(container, is_whole=is_whole)
        rows["partitions"].append((labels, overview.partition_count(container, is_whole=is_whole)))
        rows["requests_total"].append((labels, totals.requests))
        rows["charge_request_units_total"].append((labels, totals.charged_ru))
        rows["refused_total"].append((labels, totals.refused))
        rows["would_be_refused_total"].append((labels, totals.would_be_refused))
        rows["key_full_total"].append((labels, totals.full))
    for name, samples in rows.items():
        page.add(name, samples)


def _add_partitions(page: Page, account: Account, *, is_whole: bool) -> None:
    rows: defaultdict[str, Rows] = defaultdict(list)
    for container in account.containers:
        names = (("database", container.database.name), ("container", container.name))
        for figures in overview.partition_figures(container):
            if not is_whole and figures.process != account.place:
                continue
            labels = (*names, ("partition", str(figures.range.id)))
            rows["partition_items"].append((labels, figures.item_count))
            rows["partition_bytes"].append((labels, figures.size_bytes))
            if figures.budget_ru is not None:
                rows["partition_budget_request_units"].append((labels, figures.budget_ru))
            spent_ru = figures.spent_ru[-1] if figures.spent_ru else 0.0
            rows["partition_spent_request_units"].append((labels, spent_ru))
    for name, samples in rows.items():
        page.add(name, samples)


def _add_background(page: Page, account: Account) -> None:
    backlog = backlog_of(account)
    page.add("reshapes_running", _by_word("what", (("split", backlog.splits), ("merge", backlog.merges))))
    page.add("upkeep_backlog", _by_word("kind", backlog.upkeep.items()))


def _add_caches(page: Page, caches: Sequence[CacheFigures]) -> None:
    page.add("cache_hits_total", _by_word("cache", [(each.name, each.hits) for each in caches]))
    page.add("cache_misses_total", _by_word("cache", [(each.name, each.misses) for each in caches]))
    page.add("cache_entries", _by_word("cache", [(each.name, each.entries) for each in caches]))


def _add_storage(page: Page, figures: StorageFigures) -> None:
    page.add_one("disk_free_bytes", figures.disk_free_bytes)
    page.add_one("disk_size_bytes", figures.disk_size_bytes)
    page.add_one("disk_reserve_bytes", figures.reserve_bytes)
    page.add_one("disk_full", int(figures.is_full))
    page.add_one("storage_failed", int(figures.failure is not None))
    page.add_one("storage_waiting_writes", figures.waiting_writes)
    page.add_one("storage_stalls_total", figures.stalls)
    levels = list(enumerate(figures.levels))
    page.add("storage_level_files", _by_word("level", [(str(level), each.files) for level, each in levels]))
    page.add("storage_level_bytes", _by_word("level", [(str(level), each.size_bytes) for level, each in levels]))
    for name, value in figures.numbers.items():
        page.add_one("storage_write_stopped" if name == "is_write_stopped" else f"storage_{name}", value)
    if figures.cache_hits is not None and figures.cache_misses is not None:
        page.add("cache_hits_total", _by_word("cache", [("block", figures.cache_hits)]))
        page.add("cache_misses_total", _by_word("cache", [("block", figures.cache_misses)]))


# Of a node of a cluster. What is not known has no sample.


def _add_node(page: Page, figures: OwnFigures) -> None:
    page.add_one("cluster_leads", int(figures.leads))
    page.add_one("cluster_epoch", figures.epoch)
    page.add_one("cluster_drained", int(figures.is_drained))
    page.add_one("cluster_nodes", figures.node_count)
    page.add_one("cluster_live_nodes", figures.live_count)
    page.add_one("cluster_forwards_total", figures.forwards)
    page.add_one("cluster_lag_rows", figures.lag_rows)
    page.add_one("cluster_lag_transactions", figures.lag_transactions)
    page.add_one("cluster_lag_seconds", figures.lag_s)


def _add_log(page: Page, figures: OwnFigures) -> None:
    log, slowest = figures.log, figures.slowest
    page.add_one("cluster_log_readable", int(log is not None))
    if slowest is not None:
        page.add("cluster_slowest_replica_rows", [((("node", slowest[0]),), slowest[1])])
    if log is None:
        return
    page.add_one("cluster_log_bytes", log.size_bytes)
    page.add_one("cluster_log_dead_rows", log.dead_rows)
    if log.has_standby is not None:
        page.add_one("cluster_synchronous_standby_missing", int(log.wants_standby and not log.has_standby))


def _by_word(label: str, pairs: Iterable[tuple[str, float]]) -> Rows:
    return [(((label, word),), value) for word, value in pairs]
