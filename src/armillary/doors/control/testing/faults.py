"""Rules of faults over the control API: as JSON, with the statuses that clients of the SQL protocol see. What a rule
does is in `account/faults.py`.
"""

from __future__ import annotations

from typing import Any

import orjson

from armillary import limits
from armillary.account.account import Account
from armillary.account.faults import APPLY, OPERATIONS, WRITES, FaultRule
from armillary.doors.control.call import Call
from armillary.doors.control.fields import Fields
from armillary.errors import Failure, Kind, bad_request
from armillary.model.json_members import shown
from armillary.model.keys import Key, PartitionKeyDefinition, to_header
from armillary.net.http import Response

_NUMBER_MAX = 2**53

# Status and sub-status, 0 if there is none, to what happened. Others with the same status keep its first row's Kind.
_KINDS: dict[tuple[int, int], Kind] = {
    (404, 1002): Kind.SESSION_BEHIND,
    (408, 0): Kind.TIMED_OUT,
    (410, 1002): Kind.RANGE_GONE,
    (410, 1007): Kind.RANGE_BUSY,
    (410, 1000): Kind.NAME_STALE,
    (429, 3200): Kind.THROTTLED,
    (449, 0): Kind.RETRY_WITH,
    (500, 0): Kind.INTERNAL,
    (503, 0): Kind.UNAVAILABLE,
}
# In what form a key comes is the same for all containers; how many parts it has is not looked at here.
_ANY_KEY = PartitionKeyDefinition(("/key",))


async def list_rules(call: Call) -> Response:
    call.query()
    return call.answer({"faults": [_to_json(rule) for rule in call.account.faults.rules.values()]})


async def create_rule(call: Call) -> Response:
    rule = _parse(call.fields("a fault rule"))
    if APPLY in rule.operations:
        _check_apply(rule, call.account)
    return call.answer(_to_json(call.account.faults.add(rule)), 201)


async def show_rule(call: Call) -> Response:
    call.query()
    rule = call.account.faults.rules.get(_rule_id(call))
    if rule is None:
        raise Failure(Kind.NOT_FOUND, f"There is no fault rule {shown(call.names[0])}.")
    return call.answer(_to_json(rule))


async def delete_rule(call: Call) -> Response:
    call.query()
    return call.answer(_to_json(call.account.faults.remove(_rule_id(call))))


async def delete_rules(call: Call) -> Response:
    call.query()
    return call.answer({"deleted": call.account.faults.clear()})


def _rule_id(call: Call) -> int:
    text = call.names[0]
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Failure(Kind.NOT_FOUND, f"There is no fault rule '{shown(text)}': rules have numbers.")
    return int(text)


def _parse(fields: Fields) -> FaultRule:
    rule = FaultRule(
        operations=_operations(fields.texts("operations")),
        database=fields.text("database"),
        container=fields.text("container"),
        key=_key(fields.take("key")),
        range_id=fields.whole("range", 0, _NUMBER_MAX),
        skip=fields.whole("skip", 0, _NUMBER_MAX) or 0,
        every=fields.whole("every", 1, _NUMBER_MAX) or 1,
        count=fields.whole("count", 1, _NUMBER_MAX),
        seed=fields.whole("seed", 0, _NUMBER_MAX) or 0,
        retry_after_ms=fields.whole("retryAfterMs", 0, limits.FAULT_DELAY_MS_MAX),
        delay_ms=fields.whole("delayMs", 0, limits.FAULT_DELAY_MS_MAX) or 0,
        is_after=fields.truth("after"),
    )
    probability, is_seeded = fields.number("probability", 0, 1), fields.has("seed")
    rule.probability = 1.0 if probability is None else probability
    status, sub_status = fields.whole("status", 100, 599), fields.whole("subStatus", 0, 65_535)
    is_dropped = fields.truth("drop")
    fields.end()
    if rule.database is None and rule.container is not None:
        raise bad_request("A fault rule for a container names its 'database' too.")
    if status is not None and is_dropped:
        raise bad_request("A fault rule has a 'status' or drops the connection, not both.")
    if status is not None:
        rule.kind, rule.details = _kind(status, sub_status)
    elif sub_status is not None:
        raise bad_request("'subStatus' of a fault rule goes with a 'status'.")
    elif is_dropped:
        rule.kind = Kind.DROPPED
    elif not rule.delay_ms:
        raise bad_request("A fault rule does something: give it a 'status', 'drop' or 'delayMs'.")
    if rule.retry_after_ms is not None and status is None:
        raise bad_request("'retryAfterMs' of a fault rule goes with a 'status'.")
    if is_seeded and probability is None:
        raise bad_request("'seed' of a fault rule goes with a 'probability'.")
    if rule.is_after and (rule.kind is None or not rule.operations <= set(WRITES)):
        raise bad_request("'after' is for fault rules that lose the answers of writes: name those as 'operations'.")
    return rule


def _check_apply(rule: FaultRule, account: Account) -> None:
    """Rules that hold back the log: refused where they would have no effect."""
    if rule != FaultRule(operations=frozenset((APPLY,)), delay_ms=rule.delay_ms):
        raise bad_request(
            "A fault rule with the operation 'apply' has a 'delayMs' and nothing else: it holds back all groups of the "
            "replicated log."
        )
    if account.topology is None or account.topology.leads:
        raise bad_request(
            "The operation 'apply' is for nodes of a cluster that follow another one: send the rule to such a node."
        )


def _operations(words: list[str]) -> frozenset[str]:
    found: set[str] = set()
    for word in words:
        if word == APPLY:
            found.add(word)
            continue
        if word == "write":
            found |= set(WRITES)
        elif word in OPERATIONS:
            found.add(word)
        else:
            raise bad_request(
                f"'operations' of a fault rule knows no '{shown(word)}'; it knows write, "
                f"{', '.join(OPERATIONS)} and {APPLY}."
            )
    return frozenset(found) if words else frozenset(OPERATIONS)


def _key(given: Any) -> Key | None:
    if given is None:
        return None
    return _ANY_KEY.parse_header(orjson.dumps(given if isinstance(given, list) else [given]))


def _kind(status: int, sub_status: int | None) -> tuple[Kind, dict[str, Any]]:
    rows = {sub: kind for (each, sub), kind in _KINDS.items() if each == status}
    if not rows:
        known = ", ".join(dict.fromkeys(str(each) for each, _ in _KINDS))
        raise bad_request(f"'status' of a fault rule is one of {known}, not {status}.")
    if sub_status is None:
        return next(iter(rows.values())), {}
    return rows.get(sub_status, next(iter(rows.values()))), {"sub_status": sub_status}


def _to_json(rule: FaultRule) -> dict[str, Any]:
    statuses = [place for place, kind in _KINDS.items() if kind is rule.kind]
    status, sub_status = statuses[0] if statuses else (None, None)
    content: dict[str, Any] = {
        "id": rule.id,
        "operations": [each for each in (*OPERATIONS, APPLY) if each in rule.operations],
        "database": rule.database,
        "container": rule.container,
        "key": orjson.loads(to_header(rule.key)) if rule.key is not None else None,
        "range": rule.range_id,
        "skip": rule.skip or None,
        "every": rule.every,
        "count": rule.count,
        "probability": rule.probability if rule.probability < 1 else None,
        "seed": rule.seed if rule.probability < 1 else None,
        "status": status,
        "subStatus": rule.details.get("sub_status", sub_status) or None,
        "drop": True if rule.kind is Kind.DROPPED else None,
        "retryAfterMs": rule.retry_after_ms,
        "delayMs": rule.delay_ms or None,
        "after": True if rule.is_after else None,
        "seen": rule.seen,
        "hits": rule.hits,
        "spent": rule.is_spent,
    }
    return {name: value for name, value in content.items() if value is not None}
