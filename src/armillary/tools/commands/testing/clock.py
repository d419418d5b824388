"""`armillary clock`, which shows, stops and moves the clock of a server, and `armillary mode`, which shows and sets
whether budgets of request units are enforced, observed or off. Both are for tests of applications.
"""

from __future__ import annotations

import re
from typing import Any, Final

from armillary.errors import bad_request
from armillary.tools.commands.arguments import container_path
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, counted

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TIME: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw]?)")
_MODES: Final = {
    "enforce": "requests beyond the budget are refused with 429",
    "observe": "requests beyond the budget are served and counted",
    "off": "there are no budgets",
}


def show_clock(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    _say_time(screen, server.get("clock"))


def stop_clock(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    _say_time(screen, server.post("clock", body={"frozen": True}))


def advance_clock(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    _say_time(screen, server.post("clock", body={"advanceSeconds": seconds_of(arguments["time"])}))


def run_clock(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    _say_time(screen, server.post("clock", body={"frozen": False}))


def seconds_of(text: str) -> float:
    found = _TIME.fullmatch(text.strip().lower())
    if found is None:
        raise bad_request(f"The time is {text!r}; expected such as 90s, 15m, 36h, 7d, or a number of seconds.")
    return float(found.group(1)) * _SECONDS[found.group(2)]


def _say_time(screen: Screen, content: dict[str, Any]) -> None:
    if screen.is_json:
        screen.content(content)
        return
    if not content["movable"]:
        state = "the machine's time; start the server with --clock movable to move it"
    else:
        state = "stopped" if content["frozen"] else "running"
        ahead_s = content["aheadSeconds"]
        if abs(ahead_s) >= 1:
            state += f", {abs(ahead_s):,.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the machine"
    screen.say(f"{content['now']} ({state})")


def set_mode(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    names, listed = arguments["containers"], []
    paths = [container_path(name) for name in names]
    if not paths:
        listed = server.get("containers")["containers"]
        names = [f"{each['database']}/{each['name']}" for each in listed]
        paths = [("databases", each["database"], "containers", each["name"]) for each in listed]
    if not paths:
        raise bad_request("There are no containers. Create one, or start the server with --throughput enforce.")
    mode = arguments["mode"]
    if mode is None:
        _show_modes(screen, listed)
        return
    changed = [server.put(*path, "mode", body={"mode": None if mode == "default" else mode}) for path in paths]
    if screen.is_json:
        screen.content({"containers": changed})
        return
    modes = {each["mode"] for each in changed}
    which = names[0] if len(names) == 1 else counted(len(names), "container")
    screen.say("; ".join(f"{which}: {each}, {_MODES.get(each, '')}" for each in sorted(modes)) + ".")


def _show_modes(screen: Screen, containers: list[dict[str, Any]]) -> None:
    if screen.is_json:
        screen.content({"containers": containers})
        return
    rows = [[f"{each['database']}/{each['name']}", each["mode"], _MODES.get(each["mode"], "")] for each in containers]
    screen.table(("container", "mode", "meaning"), rows, drop=("meaning",))
