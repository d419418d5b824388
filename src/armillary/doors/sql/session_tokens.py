"""Session tokens: the lsn of each key range that a client has seen. Answers give them, together with where the answer
comes from, and requests give them back to read their own writes. Whether a partition is behind a token is checked by
`account/visits/visits.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from armillary.account.container import Container
from armillary.doors.sql.headers import Headers, key_range, path_headers, refusal
from armillary.net.charged_requests import HeaderList

SESSION_TOKEN: Final = b"x-ms-session-token"

# The first API version whose clients read vector tokens. Java's azure-documentdb 1.15, JavaScript's documentdb 1.15 and
# Python's pydocumentdb 2.3 are older, and fail or lose the session on anything but a number after the colon.
VERSION, VECTOR_SINCE = b"x-ms-version", b"2018-06-18"

# Clients that take the whole header for the token of one range, and fail on a list: Java's and .NET's of all times
# (SessionContainer.setSessionToken splits at colons). The others read lists, or do not look into tokens.
_READS_ONE: Final = re.compile(
    rb"azsdk-java-|documentdb-java-sdk|cosmos-netstandard-sdk|documentdb-(?:dotnet|netcore)-sdk"
)
_USER_AGENT: Final = b"user-agent"

# <range>:<version>#<global lsn>[#<region>=<local lsn>...], or <range>:<lsn> from clients of earlier API versions.
_match_pair = re.compile(rb"([0-9]{1,18}):(?:-?[0-9]{1,18}#)?(-?[0-9]{1,18})(?:#[0-9]{1,18}=-?[0-9]{1,18})*").fullmatch


def session_token(headers: Headers) -> dict[int, int]:
    """The lsn that the client has seen of each key range: `0:1#57,3:2#80#1=40#2=17` is {0: 57, 3: 80}."""
    given = headers.get(SESSION_TOKEN)
    if not given:
        return {}
    match = _match_pair(given)  # one range, as in nearly every request
    return {int(match[1]): int(match[2])} if match else _parse_pairs(given)


def _parse_pairs(token: bytes) -> dict[int, int]:
    seen: dict[int, int] = {}
    for pair in token.split(b","):
        match = _match_pair(pair.strip(b" "))
        if match is None:
            raise refusal(SESSION_TOKEN, token, "a session token of an earlier response")
        range_id, lsn = int(match[1]), int(match[2])
        seen[range_id] = max(lsn, seen.get(range_id, lsn))
    return seen


def expects_plain(headers: Headers) -> bool:
    """Whether the client reads `<range>:<lsn>` only: its API version is older than vector session tokens."""
    return headers.get(VERSION, VECTOR_SINCE) < VECTOR_SINCE


def render_session_tokens(headers: Headers, lsns: Iterable[tuple[int, int]]) -> bytes:
    """Vectors have always version 1 and no regions: both SDKs refuse to merge tokens whose number of regions
    differs."""
    form = b"%d:%d" if expects_plain(headers) else b"%d:1#%d"
    return b",".join([form % pair for pair in lsns])


def _for_one(headers: Headers, lsns: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Of several ranges, one token that none of them is behind. If they are the children of the range that the request
    names, it is for that range: clients look up the tokens of parents, too."""
    named = key_range(headers)
    return (named[0], min(lsn for _, lsn in lsns)) if named is not None else lsns[0]


def range_headers(range_id: int, lsn: int) -> HeaderList:
    return [(b"x-ms-documentdb-partitionkeyrangeid", b"%d" % range_id), (b"lsn", b"%d" % lsn)]


def place_headers(headers: Headers, container: Container, range_id: int, lsn: int) -> HeaderList:
    """Where the answer to a request with these headers comes from. Python keeps session tokens by the name
    link, JavaScript by the rid."""
    text = b"%d" % lsn
    return [
        (SESSION_TOKEN, render_session_tokens(headers, [(range_id, lsn)])),
        *path_headers(container.link, container.rid_text).pairs,
        *range_headers(range_id, lsn),
        (b"x-ms-cosmos-llsn", text),
        (b"x-ms-global-committed-lsn", text),
        (b"x-ms-quorum-acked-lsn", text),
    ]


def page_headers(headers: Headers, container: Container, lsns: Sequence[tuple[int, int]]) -> HeaderList:
    """Where a page comes from: one range, or several."""
    if len(lsns) > 1 and _READS_ONE.search(headers.get(_USER_AGENT, b"")) is not None:
        seen = [_for_one(headers, lsns)]
    else:
        seen = list(lsns)
    tokens = (SESSION_TOKEN, render_session_tokens(headers, seen))
    pairs = [tokens, *path_headers(container.link, container.rid_text).pairs]
    return pairs + range_headers(*lsns[0]) if len(lsns) == 1 else pairs
