"""Stored access policies of a table: up to five, which signatures can name in place of permissions and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.etree.ElementTree import Element

from armillary import audit, limits
from armillary.account.account import Account
from armillary.account.catalog.tables import find_table
from armillary.doors.table.access.grants import Action
from armillary.doors.table.call import Call
from armillary.doors.table.service import markup
from armillary.doors.table.service.markup import bad_document
from armillary.errors import Failure
from armillary.model import edm
from armillary.model.charges import METADATA_READ_RU, METADATA_WRITE_RU
from armillary.net.http import Response

Policies = Mapping[str, Mapping[str, str]]  # by id; each has some of sp, st and se

STATE: Final = "table_policies"  # where the container's record keeps them
_FIELDS: Final = {"Start": "st", "Expiry": "se", "Permission": "sp"}


def policies_of(account: Account, table: str, *, is_storage: bool) -> Policies:
    """For signatures. A table that does not exist has none."""
    try:
        container = find_table(account, table, is_storage=is_storage)
    except Failure:
        return {}
    found: Policies = container.record.state.get(STATE, {})
    return found


async def read_policies(call: Call) -> Response:
    table = call.table(Action.ACCESS_POLICIES)
    root = Element("SignedIdentifiers")
    for policy_id, policy in table.record.state.get(STATE, {}).items():
        identifier = markup.add(root, "SignedIdentifier")
        markup.add(identifier, "Id", policy_id)
        access = markup.add(identifier, "AccessPolicy")
        for name, field in _FIELDS.items():
            if policy.get(field):
                markup.add(access, name, policy[field])
    return call.answer_xml(200, METADATA_READ_RU, markup.render(root))


async def write_policies(call: Call) -> Response:
    table = call.table(Action.ACCESS_POLICIES)
    policies = _parsed(call.body)
    await call.account.catalog.change_state(table.record, lambda state, _: {**state, STATE: policies})
    audit.record("table.policies-changed", name=table.link, count=len(policies))
    return call.answer(204, METADATA_WRITE_RU)


def _parsed(body: bytes) -> dict[str, dict[str, str]]:
    policies: dict[str, dict[str, str]] = {}
    if not body.strip():
        return policies
    root = markup.parse(body, "SignedIdentifiers")
    if len(root) > limits.TABLE_POLICIES_MAX:
        raise bad_document(f"a table has at most {limits.TABLE_POLICIES_MAX} stored access policies")
    for element in root:
        if element.tag != "SignedIdentifier":
            raise bad_document(f"SignedIdentifiers has the unknown element {element.tag[:40]}")
        found = markup.children(element, frozenset(("Id", "AccessPolicy")))
        policy_id = markup.text_of(found.get("Id"))
        if not policy_id or len(policy_id) > limits.TABLE_POLICY_ID_CHARACTERS_MAX or policy_id in policies:
            raise bad_document("each Id has 1 to 64 characters and is given once")
        policies[policy_id] = _policy(found.get("AccessPolicy"))
    return policies


def _policy(element: Element | None) -> dict[str, str]:
    if element is None:
        return {}
    policy: dict[str, str] = {}
    for name, child in markup.children(element, frozenset(_FIELDS)).items():
        text = markup.text_of(child)
        if not text:
            continue
        if name == "Permission":
            if set(text) - set("raud"):
                raise bad_document("permissions of a table are r, a, u and d")
        else:
            try:
                edm.parse_ticks(text)
            except ValueError:
                raise bad_document(f"{name} is no time") from None
        policy[_FIELDS[name]] = text
    return policy
