"""`armillary simulate`: what happens to a container over months under a workload, and what if a field were another."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any, Final

from armillary import __version__
from armillary.errors import bad_request
from armillary.insight.planning.toml_tables import MONTH_S
from armillary.insight.planning.workload import read_workload
from armillary.insight.report.simulation_page import comparison_page, simulation_page
from armillary.tools.commands.report import write_page
from armillary.tools.foresight.inputs import (
    BOUNDS,
    asked_index_share,
    asked_limits,
    asked_prices,
    asked_seed,
    asked_time_s,
    extra_packages,
    price_warnings,
    read_text,
    reader_beside,
    say_points,
    say_wrapped,
    with_asked_bounds,
)
from armillary.tools.screen import Screen, percent, size

_HORIZON_S: Final = 12 * MONTH_S
_HORIZON_S_MAX: Final = 120 * MONTH_S
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_SPARK_CELLS: Final = 48
_ROWS: Final = 9
_EVENTS, _KEYS = 8, 5
_LINES: Final = (
    ("bytes", "stored"),
    ("partitions", "partitions"),
    ("demandRu", "RU/s asked"),
    ("normalizedMax", "hottest"),
    ("refusedShare", "429"),
    ("fullShare", "403 of writes"),
)


def run_simulate(arguments: dict[str, Any]) -> int:
    with extra_packages("simulate"):
        from armillary.insight.simulation.outcome import simulate
        from armillary.insight.simulation.simulator import SimulationOptions
        from armillary.insight.simulation.variations import compared, parse_variations
    screen = Screen(is_json="json" in arguments)
    prices = asked_prices(arguments)
    horizon_s = asked_time_s(arguments, "horizon", "--for", _HORIZON_S)
    if not 60.0 <= horizon_s <= _HORIZON_S_MAX:
        raise bad_request(f"--for is {arguments['horizon']}; expected a time from 1min to 120mo.")
    step_s = asked_time_s(arguments, "step", "--step", 0.0) or None
    if "step" in arguments and step_s is None:
        raise bad_request("--step is 0; expected a time such as 1s, 1min or 1h.")
    options = SimulationOptions(
        horizon_s, step_s, arguments.get("place") == "cloud", asked_index_share(arguments), "dynamic" in arguments
    )
    document, seed = _document(arguments["workload"]), asked_seed(arguments)
    limits = asked_limits(arguments)

    def run(content: dict[str, Any], other_seed: int | None = None) -> dict[str, Any]:
        chosen = seed if other_seed is None else other_seed
        workload = read_workload(content, reader_beside(arguments["workload"]), chosen, limits)
        found = simulate(with_asked_bounds(workload, arguments), prices, options)
        found["warnings"] += price_warnings(prices)
        return found

    varied = [each for each in arguments.get("vary", ()) if each.startswith("limits.")]
    if varied and any(name in arguments for name in BOUNDS):
        raise bad_request(f"--vary {varied[0]} goes without options for the limits of partitions.")
    if "vary" in arguments:
        content = compared(document, parse_variations(arguments["vary"]), run)
    else:
        content = run(document)
    if "html" in arguments:
        make_page = comparison_page if "vary" in arguments else simulation_page
        write_page(make_page(content, __version__), arguments["html"])
    if screen.is_json:
        screen.content(content)
    elif "vary" in arguments:
        _print_runs(screen, content)
    else:
        _print(screen, content)
    return 0


def _document(name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(name))
    except tomllib.TOMLDecodeError as error:
        raise bad_request(f"The workload is not valid TOML: {error}.") from None


# One run.


def _print(screen: Screen, content: dict[str, Any]) -> None:
    inputs, timeline = content["inputs"], content["timeline"]
    screen.heading(f"{inputs['days']:,.1f} days of {', '.join(inputs['partitionKey'])}: {inputs['keys']}")
    for sentence in content["sentences"]:
        say_wrapped(screen, sentence, "- ")
    screen.say("")
    for name, label in _LINES:
        values = [float(point[name]) for point in timeline]
        line = f"{label:<14} {spark(values)} {_shown(name, values[-1])}"
        screen.say(line)
    _print_points(screen, timeline)
    _print_money(screen, content)
    _print_keys(screen, content["topKeys"])
    _print_events(screen, content)
    say_points(screen, "Warnings", content["warnings"])
    say_points(screen, "What the figures rest on", list(content["restsOn"].values()))
    say_points(screen, "Assumptions", content["assumptions"])
    say_wrapped(screen, f"Not known here: {'; '.join(content['notKnown'])}.")


def spark(values: Sequence[float], cells: int = _SPARK_CELLS) -> str:
    """A line of blocks: the highest of each cell, on a scale from 0 to the highest of all."""
    cells = min(cells, len(values))
    highest = max(values)
    shown = [max(values[cell * len(values) // cells : (cell + 1) * len(values) // cells]) for cell in range(cells)]
    top = len(_SPARKS) - 1
    return "".join(_SPARKS[round(value / highest * top) if highest > 0 else 0] for value in shown)


def _shown(name: str, value: float) -> str:
    if name == "bytes":
        return size(round(value))
    if name == "normalizedMax":
        return percent(value)
    return f"{value:.2%}" if name.endswith("Share") else f"{value:,.0f}"


def _print_points(screen: Screen, timeline: list[dict[str, Any]]) -> None:
    last = len(timeline) - 1
    picked = sorted({round(row * last / (_ROWS - 1)) for row in range(_ROWS)})
    rows = [
        [
            f"{point['day']:,.1f}",
            size(round(point["bytes"])),
            f"{point['partitions']:,}",
            f"{point['ruPerPartition']:,.0f}",
            f"{point['demandRu']:,.0f}",
            percent(point["normalizedMax"]),
            f"{point['refusedShare']:.2%}",
            f"{point['fullShare']:.1%}",
        ]
        for point in (timeline[index] for index in picked)
    ]
    screen.table(
        (">day", ">stored", ">parts", ">each", ">RU/s", ">hottest", ">429", ">403"), rows, drop=("each", "parts")
    )


def _print_money(screen: Screen, content: dict[str, Any]) -> None:
    whole, month = content["money"]["whole"], content["money"]["perMonth"]
    prices = whole["prices"]
    say_wrapped(
        screen,
        f"{whole['total']:,.2f} {prices['currency']} in all: {whole['throughput']:,.2f} for throughput and "
        f"{whole['storage']:,.2f} for storage; {month['total']:,.2f} a month. Prices of {prices['asOf']}: "
        f"{prices['source']}.",
    )


def _print_keys(screen: Screen, keys: list[dict[str, Any]]) -> None:
    rows = [
        [
            each["key"],
            size(each["bytes"]),
            f"{each['demandShare']:.2%}",
            f"day {each['fullOnDay']:,.1f}" if each["fullOnDay"] is not None else "-",
        ]
        for each in keys[:_KEYS]
    ]
    screen.table(("largest keys", ">bytes", ">of the load", ">full on"), rows)


def _print_events(screen: Screen, content: dict[str, Any]) -> None:
    """The first of each kind, and of the rest as many as there is room for, in order."""
    events = content["events"]
    firsts = {each["kind"]: index for index, each in reversed(list(enumerate(events)))}
    by_rank = sorted(range(len(events)), key=lambda index: (index not in firsts.values(), index))
    shown = [events[index] for index in sorted(by_rank[:_EVENTS])]
    for event in shown:
        say_wrapped(screen, event["text"], f"day {event['day']:>8,.2f}  ")
    rest = len(events) - len(shown) + content["eventsLeftOff"]
    if rest > 0:
        say_wrapped(screen, f"and {rest:,} more events (--json has them).")


# Several runs.


def _print_runs(screen: Screen, content: dict[str, Any]) -> None:
    rows = []
    for number, each in enumerate(content["runs"], 1):
        totals, whole = each["result"]["totals"], each["result"]["money"]["whole"]
        marked = set(each["differing"])
        rows.append(
            [
                str(number),
                _mark(f"{totals['partitions']:,}", "partitions" in marked),
                _mark(f"{totals['refusedShare']:.2%}", "refusedShare" in marked),
                _mark(f"{totals['fullShareOfWrites']:.2%}", "fullShareOfWrites" in marked),
                _mark(percent(totals["normalizedP99"]), "normalizedP99" in marked),
                _mark(f"{totals['fullKeys']:,}", "fullKeys" in marked),
                _mark(f"{whole['total']:,.2f}", "money" in marked),
            ]
        )
    for number, each in enumerate(content["runs"], 1):
        values = ", ".join(f"{name} = {value}" for name, value in each["values"].items())
        say_wrapped(screen, values, f"{number:>2}: ")
    screen.table((">run", ">partitions", ">429", ">403", ">p99 hottest", ">full keys", ">money"), rows)
    first = content["runs"][0]["result"]
    prices = first["money"]["whole"]["prices"]
    say_wrapped(screen, "* differs from run 1. 429: share of request units. 403: share of writes, for good.")
    say_wrapped(screen, f"Amounts in {prices['currency']}, prices of {prices['asOf']}: {prices['source']}.")
    say_points(screen, "Warnings", first["warnings"])
    say_points(screen, "What the figures rest on", list(first["restsOn"].values()))
    say_points(screen, "Assumptions", first["assumptions"])
    say_wrapped(screen, f"Not known here: {'; '.join(first['notKnown'])}.")


def _mark(text: str, is_different: bool) -> str:
    return f"{text}*" if is_different else text
