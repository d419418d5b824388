"""`armillary migrate`: starts the migration of a container to another partition key on the server, and shows its
progress. The migration itself is in `account/migration/migration.py`.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from armillary.errors import Failure, Kind, bad_request
from armillary.tools.commands.arguments import container_path, key_fields, throughput_fields
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, counted

_POLL_S = 0.2


def migrate(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    source, target = arguments["container"], arguments["target"]
    path = container_path(source)
    _, database, _, name = container_path(target)
    if database != path[1]:
        raise bad_request("Both containers must be in one database: the new one takes over the name of the old one.")
    body: dict[str, Any] = {"target": name, **key_fields(arguments), **throughput_fields(arguments)}
    if "keep_as" in arguments:
        body["keepAs"] = arguments["keep_as"]
    if "no_switch" in arguments:
        body["noSwitch"] = True
    if "lift_fence" in arguments:
        lifted = server.post(*path, "migration", body={"target": name, "liftFence": True})
        screen.content(lifted) if screen.is_json else screen.say(f"{source} takes writes again: {lifted['lifted'][0]}.")
        return
    if "filter" in arguments:
        body["filter"] = arguments["filter"]
    if "remove" in arguments:
        body["remove"] = True
    content = server.post(*path, "migration", body=body)
    try:
        with screen.progress(f"migrate {source}") as update:
            while not content["ended"]:
                time.sleep(_POLL_S)
                content = server.get(*path, "migration")
                total = content["itemsTotal"]
                update(content["itemsExamined"] / total if total else 0.0, _said(source, content))
    except KeyboardInterrupt:
        print(
            "The migration continues on the server. Run the same command again to see how far it is.", file=sys.stderr
        )
        raise
    if content["failure"] is not None:
        raise Failure(
            Kind.CONFLICT, f"{content['failure']} {source} is unchanged. Run the same command again to continue."
        )
    if screen.is_json:
        screen.content(content)
        return
    screen.say(
        f"{counted(content['verifiedItems'], 'item')} {_are(content['verifiedItems'])} the same in both, "
        f"digest {content['digest']}; {counted(content['changesFollowed'], 'change')} followed."
    )
    if content["stage"] == "switched":
        old = f"{database}/{content['keepAs']}"
        screen.say(f"{source} is now the new container; the old one is {old}. Writers waited {content['heldMs']} ms.")
        if content["permissionsLeft"]:
            screen.say(
                f"{count(content['permissionsLeft'])} permissions for partition keys, or for items by their rid, still "
                f"apply to {old}: grant new ones for the new keys."
            )
    elif content["stage"] == "moved":
        screen.say(
            f"{counted(content['itemsRemoved'], 'item')} removed from {source}, which refuses to write them: {target} "
            f"has them. Writers waited {content['heldMs']} ms."
        )
    elif "filter" in arguments:
        screen.say(f"{source} is unchanged. Run the same command with --remove to complete the move.")
    else:
        screen.say(f"{source} is unchanged. Run the same command without --no-switch to complete the migration.")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _said(source: str, content: dict[str, Any]) -> str:
    copied = f"{count(content['itemsCopied'])} of {count(content['itemsTotal'])} items"
    return f"migrate {source}: {content['stage']}, {copied}, {count(content['changesFollowed'])} changes"
