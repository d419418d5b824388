"""The report of `armillary estimate` as one HTML page: what is needed, what the operations cost, how the keys lie, and
what was assumed. The frame of the page is in `page.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.insight.report.page import bar, page, size, table, text


def estimate_page(content: dict[str, Any], version: str) -> str:
    """The page, of what `insight/planning/estimate.py` answers."""
    inputs = content["inputs"]
    title = f"Estimate for {', '.join(inputs['partitionKey'])}"
    return page(
        title,
        [
            f"<h1>{text(title)}</h1>",
            f"<p>{text(inputs['keys'])}<br><small>Made by Armillary {text(version)}</small></p>",
            *points("Warnings", content["warnings"]),
            *_needs(content),
            *_provisioned(content["provisioned"]),
            *_operations(content),
            *_keys(content),
            *points("What the figures rest on", content["restsOn"].values()),
            *points("Assumptions", content["assumptions"]),
        ],
    )


def points(title: str, texts: Iterable[str]) -> list[str]:
    """A heading with a list below it; nothing without texts."""
    lines = "".join(f"<li>{text(each)}</li>" for each in texts)
    return [f"<h2>{text(title)}</h2>", f"<ul>{lines}</ul>"] if lines else []


def origin(prices: dict[str, Any]) -> str:
    """What stands below amounts of money."""
    said = f"Amounts in {prices['currency']}, prices of {prices['asOf']}: {prices['source']}."
    return f"<p><small>{text(said)}</small></p>"


def amounts(bill: dict[str, Any]) -> list[str]:
    return [f"{bill[part]:,.2f}" for part in ("throughput", "storage", "total")]


def _needs(content: dict[str, Any]) -> list[str]:
    rows = []
    required = content["required"]
    for kind in ("manual", "autoscale"):
        need = required[kind]
        if need is None:
            rows.append([kind, "none", *["–"] * 7])
            continue
        sizes = [f"{need['partitions']:,}", f"{need['ruPerPartition']:,.1f}", size(need["bytesPerPartition"])]
        rows.append([kind, f"{need['throughputRu']:,}", *sizes, f"{need['surcharge']:.2f}", *amounts(need["monthly"])])
    free = required["serverless"]
    word = "serverless" if free["isPossible"] else "serverless (too small)"
    budget = f"{free['budgetRu']:,}"
    each = size(free["bytesPerPartition"])
    rows.append([word, "–", f"{free['partitions']:,}", budget, each, "–", *amounts(free["monthly"])])
    columns = ("needed", ">RU/s", ">partitions", ">RU/s each", ">data each", ">surcharge")
    costs = (">throughput a month", ">storage a month", ">sum")
    even = content["breakEven"]
    said = f"Autoscale costs less where the mean of hourly peaks is below {even['autoscaleBelowMeanOfPeaks']:.1%}."
    return ["<h2>Needed</h2>", table((*columns, *costs), rows), origin(free["monthly"]["prices"]), f"<p>{said}</p>"]


def _provisioned(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    refused, hottest = found["refusedShare"], found["hottestRefusedShare"]
    rows = [
        ["throughput", f"{found['throughputRu']:,} RU/s ({text(found['kind'])})"],
        ["partitions", f"{found['partitions']:,} of {found['ruPerPartition']:,.1f} RU/s"],
        ["hottest partition", f"{bar(found['normalizedRu'])} {found['normalizedRu']:.0%} of its share"],
        ["refused", f"{refused['value']:.2%} of all units ({refused['low']:.2%} to {refused['high']:.2%})"],
        [
            "refused by the hottest",
            f"{hottest['value']:.2%} of its units ({hottest['low']:.2%} to {hottest['high']:.2%})",
        ],
    ]
    return ["<h2>The throughput of the workload, at the peak</h2>", table(("figure", "value"), rows)]


def _operations(content: dict[str, Any]) -> list[str]:
    total = sum(each["ruPerSecond"] for each in content["operations"]) or 1.0
    rows = [
        [
            text(each["kind"] + (f" by {', '.join(each['filter'])}" if each["filter"] else "")),
            f"{each['rate']:,.1f}",
            f"{each['chargeRu']:,.2f}",
            f"{each['partitions']:,.1f}",
            f"{each['ruPerSecond']:,.1f}",
            bar(each["ruPerSecond"] / total),
        ]
        for each in content["operations"]
    ]
    columns = ("operation", ">a second", ">RU each", ">partitions", ">RU/s", "share")
    return ["<h2>Operations at the peak</h2>", table(columns, rows)]


def _keys(content: dict[str, Any]) -> list[str]:
    keys, storage = content["keys"], content["storage"]
    full = f"day {keys['fullOnDay']:,.1f}" if keys["fullOnDay"] is not None else "not within ten years"
    rows = [
        ["stored", size(storage["bytes"])],
        ["growth a day", size(max(0, storage["growthBytesPerDay"]))],
        ["values", f"{keys['count']:,}"],
        ["effective keys", f"{keys['effectiveKeys']:,.1f}"],
        ["largest key", f"{text(keys['largestKey'])}: {keys['largestShare']:.2%}, {size(keys['largestBytes'])}"],
        ["full on", full],
    ]
    return ["<h2>Keys and storage</h2>", table(("figure", "value"), rows)]
