"""`armillary scale`: more or less throughput, and with it perhaps more partitions."""

from __future__ import annotations

from typing import Any

from armillary.errors import bad_request
from armillary.tools.commands.names import container_path
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, throughput_text


def scale(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    name = arguments["name"]
    body = {each: arguments[each] for each in ("throughput", "autoscale") if arguments.get(each) is not None}
    if len(body) != 1:
        raise bad_request("Say the new throughput as a number, or with --autoscale the most of it.")
    path = container_path(name) if "/" in name else ("databases", name)
    content = server.put(*path, "throughput", body=body)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"{name} has {throughput_text(content['throughput'])}.")
