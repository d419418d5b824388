"""Metrics in the text format of Prometheus, made when they are asked for from what the account counts anyway."""

from __future__ import annotations

from collections.abc import Iterable

from armillary import __version__
from armillary.account import overview
from armillary.doors.control.call import Call
from armillary.doors.control.errors import HEADERS
from armillary.net.http import BareResponse, Response

_CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = tuple[tuple[str, str], ...]
Samples = list[tuple[Labels, float]]


async def read_metrics(call: Call) -> Response:
    call.query()
    headers = [(name, _CONTENT_TYPE if name == b"content-type" else value) for name, value in HEADERS]
    text = "".join(_lines(call))
    return BareResponse(200, headers, text.encode("utf-8", "replace"))


def _lines(call: Call) -> Iterable[str]:
    account = call.account
    yield from _metric("info", "gauge", "The server's version.", [((("version", __version__),), 1)])
    uptime_s = account.clock.elapsed_s() - call.services.begun_s
    yield from _metric("uptime_seconds", "gauge", "Since the server began to serve.", [((), round(uptime_s, 3))])
    yield from _metric("connections", "gauge", "Open connections.", [((), call.services.connection_count())])
    metadata = account.budgets.metadata.totals
    meaning = "about databases, containers and other definitions"
    yield from _metric("metadata_requests_total", "counter", f"Requests {meaning}.", [((), metadata.requests)])
    charged: Samples = [((), metadata.charged_ru)]
    yield from _metric("metadata_charge_request_units_total", "counter", f"Charged for requests {meaning}.", charged)
    yield from _containers(call)
    yield from _partitions(call)
    rules = account.faults.rules.values()
    hits: Samples = [((("rule", str(rule.id)),), rule.hits) for rule in rules]
    yield from _metric("fault_hits_total", "counter", "Requests that a fault rule has hit.", hits)


def _containers(call: Call) -> Iterable[str]:
    partition_counts: Samples = []
    requests: Samples = []
    charges: Samples = []
    refused: Samples = []
    would_be_refused: Samples = []
    for container in call.account.containers:
        labels = (("database", container.database.name), ("container", container.name))
        totals = overview.container_totals(container)
        partition_counts.append((labels, len(container.partitions)))
        requests.append((labels, totals.requests))
        charges.append((labels, totals.charged_ru))
        refused.append((labels, totals.refused))
        would_be_refused.append((labels, totals.would_be_refused))
    yield from _metric("partitions", "gauge", "Physical partitions.", partition_counts)
    yield from _metric("requests_total", "counter", "Requests about items, refused ones included.", requests)
    yield from _metric("charge_request_units_total", "counter", "Request units charged.", charges)
    yield from _metric("refused_total", "counter", "Requests beyond the budget, refused with 429.", refused)
    meaning = "Requests beyond the budget, served because budgets are only observed."
    yield from _metric("would_be_refused_total", "counter", meaning, would_be_refused)


def _partitions(call: Call) -> Iterable[str]:
    items: Samples = []
    sizes: Samples = []
    budgets: Samples = []
    spent: Samples = []
    for container in call.account.containers:
        names = (("database", container.database.name), ("container", container.name))
        for figures in overview.partition_figures(container):
            labels = (*names, ("partition", str(figures.range.id)))
            items.append((labels, figures.item_count))
            sizes.append((labels, figures.size_bytes))
            if figures.budget_ru is not None:
                budgets.append((labels, figures.budget_ru))
            spent.append((labels, figures.spent_ru[-1] if figures.spent_ru else 0.0))
    yield from _metric("partition_items", "gauge", "Items in a physical partition.", items)
    yield from _metric("partition_bytes", "gauge", "Bytes of items in a physical partition.", sizes)
    yield from _metric("partition_budget_request_units", "gauge", "What a partition may spend in a second.", budgets)
    yield from _metric("partition_spent_request_units", "gauge", "What a partition spent in the last second.", spent)


def _metric(name: str, kind: str, meaning: str, samples: Samples) -> Iterable[str]:
    yield f"# HELP armillary_{name} {meaning}\n# TYPE armillary_{name} {kind}\n"
    for labels, value in samples:
        inside = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
        yield f"armillary_{name}{{{inside}}} {value!r}\n" if inside else f"armillary_{name} {value!r}\n"
