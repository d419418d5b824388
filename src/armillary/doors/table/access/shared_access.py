"""Shared access signatures: addresses that carry their own permission, for the whole account or for one table, with
permissions, times, addresses of clients, protocol and ranges of keys, or with a stored policy that says some of it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from armillary.clock import Clock
from armillary.doors.table.access.grants import Grant, KeyRange
from armillary.doors.table.addresses import Address
from armillary.doors.table.errors import refused
from armillary.errors import Failure, Kind
from armillary.model import edm

_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_VERSION_MIN: Final = "2015-04-05"  # the first with addresses and protocols; earlier ones were signed in another form
_VERSION_WITH_SCOPE: Final = "2020-12-06"
_ACCOUNT_PERMISSIONS: Final = frozenset("rwdlacuptfxyi")
_TABLE_PERMISSIONS: Final = frozenset("raud")
_KEY_BOUNDS: Final = ("spk", "srk", "epk", "erk")
_SIGNED: Final = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses", "tn", "si", *_KEY_BOUNDS)


class Signers(Protocol):
    def grant(self, text: bytes, signature: bytes) -> Grant | None: ...


class SharedAccess:
    def __init__(self, keys: Signers, clock: Clock, policies: Callable[[str], Mapping[str, Mapping[str, str]]]) -> None:
        self._keys = keys
        self._clock = clock
        self._policies = policies

    def verify(self, address: Address, accounts: Sequence[str], *, is_tls: bool, peer: str) -> Grant:
        query = address.query
        version = query.get("sv", "")
        if not _VERSION.fullmatch(version) or version < _VERSION_MIN:
            raise failed(f"The signed version (sv) must be {_VERSION_MIN} or later.")
        is_for_account = "ss" in query
        _check_form(query)
        texts = [_account_text(query, name) if is_for_account else _table_text(query, name) for name in accounts]
        signature = query["sig"].encode("utf-8", "replace")
        found = next((grant for text in texts if (grant := self._keys.grant(text.encode(), signature))), None)
        if found is None:
            raise failed("Signature did not match.")
        if is_for_account:
            if "t" not in query["ss"]:
                raise refused(
                    "AuthorizationServiceMismatch",
                    "This request is not authorized to perform this operation using this service: tables (t) are not "
                    "among the signed services (ss).",
                    Kind.FORBIDDEN,
                )
            terms: Mapping[str, str] = query
        else:
            terms = self._terms(query)
        self._check_moment(terms)
        _check_client(query, is_tls=is_tls, peer=peer)
        known = _ACCOUNT_PERMISSIONS if is_for_account else _TABLE_PERMISSIONS
        permissions = frozenset(terms.get("sp", ""))
        if not permissions or not permissions <= known:
            raise failed("The signed permissions (sp) are missing, or some are not known.")
        if is_for_account:
            return Grant(found.is_read_only, permissions, frozenset(query.get("srt", "")))
        keys = KeyRange((query.get("spk"), query.get("srk")), (query.get("epk"), query.get("erk")))
        if (keys.first[0] is None and keys.first[1] is not None) or (keys.last[0] is None and keys.last[1] is not None):
            raise failed("A row key (srk, erk) is signed without its partition key.")
        return Grant(found.is_read_only, permissions, None, query["tn"].lower(), keys if keys != KeyRange() else None)

    def _terms(self, query: Mapping[str, str]) -> Mapping[str, str]:
        """Permissions and times, which a stored policy may say in place of the signature."""
        if "tn" not in query:
            raise failed("The table (tn) is missing.")
        name = query.get("si")
        if name is None:
            return query
        policy = self._policies(query["tn"]).get(name)
        if policy is None:
            raise failed(f"The stored access policy '{name[:64]}' (si) does not exist.")
        for field in ("sp", "st", "se"):
            if query.get(field) and policy.get(field):
                raise failed(f"{field} is given by the signature and by the stored access policy.")
        given = {field: query[field] for field in ("sp", "st", "se") if query.get(field)}
        return {**policy, **given}

    def _check_moment(self, terms: Mapping[str, str]) -> None:
        if not terms.get("se"):
            raise failed("The expiry (se) is missing.")
        now = edm.ticks_of_s(int(self._clock.now_s()))
        if now >= _ticks(terms["se"]):
            raise failed(f"The signature is not valid in the specified time frame: it expired at {terms['se']}.")
        if terms.get("st") and now < _ticks(terms["st"]):
            raise failed(f"The signature is not valid in the specified time frame: it begins at {terms['st']}.")


def _check_form(query: Mapping[str, str]) -> None:
    """The signed text joins the fields by line ends, and an absent field reads like an empty one. So that one signature
    has one meaning, no field holds a line end, and a bound of the keys is either left out or not empty."""
    for name in _SIGNED:
        if "\n" in query.get(name, ""):
            raise failed(f"The signed field {name} has a line end in it.")
    for name in _KEY_BOUNDS:
        if query.get(name) == "":
            raise failed(f"The signed key {name} is empty. Leave it out for a range that is open on that side.")


def _account_text(query: Mapping[str, str], account: str) -> str:
    fields = [account, *(query.get(name, "") for name in ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv"))]
    if query.get("sv", "") >= _VERSION_WITH_SCOPE:
        fields.append(query.get("ses", ""))
    return "\n".join(fields) + "\n"


def _table_text(query: Mapping[str, str], account: str) -> str:
    resource = f"/table/{account}/{query.get('tn', '').lower()}"
    fields = [*(query.get(name, "") for name in ("sp", "st", "se")), resource]
    fields += [query.get(name, "") for name in ("si", "sip", "spr", "sv", "spk", "srk", "epk", "erk")]
    return "\n".join(fields)


def _ticks(text: str) -> int:
    try:
        return edm.parse_ticks(text)
    except ValueError:
        raise failed(f"'{text[:40]}' is not a time.") from None


def _check_client(query: Mapping[str, str], *, is_tls: bool, peer: str) -> None:
    protocols = query.get("spr")
    if protocols is not None:
        if not set(protocols.split(",")) <= {"https", "http"}:
            raise failed("The signed protocol (spr) is https, or https,http.")
        if ("https" if is_tls else "http") not in protocols.split(","):
            raise refused(
                "AuthorizationProtocolMismatch",
                "This request is not authorized to perform this operation using this protocol.",
                Kind.FORBIDDEN,
            )
    if query.get("sip"):
        low, _, high = query["sip"].partition("-")
        try:
            first, last = ipaddress.ip_address(low), ipaddress.ip_address(high or low)
            client = ipaddress.ip_address(peer)
        except ValueError:
            raise failed("The signed address (sip) is an IP address, or two with a hyphen between.") from None
        if isinstance(client, ipaddress.IPv6Address) and client.ipv4_mapped is not None:
            client = client.ipv4_mapped
        is_within = first.version == last.version == client.version and int(first) <= int(client) <= int(last)
        if not is_within:
            raise refused(
                "AuthorizationSourceIPMismatch",
                "This request is not authorized to perform this operation using this source IP.",
                Kind.FORBIDDEN,
            )


def failed(reason: str) -> Failure:
    return refused(
        "AuthenticationFailed",
        "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly "
        f"including the signature. {reason}",
        Kind.FORBIDDEN,
    )
