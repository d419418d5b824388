"""`armillary partitions` and `armillary keys`: pictures of how a container is spread over its partitions.

With a good partition key no key value has a large share of the bytes or request units; the verdict is the server's.
Give several containers with the same items under different keys to compare them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from armillary import limits
from armillary.errors import bad_request
from armillary.tools.commands.arguments import container_path
from armillary.tools.commands.verdicts import UNKNOWN, draw_comparison, draw_verdict, read_verdicts
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, counted, percent, size, throughput_text, units

_EDGE_CHARACTERS = 6  # of a hash, to tell ranges apart
_KEY_CHARACTERS_MAX = 40
PARTITION_DROPS = ("parents", "full", "hashes", "would be", "RU/s", "size", "keys")


def draw_partitions(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    if "watch" in arguments:
        refuse_beside("--watch", arguments, "top", "since")
        watch_partitions(server, screen, arguments)
        return
    refuse_beside("a single picture", arguments, "every", "times")
    names = arguments["containers"]
    query = asked_top(arguments)
    found = [server.get(*container_path(name), "partitions", **query) for name in names]
    for content, verdict in zip(found, read_verdicts(server, names, arguments.get("since")), strict=True):
        content["verdict"] = verdict
    if screen.is_json:
        screen.content(found[0] if len(found) == 1 else found)
        return
    for name, content in zip(names, found, strict=True):
        _draw(screen, server.get(*container_path(name)), content)
    if len(found) > 1:
        draw_comparison(screen, found[0]["verdict"])


def draw_keys(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    query = asked_top(arguments)
    path = container_path(arguments["container"])
    if screen.is_json:
        screen.content(server.get(*path, "keys", **query))
        return
    _draw_keys(screen, server.get(*path, "partitions", **query))  # shares are of all there is, not of the top


def asked_top(arguments: dict[str, Any]) -> dict[str, int]:
    if not 1 <= arguments.get("top", 1) <= limits.OVERVIEW_TOP_MAX:
        raise bad_request(f"--top is {arguments['top']}; expected a number from 1 to {limits.OVERVIEW_TOP_MAX}.")
    return {"top": arguments["top"]} if "top" in arguments else {}


def _draw(screen: Screen, container: dict[str, Any], content: dict[str, Any]) -> None:
    key = ", ".join(container["partitionKey"]) if container["partitionKey"] else "no key (fixed)"
    keys = [each.get("keys") for each in content["partitions"]]
    known = [each for each in keys if each is not None]  # a partition key is in one partition
    distinct = f" of {counted(sum(known), 'key')}" if known and len(known) == len(keys) else ""
    screen.heading(
        f"{content['database']}/{content['container']} by {key}: {counted(container['items'], 'item')}{distinct}, "
        f"{size(container['bytes'])}, {throughput_text(container['throughput'])}"
    )
    screen.table(*partition_rows(screen, content), drop=PARTITION_DROPS)
    for line in reshape_lines(content):
        screen.say(line)
    _draw_keys(screen, content)
    draw_verdict(screen, content["verdict"])


def partition_rows(screen: Screen, content: dict[str, Any]) -> tuple[tuple[str, ...], list[list[object]]]:
    """The columns and rows of the table of partitions."""
    total_bytes = _total(content, "bytes")
    has_keys = any("keys" in each for each in content["partitions"])
    rows: list[list[object]] = []
    for each in content["partitions"]:
        share = each["bytes"] / total_bytes if total_bytes else 0.0
        budget_ru = each["budgetRu"]
        spent_share = each["spentRu"] / budget_ru if budget_ru else 0.0
        rows.append(
            [
                each["id"],
                f"{_edge(each['low'], '0')}-{_edge(each['high'], 'F')}",
                ",".join(map(str, each["parents"])) or "-",
                *([_known(each["keys"])] if has_keys else []),
                count(each["items"]),
                size(each["bytes"]),
                f"{screen.bar(share)} {percent(share)}",
                units(each["spentRu"]),
                f"{screen.bar(spent_share, 10)} {percent(spent_share)}" if budget_ru else "no budget",
                count(each["refused"]),
                count(each["wouldBeRefused"]),
                count(each["full"]),
            ]
        )
    keys = (">keys",) if has_keys else ()
    columns = ("partition", "hashes", "parents", *keys, ">items", ">size", "share of bytes", ">RU/s")
    return (*columns, "of its budget", ">refused", ">would be", ">full"), rows


def reshape_lines(content: dict[str, Any]) -> Iterator[str]:
    """What is being split and merged."""
    for reshape in content["reshapes"]:
        parents = " and ".join(map(str, reshape["partitions"]))
        items = f"{count(reshape['itemsCopied'])} of {count(reshape['itemsTotal'])} items"
        yield (f"A {reshape['kind']} of {parents} goes on ({reshape['reason']}): {reshape['point']}, {items} copied.")


def _draw_keys(screen: Screen, content: dict[str, Any]) -> None:
    largest, busiest = content["largestKeys"], content["busiestKeys"]
    if not largest and not busiest:
        screen.say("There are no items yet.")
    if largest:
        total_bytes = _total(content, "bytes") or 1
        rows = [
            [
                _key(each["key"]),
                each["partition"],
                count(each["items"]),
                size(each["bytes"]),
                f"{screen.bar(each['bytes'] / total_bytes)} {percent(each['bytes'] / total_bytes)}",
            ]
            for each in largest
        ]
        some = "" if content["isLargestComplete"] else " (of the first million)"
        columns = ("key", ">partition", ">items", ">size", "share of bytes")
        screen.table(columns, rows, f"Largest partition keys{some}", drop=("partition", "share of bytes"))
    if busiest:
        total_ru = _total(content, "chargedRu") or 1
        rows = [
            [
                _key(each["key"]),
                each["partition"],
                units(each["chargedRu"]),
                f"{screen.bar(each['chargedRu'] / total_ru)} {percent(each['chargedRu'] / total_ru)}",
            ]
            for each in busiest
        ]
        busiest_columns = ("key", ">partition", ">RU", "share of request units")
        screen.table(busiest_columns, rows, "Busiest partition keys", drop=("partition", "share of request units"))


def _known(keys: int | None) -> str:
    """Distinct keys, which are not known beyond a million."""
    return UNKNOWN if keys is None else count(keys)


def _total(content: dict[str, Any], field: str) -> Any:
    return sum(each[field] for each in content["partitions"])


def _edge(bound: str, default: str) -> str:
    return (bound or default)[:_EDGE_CHARACTERS].ljust(2, default)


def _key(key: list[Any] | None) -> str:
    if key is None:
        return "(nothing stored)"
    text = json.dumps(key[0] if len(key) == 1 else key, ensure_ascii=False) if key else "(none)"
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"


def watch_partitions(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    """`armillary partitions --watch`: the tables again and again, without the keys, which take long to look for."""
    names = arguments["containers"]
    if screen.is_json:
        raise bad_request("--watch draws for people; leave out --json, or ask once without --watch.")

    def frame() -> list[Any]:
        parts: list[Any] = []
        for name in names:
            content = server.get(*container_path(name), "partitions", keys="none")
            parts += [
                screen.made_table(*partition_rows(screen, content), title=name, drop=PARTITION_DROPS),
                *reshape_lines(content),
            ]
        return parts

    screen.watch(frame, *pace(arguments))


def refuse_beside(what: str, arguments: dict[str, Any], *names: str) -> None:
    """Refuse arguments that mean nothing beside others."""
    for name in names:
        if name in arguments:
            raise bad_request(f"--{name} does not go with {what}; leave it out.")


def pace(arguments: dict[str, Any]) -> tuple[float, int | None]:
    """How often something is shown again, and how many times."""
    every_s, times = arguments.get("every", 1.0), arguments.get("times")
    if not 0.1 <= every_s <= 3600:
        raise bad_request(f"--every is {every_s:g}; expected seconds from 0.1 to 3600.")
    if times is not None and times < 1:
        raise bad_request(f"--times is {times}; expected at least 1.")
    return every_s, times
