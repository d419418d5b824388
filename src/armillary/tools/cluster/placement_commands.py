"""The verbs of `armillary cluster` about the placement of several logs: `plan`, `placement` and `move`."""

from __future__ import annotations

from typing import Any, Final

from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, counted, size

_DONE_SHOWN: Final = 5


def show_plan(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    return _show(screen, server.get("cluster", "placement"))


def placement(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    wanted = {name: arguments[name] for name in ("replicas", "copies") if arguments.get(name) is not None}
    if arguments.get("balancing") is not None:
        wanted["balancing"] = arguments["balancing"] == "on"
    content = server.put("cluster", "placement", body=wanted) if wanted else server.get("cluster", "placement")
    if screen.is_json:
        screen.content({name: content[name] for name in ("replicas", "copies", "balancing")})
    else:
        _say_rules(screen, content)
    return 0


def move(server: Server, screen: Screen, arguments: dict[str, Any]) -> int:
    log, node = arguments["log"], arguments["node"]
    content = server.post("cluster", "move", body={"log": log, **({"node": node} if node else {})})
    if screen.is_json:
        screen.content(content)
        return 0
    steps = [each for each in content["steps"] if each["log"] == log]
    if node:
        screen.say(f"{node} is to lead log {log}, until `armillary cluster move {log}`.")
    else:
        screen.say(f"The balancer chooses the leader of log {log}.")
    if steps:
        screen.say(f"{counted(len(steps), 'step')} to be done: `armillary cluster plan` shows them.")
    return 0


def _show(screen: Screen, content: dict[str, Any]) -> int:
    if screen.is_json:
        screen.content(content)
        return 0
    _say_rules(screen, content)
    screen.table(
        ("log", "leader", "replicas", ">RU/s", ">bytes", ">partitions"),
        [_log_row(each) for each in content["logs"]],
        drop=("partitions", "bytes"),
    )
    for title, steps in (("Under way", content["underWay"]), ("Planned", content["steps"])):
        if steps:
            screen.heading(title)
            columns = ("step", ">copied", "why")
            screen.table(columns, [[each["text"], _copied(each), each["reason"]] for each in steps])
    if not content["steps"] and not content["underWay"]:
        screen.say("Nothing is to be moved.")
    for each in content["unmet"]:
        screen.say(each)
    done = content["done"][-_DONE_SHOWN:]
    if done:
        screen.heading("Done lately")
        outcomes = [[each["text"], f"{each['seconds']:,.1f}", each["failure"] or "done"] for each in done]
        screen.table(("step", ">seconds", "outcome"), outcomes)
    return 0


def _say_rules(screen: Screen, content: dict[str, Any]) -> None:
    balancing = "on" if content["balancing"] else "off: only what operators ask for is done"
    screen.say(
        f"{counted(content['replicas'], 'replica')} of each log; copies at a time: {content['copies']}; balancing is "
        f"{balancing}."
    )


def _log_row(log: dict[str, Any]) -> list[str]:
    leader = log["leader"] or "none"
    if log["chosenLeader"]:
        leader += " (chosen)" if log["chosenLeader"] == leader else f" ({log['chosenLeader']} is chosen)"
    replicas = [each["node"] + ("" if each["whole"] else " (copying)") for each in log["replicas"]]
    shown = "all nodes" if log["log"] == 0 else ", ".join(sorted(replicas))
    return [
        str(log["log"]),
        leader,
        shown,
        count(round(log["unitsPerSecond"])),
        size(log["bytes"]),
        count(log["partitions"]),
    ]


def _copied(step: dict[str, Any]) -> str:
    return size(step["bytes"]) if step["bytes"] else "-"
