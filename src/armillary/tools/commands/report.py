"""`armillary report`: one HTML file about a container, for reviews: verdict, partitions, keys, load over time and heat
map. The page itself is made by `insight/report/container_page.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from armillary import __version__, limits
from armillary.errors import Failure, Kind, bad_request
from armillary.insight.report.container_page import report_page
from armillary.storage.private import open_file
from armillary.tools.commands.arguments import container_path
from armillary.tools.commands.partitions import asked_top
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, size

_HOURS_DEFAULT, _HOURS_MAX = 6, limits.HISTORY_LAYERS[-1][1] // 3600
# Of the heat map. The file stays far below half a megabyte, so that it can be sent by mail.
_ROWS, _COLUMNS = 64, 120


def write_report(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    hours = arguments.get("hours", _HOURS_DEFAULT)
    if not 1 <= hours <= _HOURS_MAX:
        raise bad_request(f"--hours is {hours}; expected a number from 1 to {_HOURS_MAX}.")
    page = _page(server, arguments, hours)
    written = write_page(page, arguments["html"])
    if screen.is_json:
        screen.content({"file": arguments["html"], "bytes": written})
    else:
        screen.say(f"Wrote {arguments['html']} ({size(written)}).")


def write_page(page: str, name: str) -> int:
    """Write a report to the file that --html names; returns its size."""
    content = page.encode("utf-8", "replace")
    file = Path(name)
    if file.is_dir():
        raise bad_request(f"{file} is a directory; --html names the file to write.")
    try:
        with open_file(file, "wb") as stream:
            stream.write(content)
    except OSError as error:
        raise bad_request(f"{file} cannot be written: {error.strerror or 'unknown reason'}.") from None
    return len(content)


def _page(server: Server, arguments: dict[str, Any], hours: int) -> str:
    """What the server answers about a container, as a page. Load is shown for the last hours; the verdict has a window
    of its own."""
    path = container_path(arguments["container"])
    now_s = server.get("clock")["nowSeconds"]
    since = {"from": now_s - hours * 3600}
    container = server.get(*path)
    # The largest keys may take some seconds to find; the verdict and the history are read after them, and are newer.
    partitions = server.get(*path, "partitions", **asked_top(arguments))
    verdict = server.get(*path, "verdict")
    history = heat = None
    try:
        history = server.get(*path, "history", **since)
        heat = server.get(*path, "heat", rows=_ROWS, columns=_COLUMNS, **since)
    except Failure as failure:
        if failure.kind is not Kind.UNSUPPORTED:  # no history is kept: the page says so
            raise
    return report_page(container, partitions, verdict, history, heat, now_s, __version__)
