"""`armillary account-keys`: lists keys and connection strings, and regenerates keys while the server runs."""

from __future__ import annotations

from typing import Any

from armillary.tools.remote import Server
from armillary.tools.screen import Screen


def list_keys(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get("account", "keys")
    if screen.is_json:
        screen.content(content)
        return
    screen.table(("key", "value"), [[name, value or "none"] for name, value in content["keys"].items()])


def list_connection_strings(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get("account", "connection-strings")
    if screen.is_json:
        screen.content(content)
        return
    for each in content["connectionStrings"]:  # as lines, not as a table: they are long, and are copied from here
        screen.say(f"{each['door']}, {each['key']}:\n{each['value']}")


def regenerate_key(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    name = arguments["key"]
    content = server.post("account", "keys", name, "regenerate", body={})
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"The {name} key is {content['key']} from now on; the former one opens nothing any more.")
