"""`armillary account-keys`, which lists keys and connection strings and regenerates keys while the server runs,
`armillary connection-strings`, and `armillary portal`, which opens the portal in the browser, logged in by a ticket
that is good for a minute and once.
"""

from __future__ import annotations

import webbrowser
from typing import Any

from armillary.account.security.connection_strings import TITLES
from armillary.errors import bad_request
from armillary.tools.remote import Server
from armillary.tools.screen import Screen


def list_keys(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get("account", "keys")
    if screen.is_json:
        screen.content(content)
        return
    for name, value in content["keys"].items():  # as lines, not as a table: a terminal of 80 columns would cut them
        screen.say(f"{name:<20}{value or 'none'}")


def list_connection_strings(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get("account", "connection-strings")
    if screen.is_json:
        screen.content(content)
        return
    for each in content["connectionStrings"]:  # as lines, not as a table: they are long, and are copied from here
        screen.say(f"{each['door']}, {each['key']}:\n{each['value']}")


def show_connection_strings(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    """One string for each API, or for the API that is named, with one key."""
    found = server.get("account", "connection-strings")["connectionStrings"]
    name = arguments.get("key") or next((each["key"] for each in found), None)
    strings = [each for each in found if each["key"] == name]
    if not strings:
        what = f"no {name} key" if name is not None else "no key that this control key may read"
        raise bad_request(f"The account has {what}. `armillary account-keys list` shows the keys that it has.")
    api = arguments.get("api")
    if api is not None:
        strings = [each for each in strings if each["door"] == api]
        if not strings:
            served = ", ".join(dict.fromkeys(each["door"] for each in found))
            raise bad_request(f"The server does not serve {api!r}. It serves {served}.")
    if screen.is_json:
        screen.content({"connectionStrings": strings})
    elif api is not None:
        screen.say(strings[0]["value"])  # alone, so that a shell can put it into a variable
    else:
        for each in strings:
            screen.say(f"{TITLES[each['door']]}\n  {each['value']}")


def regenerate_key(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    name = arguments["key"]
    content = server.post("account", "keys", name, "regenerate", body={})
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"The {name} key is {content['key']} from now on; the former one opens nothing any more.")


def open_portal(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    ticket = server.post("session", "tickets", body={})
    url = f"{server.url}/_armillary/portal/#ticket={ticket['ticket']}"
    if screen.is_json:
        screen.content({"url": url, "expiresInSeconds": ticket["expiresInSeconds"]})
    elif arguments.get("print", False):
        screen.say(url)
    elif not webbrowser.open(url):
        screen.say(f"No browser could be started. Open this address within a minute:\n{url}")
    else:
        screen.say(f"The portal is at {server.url}/_armillary/portal/")
