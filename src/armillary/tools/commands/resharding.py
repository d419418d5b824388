"""`armillary scale`, `split` and `merge`: the commands that change how many partitions a container has. They show the
progress and wait for the end, unless --no-wait is given.
"""

from __future__ import annotations

import time
from typing import Any

from armillary.errors import Failure, Kind, bad_request
from armillary.tools.commands.arguments import container_path, throughput_fields
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, throughput_text

_POLL_S = 0.2
_COPIED = ("copied", "caught up", "held", "switched")  # the points at which all items have been copied


def scale(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    name = arguments["name"]
    body = throughput_fields(arguments)
    if not body:
        raise bad_request(
            "Give the new throughput, for example `armillary scale shop/orders 4000`, or an --autoscale maximum."
        )
    path = container_path(name) if "/" in name else ("databases", name)
    content = server.put(*path, "throughput", body=body)
    if content["throughput"]["pending"] and "no_wait" not in arguments:
        content = _wait_for_offer(server, screen, path, name)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"{name} has {throughput_text(content['throughput'])}.")


def split(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    body = {} if arguments["range"] is None else {"partition": arguments["range"]}
    _reshape(server, screen, arguments, "split", body)


def merge(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    _reshape(server, screen, arguments, "merge", {"partitions": arguments["ranges"]} if arguments["ranges"] else {})


def _reshape(server: Server, screen: Screen, arguments: dict[str, Any], kind: str, body: dict[str, Any]) -> None:
    name = arguments["container"]
    path = container_path(name)
    begun = server.post(*path, kind, body=body)
    parents = " and ".join(map(str, begun["partitions"]))
    if "no_wait" in arguments:
        if screen.is_json:
            screen.content(begun)
        else:
            screen.say(f"Began to {kind} partition {parents} of {name}.")
        return
    with screen.progress(f"{kind} {name}") as update:
        while (running := _running(server, path, begun["number"])) is not None:
            update(_share(running), _said(running))
            time.sleep(_POLL_S)
    content = server.get(*path, "partitions")
    if screen.is_json:
        screen.content(content)
        return
    if any(parent in [each["id"] for each in content["partitions"]] for parent in begun["partitions"]):
        raise Failure(
            Kind.CONFLICT,
            f"The {kind} of partition {parents} was cancelled or failed, and rolled back. The server's log says why.",
        )
    made = [each for each in content["partitions"] if set(begun["partitions"]) & set(each["parents"])]
    became = " and ".join(f"{each['id']} ({count(each['items'])} items)" for each in made)
    screen.say(f"Partition {parents} of {name} became {became}.")


def _running(server: Server, path: tuple[str, ...], number: int) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = server.get(*path, "reshapes")["reshapes"]
    return next((each for each in found if each["number"] == number), None)


def _wait_for_offer(server: Server, screen: Screen, path: tuple[str, ...], name: str) -> Any:
    with screen.progress(f"scale {name}") as update:
        while True:
            content = server.get(*path)
            if not content["throughput"]["pending"]:
                return content
            running = [
                each
                for each in server.get("reshapes")["reshapes"]
                if name in (each["database"], f"{each['database']}/{each['container']}")
            ]
            share = sum(map(_share, running)) / len(running) if running else 0.0
            parents = ", ".join(str(parent) for each in running for parent in each["partitions"])
            update(share, f"splitting partition {parents} of {name}" if running else f"scale {name}")
            time.sleep(_POLL_S)


def _share(reshape: dict[str, Any]) -> float:
    if reshape["point"] in _COPIED:
        return 1.0
    return reshape["itemsCopied"] / reshape["itemsTotal"] if reshape["itemsTotal"] else 0.0


def _said(reshape: dict[str, Any]) -> str:
    parents = " and ".join(map(str, reshape["partitions"]))
    text = f"{reshape['kind']} {parents}: {reshape['point']}"
    if reshape["paused"]:
        text += ", paused"
    return f"{text} ({reshape['waitsFor']})" if reshape["waitsFor"] else text
