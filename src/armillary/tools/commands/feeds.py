"""`armillary feed tail`: prints the changes of a container as they happen, one JSON value a line."""

from __future__ import annotations

import json
import time
from typing import Any

from armillary.errors import Failure, Kind, bad_request
from armillary.tools.commands.arguments import container_path, key_values
from armillary.tools.remote import Server
from armillary.tools.screen import Screen

_POLL_S = 0.2


def tail(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    path = (*container_path(arguments["container"]), "changes")
    query: dict[str, object] = {"mode": arguments.get("mode", "latest"), "from": arguments.get("from", "now")}
    if "partition_key" in arguments:
        query["key"] = json.dumps(key_values(arguments["partition_key"]))
    left = arguments.get("limit")
    if left is not None and left < 1:
        raise bad_request("--limit is how many changes to print: at least 1.")
    while True:
        try:
            page = server.get(*path, **query)
        except Failure as failure:
            if failure.kind is not Kind.THROTTLED:
                raise
            time.sleep(_POLL_S)
            continue
        rows = page["changes"][:left]
        for row in rows:
            print(json.dumps(row, ensure_ascii=False, separators=(",", ":")), flush=True)
        if left is not None:
            left -= len(rows)
        is_over = page["isEnd"] and "no_follow" in arguments
        if left == 0 or is_over:
            return
        query["position"] = page["position"]
        if page["isEnd"]:
            time.sleep(_POLL_S)
