"""Session tokens: the lsn of each key range that a client has seen. Answers give them, together with where the answer
comes from, and requests give them back to read their own writes. Whether a partition is behind a token is checked by
`account/visits/visits.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from armillary.account.container import Container
from armillary.doors.sql.headers import Headers, path_headers, refusal
from armillary.net.charged_requests import HeaderList

SESSION_TOKEN: Final = b"x-ms-session-token"

# <range>:<version>#<global lsn>[#<region>=<local lsn>...]; before 2017 clients sent <range>:<lsn>.
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


def render_session_token(range_id: int, lsn: int) -> bytes:
    """Always version 1 and no regions: both SDKs refuse to merge tokens whose number of regions differs."""
    return b"%d:1#%d" % (range_id, lsn)


def render_session_tokens(lsns: Sequence[tuple[int, int]]) -> bytes:
    return b",".join([b"%d:1#%d" % pair for pair in lsns])


def range_headers(range_id: int, lsn: int) -> HeaderList:
    return [(b"x-ms-documentdb-partitionkeyrangeid", b"%d" % range_id), (b"lsn", b"%d" % lsn)]


def place_headers(container: Container, range_id: int, lsn: int) -> HeaderList:
    """Where the answer comes from. Python keeps session tokens by the name link, JavaScript by the rid."""
    text = b"%d" % lsn
    return [
        (SESSION_TOKEN, render_session_token(range_id, lsn)),
        *path_headers(container.link, container.rid_text).pairs,
        *range_headers(range_id, lsn),
        (b"x-ms-cosmos-llsn", text),
        (b"x-ms-global-committed-lsn", text),
        (b"x-ms-quorum-acked-lsn", text),
    ]


def page_headers(container: Container, lsns: Sequence[tuple[int, int]]) -> HeaderList:
    """Where a page comes from: one range, or several."""
    headers = [(SESSION_TOKEN, render_session_tokens(lsns)), *path_headers(container.link, container.rid_text).pairs]
    return headers + range_headers(*lsns[0]) if len(lsns) == 1 else headers
