"""`armillary containers`: list, show, create, delete. `armillary feed tail`: prints the changes of a container."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from armillary.errors import Failure, Kind, bad_request
from armillary.tools.commands.arguments import confirm, container_path, key_fields, key_values, throughput_fields
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, size, throughput_text

_POLL_S = 0.2  # between two looks at the change feed


def container_table(screen: Screen, containers: list[dict[str, Any]]) -> None:
    columns = ("container", "partition key", "throughput", ">partitions", ">items", ">size")
    rows = [
        [
            f"{each['database']}/{each['name']}",
            ", ".join(each["partitionKey"]) if each["partitionKey"] else "none (fixed)",
            throughput_text(each["throughput"]),
            count(each["partitionCount"]),
            count(each["items"]),
            size(each["bytes"]),
        ]
        for each in containers
    ]
    screen.table(columns, rows, drop=("size", "partitions", "items", "throughput"))


def list_containers(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    database = arguments.get("database")
    content = server.get("databases", database, "containers") if database else server.get("containers")
    if screen.is_json:
        screen.content(content)
    elif not content["containers"]:
        screen.say("There are no containers yet. `armillary containers create` creates one.")
    else:
        container_table(screen, content["containers"])


def show_container(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get(*container_path(arguments["container"]))
    if screen.is_json:
        screen.content(content)
        return
    container_table(screen, [content])
    screen.say(json.dumps(content["definition"], indent=2, ensure_ascii=False))


def create_container(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    _, database, _, name = container_path(arguments["container"])
    body: dict[str, Any] = {"name": name, **key_fields(arguments), **throughput_fields(arguments)}
    if "definition" in arguments:
        body["definition"] = _definition(Path(arguments["definition"]))
    elif "partitionKey" not in body and "fixed" not in body:
        raise bad_request(
            "Give the container a partition key, such as --partition-key /customerId, or --fixed for one without."
        )
    is_new = _ensure_database(server, database)
    try:
        content = server.post("databases", database, "containers", body=body)
    except Failure:
        if is_new:
            server.delete("databases", database)
        raise
    if screen.is_json:
        screen.content(content)
        return
    partitions = content["partitionCount"]
    screen.say(
        f"Created the container {database}/{name} with {throughput_text(content['throughput'])} over {partitions} "
        f"partition{'s' * (partitions != 1)}."
    )


def delete_container(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    name = arguments["container"]
    path = container_path(name)
    confirm(f"Delete the container {name} with all its items?", "yes" in arguments)
    content = server.delete(*path)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"Deleted the container {name}.")


def tail_changes(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    """`armillary feed tail`: print the changes as they happen, one JSON value a line."""
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


def _ensure_database(server: Server, name: str) -> bool:
    """Create a database if it does not exist; whether it was created."""
    try:
        server.get("databases", name)
    except Failure as failure:
        if failure.kind is not Kind.NOT_FOUND:
            raise
        server.post("databases", body={"name": name})
        return True
    return False


def _definition(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise bad_request(f"The definition {file} cannot be read: {error.strerror}. Check --definition.") from None
    except ValueError as error:
        raise bad_request(
            f"The definition {file} is not JSON: {error}. Give a JSON file with the container's policies."
        ) from None
