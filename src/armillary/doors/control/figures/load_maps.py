"""The history of load over the control API: as a series for charts, as a heat map of hash ranges by time, and as what
another throughput would have refused of it."""

from __future__ import annotations

from datetime import datetime

from armillary import limits, work
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.doors.control.call import Call
from armillary.errors import bad_request
from armillary.insight.heat import METRICS, heat_map
from armillary.insight.throughput_preview import preview
from armillary.insight.timeline import STEPS, Steps, open_end, timeline
from armillary.model.json_members import shown
from armillary.net.http import Response

_WINDOW_S = 3_600.0
_SERIES_MAX = 2_880  # steps: two days by the minute
_ROWS_MAX = _COLUMNS_MAX = 1_440


async def show_history(call: Call) -> Response:
    asked = call.query("from", "to", "step")
    from_s, to_s = _window(call, asked)
    step_s = _whole(asked, "step", None, STEPS[0], STEPS[-1])
    if step_s is not None and step_s % STEPS[0]:
        raise bad_request(f"'step' must be a multiple of {STEPS[0]} seconds, not {step_s}.")
    most = limits.HEAT_COLUMNS if step_s is None else _SERIES_MAX
    steps = Steps.over(from_s, to_s, most, step_s)
    container = call.container()
    content = await work.drive(timeline(call.account, container, steps))
    gaps = call.account.history.gaps(steps.start_s, min(steps.end_s, call.account.clock.now_s()))
    return call.answer({**content, "step": steps.step_s, "gaps": [list(gap) for gap in gaps]})


async def show_heat(call: Call) -> Response:
    asked = call.query("metric", "from", "to", "rows", "columns")
    metric = asked.get("metric", METRICS[0])
    if metric not in METRICS:
        raise bad_request(f"'metric' must be one of {', '.join(METRICS)}, not '{shown(metric)}'.")
    rows = _whole(asked, "rows", limits.HEAT_ROWS, 1, _ROWS_MAX)
    columns = _whole(asked, "columns", limits.HEAT_COLUMNS, 2, _COLUMNS_MAX)
    assert rows is not None
    assert columns is not None
    if rows * columns > limits.HEAT_CELLS_MAX:
        raise bad_request(f"{rows} rows by {columns} columns are too many cells: at most {limits.HEAT_CELLS_MAX:,}.")
    from_s, to_s = _window(call, asked)
    container = call.container()
    steps = Steps.over(from_s, to_s, columns)
    return call.answer(await work.drive(heat_map(call.account, container, metric, steps, rows)))


async def preview_throughput(call: Call) -> Response:
    asked = call.query("throughput", "autoscale")
    if len(asked) != 1:
        raise bad_request("Give the 'throughput', or the 'autoscale' maximum, that is asked about.")
    container = call.container()
    if offers.offer_of(call.account, container.record) is None:
        raise bad_request(f"The container '{container.name}' has no throughput of its own.")
    if "autoscale" in asked:
        wanted = Throughput.autoscale(call.whole("autoscale", 0, 1, limits.THROUGHPUT_MAX_RU), None)
    else:
        wanted = Throughput.manual(call.whole("throughput", 0, 1, limits.THROUGHPUT_MAX_RU))
    return call.answer(await preview(call.account, container, wanted))


def _window(call: Call, asked: dict[str, str]) -> tuple[float, float]:
    """The time that is asked about; by default the last hour."""
    now_s = call.account.clock.now_s()
    latest_s = open_end(now_s)
    to_s = min(_time(asked, "to", latest_s), latest_s)
    from_s = _time(asked, "from", to_s - _WINDOW_S)
    oldest_s = now_s - limits.HISTORY_LAYERS[-1][1]
    return max(from_s, oldest_s), to_s


def _time(asked: dict[str, str], name: str, default: float) -> float:
    text = asked.get(name)
    if text is None:
        return default
    try:
        if text.isascii() and text.replace(".", "", 1).isdigit():
            return float(text)
        when = datetime.fromisoformat(text)
        if when.tzinfo is not None:
            return when.timestamp()
    except (ValueError, OverflowError):
        pass
    raise bad_request(
        f"'{name}' must be a time in seconds since 1970, or with its zone such as 2026-01-31T12:00:00Z, not "
        f"'{shown(text)}'."
    )


def _whole(asked: dict[str, str], name: str, default: int | None, least: int, most: int) -> int | None:
    text = asked.get(name)
    if text is None:
        return default
    if len(text) > 9 or not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise bad_request(f"'{name}' must be a whole number from {least} to {most}, not '{shown(text)}'.")
    return int(text)
