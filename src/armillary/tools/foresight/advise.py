"""`armillary advise`: which partition key suits data and requests, and why. Reads the rows of any source that `import`
reads, or a sample of a running server's container; changes nothing. Exit codes: 0 answered, 2 refused, 3 undecided.
"""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import replace
from typing import Any, Final

from armillary import __version__
from armillary.errors import bad_request
from armillary.insight.advice import candidates as keys
from armillary.insight.advice.advice_content import advice_content
from armillary.insight.advice.advice_plan import HORIZON_DAYS, KnownFigures, Plan
from armillary.insight.advice.advisor import advise
from armillary.insight.advice.captured_load import Records, finder, load_of_records
from armillary.insight.advice.reading.data_profile import Profile, Profiler
from armillary.insight.advice.reading.reservoir import ROWS_DEFAULT, ROWS_MAX
from armillary.insight.advice.reading.value_counts import require_sketches
from armillary.insight.advice.request_load import Load, load_of_workload
from armillary.insight.captures import open_capture
from armillary.insight.planning.needs import UTILISATION
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.insight.planning.toml_tables import DAY_S, duration_s, size_bytes
from armillary.insight.planning.workload import Workload, parse_workload
from armillary.insight.report.advice_page import advice_page
from armillary.model.keys import parse_path
from armillary.tools.commands.report import write_page
from armillary.tools.foresight.advice_screen import draw_advice
from armillary.tools.foresight.advise_definition import asked_definition, definition_of
from armillary.tools.foresight.advise_sources import Rows, columns_named_by_values, rows_of
from armillary.tools.foresight.inputs import (
    asked_bounds,
    asked_index_share,
    asked_limits,
    asked_prices,
    asked_seed,
    asked_time_s,
    price_warnings,
    read_text,
    reader_beside,
)
from armillary.tools.screen import Screen, count
from armillary.tools.serving import event_loop
from armillary.tools.settings import Settings
from armillary.tools.transfer.rows import Row

UNDECIDED_CODE: Final = 3
_READING: Final = 0.8  # of the progress
_PERIODS: Final = {"day": "1d", "week": "1w", "month": "1mo", "year": "1y", "hour": "1h"}


def run_advise(arguments: dict[str, Any], settings: Settings) -> int:
    require_sketches()
    screen = Screen(is_json="json" in arguments)
    prices = asked_prices(arguments)
    asked = [keys.asked_for(each) for each in arguments.get("candidate", ())]
    workload = _workload(arguments, asked_limits(arguments))
    plan = _plan(arguments, workload)
    if "workload" in arguments and "requests" in arguments:
        raise bad_request("Give --workload or --requests: a plan and what happened do not add up.")
    named = {parse_path(path) for each in asked for path in each.paths}
    named |= {parse_path(path) for path in (*plan.must, *plan.known)}
    if workload is not None:
        named |= {parse_path(path) for each in workload.operations for path in each.filter}
    captures = [open_capture(name) for name in arguments.get("requests", ())]
    if len(captures) > 1 and len({capture.head.key for capture in captures}) > 1:
        raise bad_request("The captures of --requests are of containers with different partition keys.")
    named |= {parse_path(path) for capture in captures for path in capture.head.key}
    sample_rows = _asked_rows(arguments)
    definition = asked_definition(arguments.get("definition"))
    rows = rows_of(arguments, settings, sample_rows, plan.seed)
    named |= {parse_path(path) for path in rows.present_key}
    if rows.figures is not None:
        plan = replace(plan, figures=KnownFigures.of(rows.figures))
        if "profile" not in arguments and "limits" in rows.figures:
            of_server = PartitionLimits.from_json(rows.figures["limits"])
            workload = _workload(arguments, of_server)
            plan = replace(plan, limits=asked_bounds(arguments, workload.bounds if workload is not None else of_server))
        if "definition" not in arguments:
            definition = definition_of(rows.figures, arguments["source"])
    profiler = Profiler(rows=sample_rows, seed=plan.seed, named=named, indexing=definition.indexing)
    with screen.progress(f"advise {arguments['source']}") as update:
        try:
            event_loop.run(_read(rows, profiler, update, arguments["source"]))
        except KeyboardInterrupt:
            print(f"armillary: ended while reading, after {profiler.rows:,} rows; nothing is written.", file=sys.stderr)
            raise
        profile = profiler.profile()
        load = _load(arguments, workload, captures, plan, profile, rows.present_key)
        advice = advise(
            profile,
            load,
            plan,
            asked=asked,
            unique_indexes=definition.unique_indexes,
            progress=lambda share, text: update(_READING + (1.0 - _READING) * share, text),
        )
    statements = [rows.statement, columns_named_by_values(arguments, profile)]
    warnings = [*filter(None, statements), *price_warnings(prices)]
    if advice.best is not None:
        warnings += definition.warnings(advice.best.scores.candidate.paths)
    content = advice_content(advice, prices, arguments["source"], warnings)
    if "html" in arguments:
        write_page(advice_page(advice, content, __version__), arguments["html"])
    if screen.is_json:
        screen.content(content)
    else:
        draw_advice(screen, content)
    return 0 if advice.is_decided else UNDECIDED_CODE


async def _read(rows: Rows, profiler: Profiler, update: Any, source: str) -> None:
    # Reading a file does not give way to the event loop, which would end the task only after it.
    if threading.current_thread() is threading.main_thread():  # no other may, and none is interrupted by a Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        async for page in rows.source.pages():
            for row in page.rows:
                if isinstance(row, Row):
                    profiler.add(row.document, row.text)
                else:
                    profiler.add_bad(f"row {row.number}: {row.reason}")
            update(_READING * (page.share or 0.0), f"advise {source}: {count(profiler.rows)} rows")
    finally:
        await rows.source.close()


def _load(
    arguments: dict[str, Any],
    workload: Workload | None,
    captures: list[Any],
    plan: Plan,
    profile: Profile,
    present_key: tuple[str, ...],
) -> Load:
    if workload is not None:
        load = load_of_workload(workload, arguments["workload"], plan.horizon_days)
        load.present_key = workload.partition_key
        return load
    if not captures:
        return Load(present_key=present_key)
    records = Records()
    for capture in captures:
        records.add(capture)
    if not records.read:
        raise bad_request("The captures of --requests hold no request for items.")
    head = captures[0].head
    find = finder(profile) if all(capture.head.has_values for capture in captures) else None
    origin = ", ".join(arguments["requests"])
    load = load_of_records(
        records,
        origin=origin,
        share=head.share * records.share,
        captured=records.read,
        present_key=head.key or present_key,
        find=find,
    )
    load.lacks_conditions = any(capture.head.is_of_cloud for capture in captures)
    return load


# What was asked for.


def _plan(arguments: dict[str, Any], workload: Workload | None) -> Plan:
    kinds = [name for name in ("throughput", "autoscale", "serverless") if name in arguments]
    if len(kinds) > 1:
        raise bad_request(f"Give one of --{' and --'.join(kinds)}.")
    if "size" in arguments and "items" in arguments:
        raise bad_request("Give --size or --items, not both.")
    if "items" in arguments and arguments["items"] < 1:
        raise bad_request(f"--items is {arguments['items']}; expected a number from 1 on.")
    utilisation = _share(arguments, "utilisation", UTILISATION, 0.01)
    provision = workload.provision if workload is not None else None
    is_autoscale = "autoscale" in arguments or (not kinds and provision is not None and provision.is_autoscale)
    throughput = arguments.get("autoscale", arguments.get("throughput"))
    if throughput is not None and throughput < 100:
        raise bad_request(f"--{kinds[0]} is {throughput}; expected request units a second, such as 4000.")
    return Plan(
        size_bytes=_size(arguments, "size", None),
        items=arguments.get("items"),
        growth_bytes_day=_growth(arguments),
        horizon_days=asked_time_s(arguments, "horizon", "--horizon", HORIZON_DAYS * DAY_S) / DAY_S,
        throughput_ru=throughput,
        is_autoscale=is_autoscale,
        is_serverless="serverless" in arguments,
        utilisation=utilisation,
        limits=asked_bounds(arguments, workload.bounds if workload is not None else asked_limits(arguments)),
        index_share=asked_index_share(arguments),
        must=_paths(arguments, "must"),
        never=_paths(arguments, "never"),
        known=_paths(arguments, "known"),
        presence=_share(arguments, "presence", keys.PRESENCE, 0.0),
        seed=asked_seed(arguments),
    )


def _paths(arguments: dict[str, Any], name: str) -> tuple[str, ...]:
    found = tuple(arguments.get(name, ()))
    for path in found:
        parse_path(path)
    return found


def _share(arguments: dict[str, Any], name: str, default: float, least: float) -> float:
    share = float(arguments.get(name, default))
    if not least <= share <= 1.0:
        raise bad_request(f"--{name} is {share:g}; expected a share from {least:g} to 1.")
    return share


def _size(arguments: dict[str, Any], name: str, default: float | None) -> float | None:
    if name not in arguments:
        return default
    try:
        return float(size_bytes(arguments[name]))
    except ValueError:
        option = name.replace("_", "-")
        raise bad_request(f"--{option} is {arguments[name]!r}; expected a size such as 500GB.") from None


def _growth(arguments: dict[str, Any]) -> float:
    if "growth" not in arguments:
        return 0.0
    amount, _, period = arguments["growth"].partition("/")
    try:
        return size_bytes(amount) / duration_s(_PERIODS.get(period, period)) * DAY_S
    except (ValueError, ZeroDivisionError):
        raise bad_request(f"--growth is {arguments['growth']!r}; expected a size by time such as 2GB/day.") from None


def _workload(arguments: dict[str, Any], defaults: PartitionLimits) -> Workload | None:
    if "workload" not in arguments:
        return None
    file = arguments["workload"]
    return parse_workload(read_text(file), reader_beside(file), asked_seed(arguments), defaults)


def _asked_rows(arguments: dict[str, Any]) -> int:
    rows = int(arguments.get("rows", ROWS_DEFAULT))
    if not 1_000 <= rows <= ROWS_MAX:
        raise bad_request(f"--rows is {rows}; expected a number from 1000 to {ROWS_MAX}.")
    return rows
