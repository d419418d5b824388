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
