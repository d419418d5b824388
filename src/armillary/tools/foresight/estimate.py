"""`armillary estimate`: what a workload needs, at once. Of a workload file, or of rates and sizes as options."""

from __future__ import annotations

from typing import Any, Final

from armillary import __version__, limits
from armillary.errors import Failure, bad_request
from armillary.insight.planning.estimate import EstimateOptions, estimate
from armillary.insight.planning.needs import UTILISATION
from armillary.insight.planning.workload import Workload, parse_workload, read_workload
from armillary.insight.report.estimate_page import estimate_page
from armillary.tools.commands.report import write_page
from armillary.tools.foresight.inputs import (
    asked_index_share,
    asked_limits,
    asked_prices,
    asked_seed,
    asked_size,
    asked_time_s,
    price_warnings,
    read_text,
    reader_beside,
    say_points,
    say_wrapped,
    with_asked_bounds,
)
from armillary.tools.screen import Screen, percent, size, units

_KINDS: Final = {
    "reads": "read",
    "creates": "create",
    "upserts": "upsert",
    "replaces": "replace",
    "deletes": "delete",
    "queries": "query",
    "cross_queries": "query",
}
_OWN: Final = ("rows", "item_size", "terms", "size", "distinct", "zipf", "throughput", "autoscale", "serverless")
_PLACES: Final = {
    "container.throughput": "--throughput",
    "container.autoscale": "--autoscale",
    "data.item_bytes": "--item-size",
    "data.size": "--size",
    "data.terms": "--terms",
    "data.keys.uniform": "--distinct",
    "data.keys.count": "--distinct",
    "data.keys.zipf": "--zipf",
}
_DISTINCT: Final = 1_000_000
_ROWS: Final = 10.0


def run_estimate(arguments: dict[str, Any]) -> int:
    screen = Screen(is_json="json" in arguments)
    prices = asked_prices(arguments)
    utilisation = float(arguments.get("utilisation", UTILISATION))
    if not 0.01 <= utilisation <= 1.0:
        raise bad_request(f"--utilisation is {utilisation:g}; expected a share from 0.01 to 1.")
    options = EstimateOptions(
        asked_time_s(arguments, "horizon", "--for", 0.0),
        utilisation,
        asked_index_share(arguments),
        "dynamic" in arguments,
    )
    content = estimate(with_asked_bounds(_workload(arguments), arguments), prices, options)
    content["warnings"] += price_warnings(prices)
    if "html" in arguments:
        write_page(estimate_page(content, __version__), arguments["html"])
    if screen.is_json:
        screen.content(content)
    else:
        _print(screen, content)
    return 0


def _workload(arguments: dict[str, Any]) -> Workload:
    seed = asked_seed(arguments)
    given = [name for name in (*_KINDS, *_OWN) if name in arguments]
    if "workload" in arguments:
        if given:
            option = given[0].replace("_", "-")
            raise bad_request(f"--{option} goes without --workload: the file says it.")
        file = arguments["workload"]
        return parse_workload(read_text(file), reader_beside(file), seed, asked_limits(arguments))
    if not any(name in arguments for name in _KINDS):
        raise bad_request("Give --workload FILE, or rates such as --reads 500 --creates 100.")
    try:
        return read_workload(_document(arguments), read_text, seed, asked_limits(arguments))
    except Failure as failure:
        raise bad_request(_in_options(failure.message, arguments)) from None


def _in_options(message: str, arguments: dict[str, Any]) -> str:
    """A refusal of the workload, with the option that said the field instead of its place."""
    rates = [name for name in _KINDS if name in arguments]
    options = {f"operations[{place}].rate": f"--{name.replace('_', '-')}" for place, name in enumerate(rates)}
    options |= {f"operations[{place}].rows": "--rows" for place in range(len(rates))}
    for place, option in (options | _PLACES).items():
        if message.startswith(place):
            return option + message.removeprefix(place)
    return message


def _document(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same as a workload file would say."""
    container: dict[str, Any] = {"partition_key": ["/key"]}
    container.update({name: arguments[name] for name in ("throughput", "autoscale", "serverless") if name in arguments})
    count = arguments.get("distinct", _DISTINCT)
    keys = {"zipf": arguments["zipf"], "count": count} if "zipf" in arguments else {"uniform": count}
    operations = []
    for name, kind in _KINDS.items():
        if name in arguments:
            operation = {"kind": kind, "rate": arguments[name]}
            if kind == "query":
                operation["rows"] = arguments.get("rows", _ROWS)
                operation["filter"] = ["/key"] if name == "queries" else []
            operations.append(operation)
    item_bytes = asked_size(arguments, "item_size", limits.KB)
    data = {"size": asked_size(arguments, "size", 0), "item_bytes": item_bytes, "keys": keys}
    if "terms" in arguments:
        data["terms"] = arguments["terms"]
    return {"container": container, "data": data, "operations": operations}


# What is printed.


def _print(screen: Screen, content: dict[str, Any]) -> None:
    inputs, peak, keys, storage = (content[name] for name in ("inputs", "peak", "keys", "storage"))
    screen.heading(f"Partition key {', '.join(inputs['partitionKey'])}: {inputs['keys']}")
    growth = f", {size(storage['growthBytesPerDay'])} more a day" if storage["growthBytesPerDay"] > 0 else ""
    day = f"in {inputs['horizonDays']:,.0f} days" if inputs["horizonDays"] else "now"
    say_wrapped(screen, f"{size(storage['bytes'])} stored {day}{growth}.")
    rows = [
        [
            each["kind"] + (f" by {', '.join(each['filter'])}" if each["filter"] else ""),
            units(each["rate"]),
            f"{each['chargeRu']:,.2f}",
            f"{each['partitions']:,.1f}",
            units(each["ruPerSecond"]),
        ]
        for each in content["operations"]
    ]
    screen.table(("operation", ">a second", ">RU each", ">partitions", ">RU/s"), rows)
    say_wrapped(
        screen,
        f"{units(peak['totalRu'])} RU/s at the peak on {peak['partitions']:,} partitions. The hottest has "
        f"{units(peak['hottestRu'])}: {peak['hottestOfFair']:.2f} times its fair share.",
    )
    full = f"full on day {keys['fullOnDay']:,.1f}" if keys["fullOnDay"] is not None else "not full within ten years"
    share = f"{_small_percent(keys['largestShare'])} of the bytes ({size(keys['largestBytes'])})"
    say_wrapped(
        screen,
        f"The largest key, {keys['largestKey']}, has {share}, {full}. Effective keys: {units(keys['effectiveKeys'])}.",
    )
    screen.say("")
    _print_needs(screen, content)
    _print_provisioned(screen, content["provisioned"])
    _print_scaling(screen, content)
    say_points(screen, "Warnings", content["warnings"])
    say_points(screen, "What the figures rest on", list(content["restsOn"].values()))
    say_points(screen, "Assumptions", content["assumptions"])


def _small_percent(share: float) -> str:
    """With three significant digits: one key of a million has 0.0001%."""
    return f"{100 * share:.3g}%" if share >= 1e-6 else f"{100 * share:.6f}%"


def _print_needs(screen: Screen, content: dict[str, Any]) -> None:
    rows = []
    required = content["required"]
    for kind in ("manual", "autoscale"):
        need = required[kind]
        if need is None:
            rows.append([kind, "none", "", "", "", ""])
            continue
        rows.append(
            [
                kind if kind == "manual" else "autoscale, up to",
                f"{need['throughputRu']:,}",
                f"{need['partitions']:,}",
                units(need["ruPerPartition"]),
                size(need["bytesPerPartition"]),
                _amount(need["monthly"]),
            ]
        )
    free = required["serverless"]
    if free["isPossible"]:
        each = size(free["bytesPerPartition"])
        rows.append(
            ["serverless", "-", f"{free['partitions']:,}", f"{free['budgetRu']:,}", each, _amount(free["monthly"])]
        )
    else:
        rows.append(["serverless", "none", "", "", "", ""])
    screen.table(
        ("needed", ">RU/s", ">partitions", ">RU/s each", ">data each", ">a month"),
        rows,
        drop=("data each", "RU/s each"),
    )
    _print_origin(screen, free["monthly"])
    manual = required["manual"]
    if manual is not None:
        parts = manual["monthly"]
        say_wrapped(
            screen,
            f"Manual: {parts['throughput']:,.2f} for throughput and {parts['storage']:,.2f} for storage, "
            f"{manual['surcharge']:.2f} times what even load would need.",
        )
    even = content["breakEven"]
    text = f"Autoscale costs less where the mean of hourly peaks is below {percent(even['autoscaleBelowMeanOfPeaks'])}"
    if "serverlessBelowUse" in even:
        text += f", serverless below {even['serverlessBelowUse']:.1%} use"
    say_wrapped(screen, text + ".")


def _print_origin(screen: Screen, bill: dict[str, Any]) -> None:
    prices = bill["prices"]
    say_wrapped(screen, f"Amounts in {prices['currency']}, prices of {prices['asOf']}: {prices['source']}.")


def _amount(bill: dict[str, Any]) -> str:
    return f"{bill['total']:,.2f}"


def _print_provisioned(screen: Screen, found: dict[str, Any] | None) -> None:
    if found is None:
        return
    refused, hottest = found["refusedShare"], found["hottestRefusedShare"]
    say_wrapped(
        screen,
        f"The {found['kind']} throughput of the workload, {found['throughputRu']:,} RU/s, is {found['partitions']:,} "
        f"partitions of {units(found['ruPerPartition'])} RU/s and {size(found['bytesPerPartition'])}. At the peak the "
        f"hottest uses {percent(found['normalizedRu'])} of its share; {refused['value']:.2%} of all units are refused "
        f"({refused['low']:.2%} to {refused['high']:.2%}), {hottest['value']:.2%} of the hottest partition's "
        f"({hottest['low']:.2%} to {hottest['high']:.2%}).",
    )


def _print_scaling(screen: Screen, content: dict[str, Any]) -> None:
    ingest, manual = content["storage"]["ingest"], content["required"]["manual"]
    if content["storage"]["bytes"]:
        say_wrapped(
            screen,
            f"To load the data at once: create with {ingest['createWithRu']:,} RU/s "
            f"({ingest['createdPartitions']:,} partitions{_until_full(ingest)}), "
            + (f"scale to {ingest['scaleToRu']:,}, " if ingest["scaleToRu"] > ingest["createWithRu"] else "")
            + f"done in {ingest['hours']:,.1f} hours"
            + (f"; with the needed throughput in {manual['ingestDays']:,.1f} days." if manual is not None else "."),
        )
    if manual is not None:
        if manual["createWithRu"] != manual["throughputRu"]:
            say_wrapped(screen, f"Create with {manual['createWithRu']:,} RU/s, then scale up: fewer partitions.")
        say_wrapped(screen, _splits_by_throughput(manual))


def _until_full(ingest: dict[str, Any]) -> str:
    return ", which split as they fill up" if ingest["createdPartitions"] < ingest["partitions"] else ""


def _splits_by_throughput(manual: dict[str, Any]) -> str:
    text = f"Up to {manual['carriedRu']:,} RU/s no partition has to split"
    if manual["evenScaleUpRu"] is None:
        return f"{text}."
    return f"{text}; beyond, {manual['evenScaleUpRu']:,} RU/s divides all alike."
