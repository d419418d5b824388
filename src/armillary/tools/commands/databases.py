"""`armillary databases`: list, show, create, delete."""

from __future__ import annotations

from typing import Any

from armillary.tools.commands.arguments import confirm, throughput_fields
from armillary.tools.commands.containers import container_table
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, size, throughput_text

_COLUMNS = ("database", ">containers", ">items", ">size", "throughput")
_DROPS = ("size", "items", "containers")


def list_databases(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get("databases")
    if screen.is_json:
        screen.content(content)
    elif not content["databases"]:
        screen.say("There are no databases yet. `armillary databases create` creates one.")
    else:
        screen.table(_COLUMNS, [_row(each) for each in content["databases"]], drop=_DROPS)


def show_database(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get("databases", arguments["database"])
    if screen.is_json:
        screen.content(content)
        return
    screen.table(_COLUMNS, [_row(content)], drop=_DROPS)
    container_table(screen, content["containers"])


def create_database(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    body: dict[str, Any] = {"name": arguments["database"]}
    body |= throughput_fields(arguments)
    content = server.post("databases", body=body)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"Created the database {content['name']}.")


def delete_database(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    name = arguments["database"]
    confirm(f"Delete the database {name} with everything in it?", "yes" in arguments)
    content = server.delete("databases", name)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"Deleted the database {name}.")


def _row(database: dict[str, Any]) -> list[str]:
    return [
        database["name"],
        count(database["containerCount"]),
        count(database["items"]),
        size(database["bytes"]),
        throughput_text(database["throughput"]),
    ]
