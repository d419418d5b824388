"""Addresses of the management API: the subscription, the resource group, the account and the words after it.

The words of an address are compared without case, as Azure Resource Manager does; names are taken as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

from armillary.doors.management.errors import refused
from armillary.errors import Failure, Kind, bad_request
from armillary.model.json_members import shown

PROVIDER: Final = "Microsoft.DocumentDB"
ACCOUNTS: Final = "databaseAccounts"
GROUP: Final = "armillary"  # in the ids of lists over all resource groups
_VERSION_MIN: Final = "2020-04-01"
_VERSION: Final = re.compile(r"20[0-9]{2}-[0-1][0-9]-[0-3][0-9](-preview)?")
_SUBSCRIPTION: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_GROUP_CHARACTERS_MAX: Final = 90  # Azure's limit


@dataclass(frozen=True, slots=True)
class Address:
    subscription: str
    group: str | None  # None: of all resource groups
    account: str | None  # None: the list of accounts
    words: tuple[str, ...]  # after the account

    def account_id(self, account: str) -> str:
        group = f"/resourceGroups/{self.group or GROUP}"
        return f"/subscriptions/{self.subscription}{group}/providers/{PROVIDER}/{ACCOUNTS}/{account}"


def parse_path(path: bytes) -> list[str]:
    """The segments of a path, decoded."""
    try:
        return [unquote(each, errors="strict") for each in path.decode("ascii").strip("/").split("/")]
    except UnicodeDecodeError:
        raise bad_request("The path of the address is not percent-encoded UTF-8.") from None


def check_query(query: bytes) -> None:
    """The only parameter of a request is the version of the API."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), max_num_fields=20)
    except ValueError:
        raise bad_request("The query of the address cannot be read: write NAME=VALUE pairs joined by &.") from None
    versions = [value for name, value in pairs if name.lower() == "api-version"]
    for name, _ in pairs:
        if name.lower() != "api-version":
            raise bad_request(f"Unknown query parameter '{shown(name)}'; api-version is the only one.")
    if len(versions) != 1:
        raise refused(
            "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required, once."
        )
    if not _VERSION.fullmatch(versions[0]) or versions[0] < _VERSION_MIN:
        raise refused(
            "InvalidApiVersionParameter",
            f"The api-version '{shown(versions[0])}' is invalid: it is a date such as 2025-04-15, not before "
            f"{_VERSION_MIN}.",
        )


def parse_address(segments: list[str]) -> Address:
    """Of a path that begins with /subscriptions."""
    words = [each.lower() for each in segments]
    subscription = segments[1] if len(segments) > 1 else ""
    if not _SUBSCRIPTION.fullmatch(subscription):
        raise refused(
            "InvalidSubscriptionId",
            f"The subscription identifier '{shown(subscription)}' is malformed: any GUID is accepted, such as "
            "00000000-0000-0000-0000-000000000000.",
        )
    group, rest = None, 2
    if words[2:3] == ["resourcegroups"]:
        group, rest = (segments[3] if len(segments) > 3 else ""), 4
        if not group or len(group) > _GROUP_CHARACTERS_MAX:
            raise bad_request(f"A resource group has a name of 1 to {_GROUP_CHARACTERS_MAX} characters.")
    if words[rest : rest + 3] != ["providers", PROVIDER.lower(), ACCOUNTS.lower()]:
        raise missing("/".join(segments[rest:]) or "/".join(segments))
    names = segments[rest + 3 :]
    if names and group is None:
        raise missing("/".join(segments[rest:]))
    return Address(subscription, group, names[0] if names else None, tuple(names[1:]))


def missing(what: str) -> Failure:
    """The refusal of an address that names nothing that this API has."""
    return refused(
        "NotFound",
        f"The management API of this server has no '{shown(what)}'; docs/management.md lists what there is.",
        Kind.NOT_FOUND,
    )
