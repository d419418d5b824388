"""The service itself: its properties (logging, metrics, CORS rules), kept in the record of the tables' database, and
its statistics. Rules of CORS are obeyed; what is said about logging and metrics is stored and returned, and changes
nothing: logs and metrics of this server are its operator's."""

from __future__ import annotations

import re
from email.utils import formatdate
from typing import Any, Final
from xml.etree.ElementTree import Element

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.tables import DATABASE, tables_database
from armillary.doors.table.access.grants import Action
from armillary.doors.table.call import Call
from armillary.doors.table.service import markup
from armillary.doors.table.service.markup import bad_document
from armillary.model.charges import METADATA_READ_RU, METADATA_WRITE_RU
from armillary.model.resources import ResourceType
from armillary.net.http import Response

_STATE: Final = "table_service"
_SECTIONS: Final = ("Logging", "HourMetrics", "MinuteMetrics")
_LOGGING: Final = ("Version", "Delete", "Read", "Write", "RetentionPolicy")
_METRICS: Final = ("Version", "Enabled", "IncludeAPIs", "RetentionPolicy")
_RULE: Final = ("AllowedOrigins", "AllowedMethods", "MaxAgeInSeconds", "ExposedHeaders", "AllowedHeaders")
_METHODS: Final = frozenset(("DELETE", "GET", "HEAD", "MERGE", "POST", "OPTIONS", "PUT", "PATCH"))
_RETENTION: Final[dict[str, str]] = {"Enabled": "false"}
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "Logging": {"Version": "1.0", "Delete": "false", "Read": "false", "Write": "false", "RetentionPolicy": _RETENTION},
    "HourMetrics": {"Version": "1.0", "Enabled": "false", "RetentionPolicy": _RETENTION},
    "MinuteMetrics": {"Version": "1.0", "Enabled": "false", "RetentionPolicy": _RETENTION},
}

Rule = dict[str, str]


async def read_properties(call: Call) -> Response:
    call.grant.check(Action.READ_SERVICE)
    state = _state(call.account)
    root = Element("StorageServiceProperties")
    for name in _SECTIONS:
        _render(markup.add(root, name), state.get(name, _DEFAULTS[name]))
    cors = markup.add(root, "Cors")
    for rule in state.get("Cors", []):
        _render(markup.add(cors, "CorsRule"), rule)
    return call.answer_xml(200, METADATA_READ_RU, markup.render(root))


async def write_properties(call: Call) -> Response:
    call.grant.check(Action.WRITE_SERVICE)
    root = markup.parse(call.body, "StorageServiceProperties")
    found = markup.children(root, frozenset((*_SECTIONS, "Cors", "DefaultServiceVersion")))
    changes: dict[str, Any] = {}
    for name, element in found.items():
        if name == "Cors":
            changes[name] = _rules(element)
        elif name in _SECTIONS:
            changes[name] = _section(element, _LOGGING if name == "Logging" else _METRICS)
        else:
            raise bad_document("DefaultServiceVersion is not offered for tables")
    database = await tables_database(call.account)
    await call.account.catalog.change_state(
        database, lambda state, _: {**state, _STATE: {**state.get(_STATE, {}), **changes}}
    )
    return call.answer(202, METADATA_WRITE_RU)


async def read_statistics(call: Call) -> Response:
    call.grant.check(Action.READ_SERVICE)
    root = Element("StorageServiceStats")
    replication = markup.add(root, "GeoReplication")
    topology = call.account.topology
    # On a single server there is one copy, and what is read here is what was written last.
    synced_s = call.account.clock.now_s() if topology is None else topology.reached_us / 1_000_000
    markup.add(replication, "Status", "live" if synced_s else "unavailable")
    markup.add(replication, "LastSyncTime", formatdate(synced_s, usegmt=True) if synced_s else "")
    return call.answer_xml(200, METADATA_READ_RU, markup.render(root))


def cors_rules(account: Account) -> list[Rule]:
    rules: list[Rule] = _state(account).get("Cors", [])
    return rules


def _state(account: Account) -> dict[str, Any]:
    database = account.catalog.find(ResourceType.DATABASE, b"", DATABASE)
    state: dict[str, Any] = database.state.get(_STATE, {}) if database is not None else {}
    return state


def _render(element: Element, content: dict[str, Any]) -> None:
    for name, value in content.items():
        if isinstance(value, dict):
            _render(markup.add(element, name), value)
        else:
            markup.add(element, name, value)


def _section(element: Element, names: tuple[str, ...]) -> dict[str, Any]:
    found = markup.children(element, frozenset(names))
    section: dict[str, Any] = {}
    for name in names:
        child = found.get(name)
        if child is None:
            continue
        if name == "RetentionPolicy":
            section[name] = _retention(child)
        elif name == "Version":
            if markup.text_of(child) != "1.0":
                raise bad_document("the Version of a section is 1.0")
            section[name] = "1.0"
        else:
            section[name] = _truth(child)
    return section


def _retention(element: Element) -> dict[str, str]:
    found = markup.children(element, frozenset(("Enabled", "Days")))
    retention = {"Enabled": _truth(found.get("Enabled"))}
    days = markup.text_of(found.get("Days"))
    if days:
        if not re.fullmatch(r"[0-9]{1,4}", days) or not 1 <= int(days) <= limits.TABLE_RETENTION_DAYS_MAX:
            raise bad_document(f"Days of a retention policy are 1 to {limits.TABLE_RETENTION_DAYS_MAX}")
        retention["Days"] = days
    elif retention["Enabled"] == "true":
        raise bad_document("a retention policy that is enabled has Days")
    return retention


def _truth(element: Element | None) -> str:
    word = markup.text_of(element).lower()
    if word not in ("true", "false"):
        raise bad_document(f"{element.tag if element is not None else 'Enabled'} is true or false")
    return word


def _rules(element: Element) -> list[Rule]:
    if len(element) > limits.TABLE_CORS_RULES_MAX:
        raise bad_document(f"there are at most {limits.TABLE_CORS_RULES_MAX} rules of CORS")
    rules = []
    for child in element:
        if child.tag != "CorsRule":
            raise bad_document(f"Cors has the unknown element {child.tag[:40]}")
        found = markup.children(child, frozenset(_RULE))
        rule = {name: markup.text_of(found.get(name)) for name in _RULE}
        age = rule["MaxAgeInSeconds"]
        if not rule["AllowedOrigins"] or not re.fullmatch(r"[0-9]{1,9}", age or "0"):
            raise bad_document("a rule of CORS has AllowedOrigins and a whole MaxAgeInSeconds")
        methods = {method.strip().upper() for method in rule["AllowedMethods"].split(",")}
        if not methods <= _METHODS:
            raise bad_document(f"AllowedMethods are some of {', '.join(sorted(_METHODS))}")
        rules.append(rule)
    return rules
