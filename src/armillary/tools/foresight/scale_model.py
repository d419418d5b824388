"""`armillary scale-model`: the same workload on the real engine, small, beside what the simulator predicts for it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from armillary import __version__, limits
from armillary.errors import bad_request
from armillary.insight.planning.toml_tables import DAY_S, MONTH_S
from armillary.insight.planning.workload import parse_workload
from armillary.insight.report.estimate_page import points
from armillary.insight.report.page import page, table, text
from armillary.tools.commands.report import write_page
from armillary.tools.foresight.inputs import (
    asked_limits,
    asked_seed,
    asked_time_s,
    extra_packages,
    read_text,
    reader_beside,
    say_points,
    say_wrapped,
    with_asked_bounds,
)
from armillary.tools.screen import Screen

_FOR_S: Final = 30 * DAY_S
_FOR_S_MAX: Final = 120 * MONTH_S
_NUMBERS: Final = ("partitions", "RU/s")
# Short enough for a row of 80 columns.
_LABELS: Final = {
    "429 share, worst partition": "429, worst partition",
    "largest key, bytes": "largest key",
    "fullest partition, bytes": "fullest partition",
}
_UNITS: Final = (("KB", limits.KB), ("MB", limits.MB))


def run_scale_model(arguments: dict[str, Any]) -> int:
    with extra_packages("scale-model"):
        from armillary.insight.scale_model.comparison import scale_model
        from armillary.insight.scale_model.run import LOOKS_MAX
        from armillary.insight.scale_model.scaling import ITEMS_DEFAULT, ITEMS_MAX, ITEMS_MIN
    screen = Screen(is_json="json" in arguments)
    seed = asked_seed(arguments)
    file = arguments["workload"]
    workload = parse_workload(read_text(file), reader_beside(file), seed, asked_limits(arguments))
    workload = with_asked_bounds(workload, arguments)
    for_s = asked_time_s(arguments, "horizon", "--for", _FOR_S)
    if not 60.0 <= for_s <= _FOR_S_MAX:
        raise bad_request(f"--for is {arguments['horizon']}; expected a time from 1min to 120mo.")
    items = _number(arguments, "items", ITEMS_DEFAULT, ITEMS_MIN, ITEMS_MAX)
    looks = _number(arguments, "looks", LOOKS_MAX, 1, LOOKS_MAX)
    content = asyncio.run(scale_model(workload, for_s, items=items, looks=looks, seed=seed))
    if "html" in arguments:
        write_page(_page(content), arguments["html"])
    if screen.is_json:
        screen.content(content)
    else:
        _print(screen, content)
    return 0


def _number(arguments: dict[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = int(arguments.get(name, default))
    if not low <= value <= high:
        raise bad_request(f"--{name} is {value}; expected a number from {low:,} to {high:,}.")
    return value


def _print(screen: Screen, content: dict[str, Any]) -> None:
    inputs = content["inputs"]
    screen.heading(f"{inputs['days']:,.1f} days of {', '.join(inputs['partitionKey'])}: {inputs['keys']}")
    say_wrapped(screen, _divided(content))
    for look in content["looks"]:
        rows = [_row(figure) for figure in look["figures"]]
        screen.table(("figure", ">predicted", ">interval", ">seen", ""), rows, f"Day {look['day']:,.1f}")
    say_wrapped(screen, _verdict(content))
    say_points(screen, "What the figures rest on", list(content["restsOn"].values()))
    say_points(screen, "Assumptions", content["assumptions"])


def _divided(content: dict[str, Any]) -> str:
    scaling = content["scaling"]
    return (
        f"{content['inputs']['items']:,} items: storage is divided by {scaling['storage']:,.0f}, throughput by "
        f"{scaling['throughput']:,}."
    )


def _verdict(content: dict[str, Any]) -> str:
    figures = [(look["day"], each) for look in content["looks"] for each in look["figures"]]
    judged = sum(each["isJudged"] for _, each in figures)
    missed = [f"{each['name']} on day {day:,.1f}" for day, each in figures if not each["agrees"]]
    if not missed:
        return f"All {judged} figures that can be judged agree."
    return f"{judged - len(missed)} of {judged} figures agree; not: {', '.join(missed)}."


def _row(figure: dict[str, Any]) -> tuple[str, str, str, str, str]:
    name = figure["name"]
    word = "not judged" if not figure["isJudged"] else "" if figure["agrees"] else "differs"
    interval = f"{_shown(name, figure['low'])} to {_shown(name, figure['high'])}"
    return _LABELS.get(name, name), _shown(name, figure["predicted"]), interval, _shown(name, figure["seen"]), word


def _shown(name: str, value: float) -> str:
    if "share" in name:
        return f"{value:.2%}"
    if name in _NUMBERS:
        return f"{value:,.0f}"
    for unit, bytes_of in _UNITS:
        if value < 999.5 * bytes_of:
            return f"{value / bytes_of:.3g} {unit}"
    return f"{value / limits.GB:,.1f} GB"


def _page(content: dict[str, Any]) -> str:
    inputs = content["inputs"]
    title = f"Scale model of {', '.join(inputs['partitionKey'])}"
    body = [
        f"<h1>{text(title)}</h1>",
        f"<p>{text(inputs['keys'])}<br><small>Made by Armillary {text(__version__)}</small></p>",
        f"<p>{text(_divided(content))} {text(_verdict(content))}</p>",
    ]
    for look in content["looks"]:
        rows = [[text(cell) for cell in _row(each)] for each in look["figures"]]
        body.append(f"<h2>Day {look['day']:,.1f}</h2>")
        body.append(table(("figure", ">predicted", ">interval", ">seen", "agreement"), rows))
    body += points("What the figures rest on", content["restsOn"].values())
    return page(title, [*body, *points("Assumptions", content["assumptions"])])
