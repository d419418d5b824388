"""Point reads of a server with a page of the portal open, and with none, beside those of a server without a history.

Both servers run at once and are measured in turns, several pairs of processes one after the other: two processes differ
by where their memory lies, and the machine by what else it does. The ratio is of the processor time that the server
takes for a read: the browser and the load generator share the machine with it, which rates would show.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from playwright.sync_api import Browser, Page

from bench import load, servers
from bench.load import Measured, run_wrk
from bench.portal_browser import BASE, CONTROL_KEY, address, filled_container, opened_page
from bench.protocol import DATABASE, NUMBER_FIRST
from bench.sections import Aim, Say, row
from bench.servers import Server

ITEMS: Final = 2_000
CONNECTIONS: Final = 16
AIM_OPEN, AIM_CLOSED = 0.95, 0.98
WITHOUT, CLOSED, OPEN = "without a history", "with a history, no page open", "with a history and a page open"


@dataclass
class ReadFigures:
    """For each state of the server a list of pairs of processes, each with its turns."""

    per_s: dict[str, list[list[float]]] = field(default_factory=dict)
    cpu_us: dict[str, list[list[float]]] = field(default_factory=dict)

    def add(self, state: str, measured: list[Measured]) -> None:
        self.per_s.setdefault(state, []).append([each.per_s for each in measured])
        self.cpu_us.setdefault(state, []).append([each.server_cpu_us for each in measured])

    def ratio(self, state: str) -> float:
        """Of what the server could read a second if it had a processor for itself; the median of the pairs."""
        pairs = zip(self.cpu_us[WITHOUT], self.cpu_us[state], strict=True)
        return median(median(without) / median(found) for without, found in pairs)

    def lines(self) -> Iterable[str]:
        yield ""
        yield f"portal: point reads over {CONNECTIONS} connections, median of the turns"
        yield row("", ["reads/s", "cpu µs"])
        for state in (WITHOUT, CLOSED, OPEN):
            found = [
                median(each for turns in figures[state] for each in turns) for figures in (self.per_s, self.cpu_us)
            ]
            yield row(state, [f"{found[0]:,.0f}", f"{found[1]:.1f}"])

    def aims(self) -> Iterable[Aim]:
        yield Aim("reads with a page open, by those without a history (processor time)", self.ratio(OPEN), AIM_OPEN)
        yield Aim("reads with no page open, by those without a history (same)", self.ratio(CLOSED), AIM_CLOSED)


def measure_reads(browser: Browser, directory: Path, *, is_quick: bool, say: Say) -> ReadFigures:
    figures = ReadFigures()
    pairs, turns, seconds = (1, 3, 1.0) if is_quick else (3, 6, 2.0)
    for pair in range(pairs):
        say(f"portal: point reads, pair {pair + 1} of {pairs}")
        with ExitStack() as opened:
            found = _started(opened, directory / str(pair))
            page = opened.enter_context(opened_page(browser, found[OPEN][0]))
            measured: dict[str, list[Measured]] = {state: [] for state in found}
            for turn in range(turns):
                for state in [*found][turn % 3 :] + [*found][: turn % 3]:
                    server, container = found[state]
                    _show(page, server, container if state == OPEN else None)
                    measured[state].append(_reads(server, container, seconds))
            for state, each in measured.items():
                figures.add(state, each)
    return figures


def _started(opened: ExitStack, directory: Path) -> dict[str, tuple[Server, str]]:
    """The server and container of each state."""
    found = {}
    for name, environment in (("without", {"ARMILLARY_HISTORY_MEMORY": "0"}), ("with", {})):
        server = servers.start_armillary(directory / name, "relaxed", CONTROL_KEY, environment)
        opened.callback(server.stop)
        found[name] = server, filled_container(server, range(NUMBER_FIRST, NUMBER_FIRST + ITEMS))
    return {WITHOUT: found["without"], CLOSED: found["with"], OPEN: found["with"]}


def _show(page: Page, server: Server, container: str | None) -> None:
    """The partitions of a container, live; or nothing."""
    if container is None:
        page.goto("about:blank")
        return
    page.goto(address(server, f"{BASE}c/{DATABASE}/{container}/partitions"))
    page.wait_for_selector("canvas[data-count]")


def _reads(server: Server, container: str, seconds: float) -> Measured:
    script = load.reads(container, range(NUMBER_FIRST, NUMBER_FIRST + ITEMS))
    measured = run_wrk(server.port, script, connections=CONNECTIONS, seconds=seconds, cpu_pid=server.pid)
    if measured.errors:
        raise RuntimeError(f"{measured.errors} of {measured.requests} reads failed")
    return measured
