"""Authentication: the `Authorization` header, or the signature in the address, checked against the account's keys.
What that one may do is in `grants.py`. Comparisons with secrets take the same time whatever they find.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from armillary.clock import Clock
from armillary.doors.table.access.grants import OWNER, READER, Grant
from armillary.doors.table.access.shared_access import SharedAccess
from armillary.doors.table.addresses import Address, Place
from armillary.errors import Failure, Kind
from armillary.limits import CLOCK_SKEW_S

Headers = Mapping[bytes, bytes]
Policies = Callable[[str], Mapping[str, Mapping[str, str]]]  # a table's stored access policies

_DATES_REMEMBERED_MAX: Final = 64
_SECONDARY: Final = "-secondary"  # after the name of an account: its copy, for reading
_AUTHORIZATION = re.compile(rb"(SharedKey|SharedKeyLite) ([A-Za-z0-9._\-]{1,100}):([A-Za-z0-9+/=]{1,200})")
# What a client's URL library may write plainly or percent-encoded, whatever it signed.
_EITHER_WAY: Final = "/'(),@$!*:=;&+~"
_LOOKING_LIKE = (
    "The MAC signature found in the HTTP request '{}' is not the same as any computed signature. Server used following "
    "string to sign: '{}'. Server failed to authenticate the request. Make sure the value of Authorization header is "
    "formed correctly including the signature."
)


class Keys:
    """The account's keys, and what each is good for."""

    def __init__(self, owners: Sequence[str | None], readers: Sequence[str | None]) -> None:
        self.use(owners, readers)

    def use(self, owners: Sequence[str | None], readers: Sequence[str | None]) -> None:
        """From now on these are the account's keys."""
        self._signers = [(_signer(key), OWNER) for key in owners if key]
        self._signers += [(_signer(key), READER) for key in readers if key]

    def grant(self, text: bytes, signature: bytes) -> Grant | None:
        for signer, grant in self._signers:
            mac = signer.copy()
            mac.update(text)
            if hmac.compare_digest(b2a_base64(mac.digest(), newline=False), signature):
                return grant
        return None


class Authenticator:
    def __init__(self, account: str, keys: Keys, clock: Clock, policies: Policies) -> None:
        self._account = account
        self._own_names = frozenset((account, account + _SECONDARY))
        self._keys = keys
        self._clock = clock
        self._dates: dict[bytes, float] = {}
        self._shared_access = SharedAccess(keys, clock, policies)

    def names_of(self, headers: Headers) -> frozenset[str]:
        """The names that the account may have in a path: its own, and the one that the request is signed with, each
        also as that of its copy. The key is the secret, not the name."""
        given = headers.get(b"authorization")
        found = _AUTHORIZATION.fullmatch(given) if given is not None else None
        if found is None:
            return self._own_names
        name = found[2].decode("ascii").removesuffix(_SECONDARY)
        return self._own_names if name in self._own_names else self._own_names | {name, name + _SECONDARY}

    def verify(self, method: str, address: Address, headers: Headers, *, is_tls: bool, peer: str) -> Grant:
        given = headers.get(b"authorization")
        if given is not None:
            found = _AUTHORIZATION.fullmatch(given)
            if found is None:
                raise _unreadable(given)
            return self._verify_key(method, address, headers, found)
        if "sig" in address.query:
            names = dict.fromkeys((self._account, address.account_segment or "", _host_label(headers)))
            return self._shared_access.verify(address, [name for name in names if name], is_tls=is_tls, peer=peer)
        raise Failure(
            Kind.UNAUTHORIZED,
            "Server failed to authenticate the request. It has neither an Authorization header nor a signature in its "
            "address.",
            details={"table_code": "NoAuthenticationInformation", "challenge": True},
        )

    def _verify_key(self, method: str, address: Address, headers: Headers, found: re.Match[bytes]) -> Grant:
        scheme, account, signature = found.groups()
        date = headers.get(b"x-ms-date") or headers.get(b"date")
        if not date:
            raise _failed("It needs the header x-ms-date or Date, which the signature covers.")
        moment_s = self._dates.get(date)
        if moment_s is None:
            moment_s = self._remember(date)
        if not -CLOCK_SKEW_S <= self._clock.now_s() - moment_s <= CLOCK_SKEW_S:
            raise _failed("Its date is more than 15 minutes away from the server's time.")
        begin = date + b"\n"
        if scheme == b"SharedKey":
            content = headers.get(b"content-md5", b"") + b"\n" + headers.get(b"content-type", b"") + b"\n"
            begin = method.encode("ascii") + b"\n" + content + begin
        comp = address.query.get("comp")
        end = b"?comp=" + comp.encode() if comp is not None else b""
        name = account.removesuffix(_SECONDARY.encode())
        first = begin + b"/" + name + address.path + end
        grant = self._keys.grant(first, signature)
        if grant is None:
            for path in _spellings(address):
                grant = self._keys.grant(begin + b"/" + name + path + end, signature)
                if grant is not None:
                    break
            else:
                shown = first.decode("utf-8", "replace").replace("\n", "\\n")
                raise Failure(Kind.UNAUTHORIZED, _LOOKING_LIKE.format(signature.decode("ascii"), shown))
        return grant

    def _remember(self, date: bytes) -> float:
        """Seconds since the epoch. Clients send one text for a whole second."""
        try:
            moment_s = parsedate_to_datetime(date.decode("ascii")).timestamp()
        except (ValueError, TypeError, OverflowError):
            raise _failed("Its date is not in the form of RFC 1123, such as Tue, 01 Nov 1994 08:12:31 GMT.") from None
        if len(self._dates) >= _DATES_REMEMBERED_MAX:
            self._dates.clear()
        self._dates[date] = moment_s
        return moment_s


def _spellings(address: Address) -> list[bytes]:
    """The path as other libraries write it: with what needs no escape plain, with all of it escaped, and decoded."""
    plain = unquote(address.path.decode("latin-1"), encoding="utf-8", errors="surrogateescape")
    texts = [quote(plain, safe=_EITHER_WAY, errors="surrogateescape"), quote(plain, errors="surrogateescape")]
    spellings = [text.encode("ascii") for text in texts]
    if "%" not in plain:  # else it may read like the escaped path of another entity, whose signature would fit
        spellings.append(plain.encode("utf-8", "surrogateescape"))
    if address.place is Place.SERVICE:
        spellings += [b"", b"/"]  # clients differ in whether nothing is a path
        if address.account_segment is not None:
            # Python's client signs the address of the account, and then sends the request to that of its copy.
            spellings.append(f"/{address.account_segment.removesuffix(_SECONDARY)}/".encode())
    return [each for each in dict.fromkeys(spellings) if each != address.path]


def _host_label(headers: Headers) -> str:
    """The account of a host such as people.table.cosmos.azure.com."""
    label, _, rest = headers.get(b"host", b"").decode("latin-1").partition(".")
    return label.removesuffix(_SECONDARY) if rest.startswith("table.") else ""


def is_secondary(account: str, headers: Headers, segment: str | None) -> bool:
    """Whether host or path name the account's copy (`people-secondary`), which takes no writes."""
    if segment is not None and segment.endswith(_SECONDARY) and segment != account:
        return True
    label = headers.get(b"host", b"").partition(b".")[0]
    return label.endswith(b"-secondary") and label != account.encode()


def _signer(key: str) -> Any:
    # A keyed HMAC is copied for each request: that skips the two blocks of its key.
    return hmac.new(b64decode(key), digestmod="sha256")


def credential_kind(address: Address, headers: Headers) -> str:
    """What a request that was refused had for a credential; for the security log."""
    if b"authorization" in headers:
        return "key" if headers[b"authorization"].startswith(b"SharedKey") else "unknown"
    return "shared access signature" if "sig" in address.query else "none"


def _unreadable(given: bytes) -> Failure:
    if given.lower().startswith(b"bearer "):
        return Failure(
            Kind.UNAUTHORIZED,
            "The input authorization token can't serve the request. Tokens of Azure AD are not offered by this door; "
            "use a key or a shared access signature.",
        )
    return Failure(
        Kind.BAD_REQUEST,
        "The authentication information was not provided in the correct format. Verify the value of Authorization "
        "header: it reads SharedKey <account>:<signature>, or SharedKeyLite.",
        details={"table_code": "InvalidAuthenticationInfo"},
    )


def _failed(reason: str) -> Failure:
    return Failure(
        Kind.FORBIDDEN,
        f"Server failed to authenticate the request. {reason}",
        details={"table_code": "AuthenticationFailed"},
    )
