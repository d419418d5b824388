"""`armillary faults`: rules that make requests of applications fail or wait. The rules are the control API's
(docs/control.md); what they do is in `account/faults.py`."""

from __future__ import annotations

import json
from typing import Any, Final

from armillary.errors import bad_request
from armillary.tools.commands.arguments import key_values
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, counted

# Arguments that the API takes under another name, and those that it takes as they are.
_FIELDS: Final = {
    "operation": "operations",
    "partition": "range",
    "skip": "skip",
    "every": "every",
    "count": "count",
    "probability": "probability",
    "seed": "seed",
    "status": "status",
    "sub_status": "subStatus",
    "retry_after_ms": "retryAfterMs",
    "delay_ms": "delayMs",
    "drop": "drop",
    "after": "after",
}

_WRITES: Final = frozenset(("create", "upsert", "replace", "patch", "delete", "batch", "execute"))


def list_faults(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.get("faults")
    if screen.is_json:
        screen.content(content)
    elif not content["faults"]:
        screen.say(
            "There are no fault rules. `armillary faults add --operation write --every 7 --status 429` adds one."
        )
    else:
        rows = [
            [each["id"], _requests(each), _hit(each), _effect(each), count(each["seen"]), count(each["hits"])]
            for each in content["faults"]
        ]
        screen.table((">rule", "requests", "hit", "effect", ">seen", ">hits"), rows, drop=("seen",))


def add_fault(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    body = _rule(arguments)
    content = server.post("faults", body=body)
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"Rule {content['id']}: {_requests(content)}, {_hit(content)}: {_effect(content)}.")


def remove_faults(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    removed = [server.delete("faults", str(number)) for number in arguments["id"]]
    if screen.is_json:
        screen.content({"faults": removed})
    else:
        for each in removed:
            screen.say(f"Removed rule {each['id']}, which was hit {counted(each['hits'], 'time')}.")


def clear_faults(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    content = server.delete("faults")
    if screen.is_json:
        screen.content(content)
    else:
        screen.say(f"Removed {counted(content['deleted'], 'rule')}.")


def _rule(arguments: dict[str, Any]) -> dict[str, Any]:
    if "rule" in arguments:
        if set(arguments) & {*_FIELDS, "container", "partition_key"}:
            raise bad_request("--rule is the whole rule: leave the other options out, or --rule.")
        try:
            given = json.loads(arguments["rule"])
        except ValueError as error:
            raise bad_request(f"--rule is not JSON: {error}. Expected such as '{{\"status\": 429}}'.") from None
        if not isinstance(given, dict):
            raise bad_request('--rule must be a JSON object, such as \'{"operations": "write", "status": 429}\'.')
        return given
    body = {field: arguments[name] for name, field in _FIELDS.items() if name in arguments}
    if "partition_key" in arguments:
        body["key"] = key_values(arguments["partition_key"])
    if "container" in arguments:
        database, _, container = arguments["container"].partition("/")
        body |= {"database": database, **({"container": container} if container else {})}
    if not {"status", "delayMs", "drop"} & set(body):
        raise bad_request("Say what happens to the requests: give --status 429, --delay-ms 500 or --drop.")
    return body


def _requests(rule: dict[str, Any]) -> str:
    """Which requests a rule selects."""
    operations = rule["operations"]
    is_all = len(operations) > len(_WRITES) + 1  # only reads would be left out
    text = "all requests" if is_all else "writes" if set(operations) == _WRITES else ", ".join(operations)
    if "database" in rule:
        text += f" of {rule['database']}" + (f"/{rule['container']}" if "container" in rule else "")
    if "key" in rule:
        text += f", key {json.dumps(rule['key'], ensure_ascii=False)}"
    return text + (f", partition {rule['range']}" if "range" in rule else "")


def _hit(rule: dict[str, Any]) -> str:
    """Which of those it hits."""
    parts = [f"after {count(rule['skip'])}"] if "skip" in rule else []
    if rule["every"] > 1:
        parts.append(f"1 in {rule['every']:,}")
    if "probability" in rule:
        parts.append(f"{100 * rule['probability']:g} %")
    if "count" in rule:
        parts.append(f"at most {count(rule['count'])}")
    return ", ".join(parts) or "each one"


def _effect(rule: dict[str, Any]) -> str:
    parts = [f"{rule['delayMs']:,} ms late"] if "delayMs" in rule else []
    if "status" in rule:
        sub_status = f"/{rule['subStatus']}" if "subStatus" in rule else ""
        parts.append(f"{rule['status']}{sub_status}")
    if "drop" in rule:
        parts.append("no answer")
    if "after" in rule:
        parts.append("after the write")
    return ", ".join(parts)
