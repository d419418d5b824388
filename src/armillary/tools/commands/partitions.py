"""`armillary partitions` and `armillary keys`: pictures of how a container is spread over its partitions.

With a good partition key the bars of all partitions have about the same length, and no key value has a large share of
the bytes or request units. Give several containers with the same items under different keys to compare them.
"""

from __future__ import annotations

import json
from typing import Any

from armillary import limits
from armillary.errors import bad_request
from armillary.tools.commands.arguments import container_path
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, percent, size, throughput_text, units

_EDGE_CHARACTERS = 6  # of a hash, to tell ranges apart
_KEY_CHARACTERS_MAX = 40
_SKEWED = 1.5  # times a fair share


def draw_partitions(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    names = arguments["containers"]
    query = _top(arguments)
    found = [server.get(*container_path(name), "partitions", **query) for name in names]
    if screen.is_json:
        screen.content(found[0] if len(found) == 1 else found)
        return
    for name, content in zip(names, found, strict=True):
        _draw(screen, server.get(*container_path(name)), content)
    if len(found) > 1:
        _compare(screen, found)


def draw_keys(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    query = _top(arguments)
    path = container_path(arguments["container"])
    if screen.is_json:
        screen.content(server.get(*path, "keys", **query))
        return
    _draw_keys(screen, server.get(*path, "partitions", **query))  # shares are of all there is, not of the top


def _top(arguments: dict[str, Any]) -> dict[str, int]:
    if not 1 <= arguments.get("top", 1) <= limits.OVERVIEW_TOP_MAX:
        raise bad_request(f"--top is {arguments['top']}; expected a number from 1 to {limits.OVERVIEW_TOP_MAX}.")
    return {"top": arguments["top"]} if "top" in arguments else {}


def _draw(screen: Screen, container: dict[str, Any], content: dict[str, Any]) -> None:
    partitions = content["partitions"]
    key = ", ".join(container["partitionKey"]) if container["partitionKey"] else "no key (fixed)"
    screen.heading(
        f"{content['database']}/{content['container']} by {key}: {count(container['items'])} items, "
        f"{size(container['bytes'])}, {throughput_text(container['throughput'])}"
    )
    total_bytes = _total(content, "bytes")
    rows = []
    for each in partitions:
        share = each["bytes"] / total_bytes if total_bytes else 0.0
        budget_ru = each["budgetRu"]
        spent_share = each["spentRu"] / budget_ru if budget_ru else 0.0
        rows.append(
            [
                each["id"],
                f"{_edge(each['low'], '0')}-{_edge(each['high'], 'F')}",
                ",".join(map(str, each["parents"])) or "-",
                count(each["items"]),
                size(each["bytes"]),
                f"{screen.bar(share)} {percent(share)}",
                units(each["spentRu"]),
                f"{screen.bar(spent_share, 10)} {percent(spent_share)}" if budget_ru else "no budget",
                count(each["refused"]),
                count(each["wouldBeRefused"]),
            ]
        )
    columns = ("partition", "hashes", "parents", ">items", ">size", "share of bytes", ">RU/s")
    screen.table((*columns, "of its budget", ">refused", ">would be"), rows)
    for reshape in content["reshapes"]:
        parents = " and ".join(map(str, reshape["partitions"]))
        items = f"{count(reshape['itemsCopied'])} of {count(reshape['itemsTotal'])} items"
        screen.say(
            f"A {reshape['kind']} of {parents} goes on ({reshape['reason']}): {reshape['point']}, {items} copied."
        )
    _draw_keys(screen, content)
    screen.say(_verdict(content))


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
        screen.table(("key", ">partition", ">items", ">size", "share of bytes"), rows, f"Largest partition keys{some}")
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
        screen.table(("key", ">partition", ">RU", "share of request units"), rows, "Busiest partition keys")


def _total(content: dict[str, Any], field: str) -> Any:
    return sum(each[field] for each in content["partitions"])


def _skew(content: dict[str, Any], field: str) -> float:
    """How many times a fair share the fullest partition has."""
    amounts = [each[field] for each in content["partitions"]]
    return max(amounts) * len(amounts) / sum(amounts) if sum(amounts) else 1.0


def _verdict(content: dict[str, Any]) -> str:
    stored, charged = _skew(content, "bytes"), _skew(content, "chargedRu")
    text = f"The fullest partition holds {stored:.1f} times its fair share of bytes, the busiest {charged:.1f} times"
    text += " that of request units"
    return f"{text}: {'well spread' if max(stored, charged) < _SKEWED else 'skewed'}.\n"


def _compare(screen: Screen, found: list[dict[str, Any]]) -> None:
    rows = []
    for content in found:
        stored, charged = _skew(content, "bytes"), _skew(content, "chargedRu")
        highest = max(1.0, *(_skew(each, name) for each in found for name in ("bytes", "chargedRu")))
        rows.append(
            [
                f"{content['database']}/{content['container']}",
                len(content["partitions"]),
                f"{screen.bar(stored / highest)} {stored:.1f}x",
                f"{screen.bar(charged / highest)} {charged:.1f}x",
                count(sum(each["refused"] + each["wouldBeRefused"] for each in content["partitions"])),
            ]
        )
    columns = ("container", ">partitions", "fullest partition", "busiest partition", ">beyond budget")
    screen.table(columns, rows, "Side by side (1.0x is a fair share)")


def _edge(bound: str, default: str) -> str:
    return (bound or default)[:_EDGE_CHARACTERS].ljust(2, default)


def _key(key: list[Any] | None) -> str:
    if key is None:
        return "(nothing stored)"
    text = json.dumps(key[0] if len(key) == 1 else key, ensure_ascii=False) if key else "(none)"
    return text if len(text) <= _KEY_CHARACTERS_MAX else text[: _KEY_CHARACTERS_MAX - 1] + "…"
