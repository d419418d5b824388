"""Arguments that several commands take: names such as shop/orders, partition keys, and the confirmation of a delete."""

from __future__ import annotations

import json
import sys
from typing import Any

from armillary.errors import Failure, Kind, bad_request


def container_path(name: str) -> tuple[str, str, str, str]:
    """The path of a container in the control API."""
    database, slash, container = name.partition("/")
    if not slash or not database or not container or "/" in container:
        raise bad_request(f"{name!r} does not name a container: write DATABASE/CONTAINER, such as shop/orders.")
    return "databases", database, "containers", container


def throughput_fields(arguments: dict[str, Any]) -> dict[str, int]:
    """The throughput among the arguments, as the control API takes it; empty if there is none."""
    given = {name: arguments[name] for name in ("throughput", "autoscale") if arguments.get(name) is not None}
    if len(given) > 1:
        raise bad_request("Give a fixed throughput or --autoscale, not both.")
    for name, ru in given.items():
        if ru < 1:
            raise bad_request(f"The {name} is {ru}; expected request units a second, such as 400.")
    return given


def key_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    """The partition key of a new container among the arguments, as the control API takes it."""
    if "partition_key" in arguments and "fixed" in arguments:
        raise bad_request("Give --partition-key or --fixed, not both.")
    if "partition_key" in arguments:
        return {"partitionKey": arguments["partition_key"]}
    return {"fixed": True} if "fixed" in arguments else {}


def key_values(given: str) -> list[Any]:
    """The values of a partition key. Text that is not JSON is a string; a list gives the levels of a key."""
    try:
        value = json.loads(given)
    except ValueError:
        value = given
    return value if isinstance(value, list) else [value]


def confirm(question: str, is_sure: bool) -> None:
    """Ask before a delete. Without a terminal the answer is no, unless --yes is given."""
    if is_sure:
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure(Kind.BAD_REQUEST, "Nothing was deleted. Answer yes, or give --yes.")
