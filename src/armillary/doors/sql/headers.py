"""The headers of the SQL door: typed access to what a request says, and the rendering of what every response says.
A header that is absent has its default; one that is present and wrong is refused by name. Headers that this door does
not know are ignored, as the service does. What a value means for an operation is left to `items/`
and `resources/`.
"""

from __future__ import annotations

import re
from binascii import Error as HexError
from binascii import unhexlify
from collections.abc import Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import orjson

from armillary import limits
from armillary.account.throughput.budgets import Ask
from armillary.errors import Failure, bad_request
from armillary.limits import (
    ACTIVITY_ID_BYTES_MAX,
    RESOURCE_TOKEN_SECONDS_MAX,
    RESOURCE_TOKEN_SECONDS_MIN,
    THROUGHPUT_BUCKETS,
)
from armillary.net.http import Response

Headers = Mapping[bytes, bytes]  # names in lower case

# Flags, for `flag`.
IS_BATCH = b"x-ms-cosmos-is-batch-request"
IS_BATCH_ATOMIC = b"x-ms-cosmos-batch-atomic"
BATCH_CONTINUES_ON_ERROR = b"x-ms-cosmos-batch-continue-on-error"
IS_QUERY_PLAN = b"x-ms-cosmos-is-query-plan-request"
IS_QUERY = b"x-ms-documentdb-isquery"
IS_QUERY_GO = b"x-ms-documentdb-query"  # the Go SDK's name for the same
IS_UPSERT = b"x-ms-documentdb-is-upsert"
ENABLE_CROSS_PARTITION = b"x-ms-documentdb-query-enablecrosspartition"
POPULATE_QUERY_METRICS = b"x-ms-documentdb-populatequerymetrics"
POPULATE_INDEX_METRICS = b"x-ms-cosmos-populateindexmetrics"
POPULATE_INDEX_METRICS_V2 = b"x-ms-cosmos-populateindexmetrics-v2"
POPULATE_QUERY_ADVICE = b"x-ms-cosmos-populatequeryadvice"
POPULATE_QUOTA = b"x-ms-documentdb-populatequotainfo"
POPULATE_STATISTICS = b"x-ms-documentdb-populatepartitionstatistics"
MIGRATE_TO_AUTOSCALE = b"x-ms-cosmos-migrate-offer-to-autopilot"
MIGRATE_TO_MANUAL = b"x-ms-cosmos-migrate-offer-to-manual-throughput"
OFFER_MINUTE_POOL = b"x-ms-offer-is-ru-per-minute-throughput-enabled"
SPARE_MINUTE_POOL = b"x-ms-documentdb-disable-ru-per-minute-usage"

EPK_RANGE = (b"x-ms-start-epk", b"x-ms-end-epk")

# Texts, for `text`.
PARTITION_KEY = b"x-ms-documentdb-partitionkey"
CONTINUATION = b"x-ms-continuation"
CONTINUATION_LIMIT = b"x-ms-documentdb-responsecontinuationtokenlimitinkb"
CORRELATED_ACTIVITY = b"x-ms-cosmos-correlated-activityid"  # of all requests that a client makes for one query
HUB_REGION = b"x-ms-cosmos-hub-region-processing-only"  # the write region is to answer, with `flag`
INTENDED_RID = b"x-ms-cosmos-intended-collection-rid"
IF_MATCH = b"if-match"
PREFER = b"prefer"
CONSISTENCY = b"x-ms-consistency-level"
READ_STRATEGY = b"x-ms-cosmos-read-consistency-strategy"  # what newer clients send with reads instead of a level
LEVELS = frozenset((CONSISTENCY, READ_STRATEGY))
INDEXING_DIRECTIVE = b"x-ms-indexing-directive"
IF_NONE_MATCH = b"if-none-match"
IF_MODIFIED_SINCE = b"if-modified-since"
CHANGE_FEED = b"a-im"
CHANGE_FEED_FORM = b"x-ms-cosmos-changefeed-wire-format-version"
QUERY_FEATURES = b"x-ms-cosmos-supported-query-features"
PRE_TRIGGERS = b"x-ms-documentdb-pre-trigger-include"
POST_TRIGGERS = b"x-ms-documentdb-post-trigger-include"

# The version numbers are those of the service at the API version that the SDKs speak (2018-12-31 to 2020-07-15).
STATIC_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"application/json"),
    (b"x-ms-gatewayversion", b"version=2.14.0"),
    (b"x-ms-serviceversion", b"version=2.14.0.0"),
    (b"x-ms-schemaversion", b"1.18"),
    (b"server", b"Armillary"),
    # The service sends a year. On a developer's machine that would turn every http://localhost of the browser into
    # https; zero is the same header and says: remember nothing.
    (b"strict-transport-security", b"max-age=0"),
)

CONSISTENCY_LEVELS = ("Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual")  # strongest first
# What a strategy of reading means here. Only the node that leads knows what was committed last.
_LEVEL_BY_STRATEGY = {
    b"Eventual": "Eventual",
    b"Session": "Session",
    b"LatestCommitted": "Strong",
    b"LatestCommittedWriteRegion": "Strong",
    b"GlobalStrong": "Strong",
}
_CONSISTENCY_BY_TEXT = {level.lower().encode(): level for level in CONSISTENCY_LEVELS}
_INDEXING_DIRECTIVES = {
    b"default": "Default",
    b"include": "Include",
    b"exclude": "Exclude",
    # Python's client sends the numbers of its own enumeration.
    b"0": "Default",
    b"1": "Exclude",
    b"2": "Include",
}
_PRIORITY_LEVELS = {b"high": "High", b"low": "Low"}
_BOOLEANS = {b"True": True, b"true": True, b"False": False, b"false": False, b"": False}

_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_RANGE = re.compile(rb"(?:([A-Za-z0-9+/=-]{1,64}),)?([0-9]{1,18})")
_ACTIVITY_ID = re.compile(rb"[0-9A-Za-z-]{1,%d}" % ACTIVITY_ID_BYTES_MAX)


class GuidSource(Protocol):
    def guid(self) -> str:
        """A new GUID in its usual text form. Every clock is one."""


class PostMeaning(Enum):
    """What a POST to a feed is, in the order in which it is decided."""

    __hash__ = object.__hash__  # every request looks one up, and an Enum's own hash is computed in Python

    BATCH = auto()
    QUERY_PLAN = auto()
    QUERY = auto()
    UPSERT = auto()
    CREATE = auto()

    @property
    def is_read(self) -> bool:
        return self is PostMeaning.QUERY or self is PostMeaning.QUERY_PLAN


class Throughput(NamedTuple):
    """What a creation asks for; both None: nothing asked."""

    manual_ru: int | None
    autoscale_max_ru: int | None
    increment_percent: int | None


def flag(headers: Headers, name: bytes) -> bool:
    given = headers.get(name)
    if given is None:
        return False
    value = _BOOLEANS.get(given)
    if value is None:
        value = _BOOLEANS.get(given.lower())
        if value is None:
            raise refusal(name, given, "true or false")
    return value


def integer(headers: Headers, name: bytes, low: int, high: int) -> int | None:
    """A whole number of [low, high]; None when absent."""
    given = headers.get(name)
    if given is None:
        return None
    if not _INTEGER.fullmatch(given) or not low <= (value := int(given)) <= high:
        raise refusal(name, given, f"a whole number from {low} to {high}")
    return value


def text(headers: Headers, name: bytes) -> str | None:
    """A header as text; None when absent or empty. UTF-8 where it is, else each byte a character as HTTP says."""
    given = headers.get(name)
    if not given:
        return None
    try:
        return given.decode()
    except UnicodeDecodeError:
        return given.decode("latin-1")


def post_meaning(headers: Headers) -> PostMeaning:
    if IS_BATCH in headers and flag(headers, IS_BATCH):
        return PostMeaning.BATCH
    # Before the content type: JavaScript's plan requests carry the content type of a query.
    if IS_QUERY_PLAN in headers and flag(headers, IS_QUERY_PLAN):
        return PostMeaning.QUERY_PLAN
    if IS_QUERY in headers and flag(headers, IS_QUERY):
        return PostMeaning.QUERY
    if IS_QUERY_GO in headers and flag(headers, IS_QUERY_GO):
        return PostMeaning.QUERY
    media_type = headers.get(b"content-type")
    if media_type is not None and media_type.lower().startswith(b"application/query+json"):
        return PostMeaning.QUERY
    return PostMeaning.UPSERT if IS_UPSERT in headers and flag(headers, IS_UPSERT) else PostMeaning.CREATE


def page_size(headers: Headers) -> int | None:
    """The page size asked for; None: the server's choice."""
    count = integer(headers, b"x-ms-max-item-count", -1, 2**31 - 1)
    if count == 0:
        raise refusal(b"x-ms-max-item-count", b"0", "-1 or a positive number")
    return None if count == -1 else count


def check_continuation_limit(headers: Headers) -> None:
    """The limit is about what continuations hold for speed's sake. Ours hold nothing of the kind, and are given whole:
    JavaScript's client says 1 KB in every request, and a long text in ORDER BY takes more."""
    integer(headers, CONTINUATION_LIMIT, 0, 2**31 - 1)


def consistency(headers: Headers, account_level: str) -> str:
    """The level that holds for this request: the account's, a weaker one that the request asks for, or that of its
    strategy of reading, which may be stronger."""
    if READ_STRATEGY in headers:
        return _strategy_level(headers, account_level)
    given = headers.get(CONSISTENCY)
    if not given:
        return account_level
    level = _CONSISTENCY_BY_TEXT.get(given.lower())
    if level is None:
        raise refusal(CONSISTENCY, given, f"one of {', '.join(CONSISTENCY_LEVELS)}")
    if CONSISTENCY_LEVELS.index(level) < CONSISTENCY_LEVELS.index(account_level):
        raise bad_request(
            f"ConsistencyLevel {level} specified in the request is invalid when service is configured with consistency "
            f"level {account_level}. Ensure the request consistency level is not stronger than the service "
            "consistency level."
        )
    return level


def _strategy_level(headers: Headers, account_level: str) -> str:
    given = headers[READ_STRATEGY]
    level = _LEVEL_BY_STRATEGY.get(given)
    if level is None:
        strategies = ", ".join(each.decode() for each in _LEVEL_BY_STRATEGY)
        raise refusal(READ_STRATEGY, given, f"one of {strategies}")
    if headers.get(CONSISTENCY):
        raise bad_request(
            f"The headers {CONSISTENCY.decode()} and {READ_STRATEGY.decode()} exclude each other. Send one of them."
        )
    if given == b"GlobalStrong" and account_level != "Strong":
        raise bad_request(
            f"The read consistency strategy GlobalStrong needs an account of consistency level Strong; this one has "
            f"{account_level}."
        )
    return level


def indexing_directive(headers: Headers) -> str:
    return _choice(headers, INDEXING_DIRECTIVE, _INDEXING_DIRECTIVES) or "Default"


PRIORITY, BUCKET = b"x-ms-cosmos-priority-level", b"x-ms-cosmos-throughput-bucket"


def priority_level(headers: Headers) -> str | None:
    return _choice(headers, PRIORITY, _PRIORITY_LEVELS)


def throughput_bucket(headers: Headers) -> int | None:
    return integer(headers, BUCKET, 1, THROUGHPUT_BUCKETS)


def throughput_ask(headers: Headers) -> Ask | None:
    """How a request wants to be served when request units are short; None for nearly all of them."""
    if PRIORITY not in headers and BUCKET not in headers and SPARE_MINUTE_POOL not in headers:
        return None
    ask = Ask(
        is_low=priority_level(headers) == "Low",
        bucket=throughput_bucket(headers) or 0,
        spares_minute=flag(headers, SPARE_MINUTE_POOL),
    )
    return ask if any(ask) else None


def token_lifetime_s(headers: Headers) -> int | None:
    name = b"x-ms-documentdb-expiry-seconds"
    return integer(headers, name, RESOURCE_TOKEN_SECONDS_MIN, RESOURCE_TOKEN_SECONDS_MAX)


def prefers_minimal(headers: Headers) -> bool:
    """Whether a write is answered without its body. Other preferences may be ignored, as RFC 7240 section 2 says."""
    given = headers.get(PREFER)
    if given is None:
        return False
    for preference in given.lower().split(b","):
        name, _, value = preference.partition(b"=")
        if name.strip() == b"return":
            value = value.strip().strip(b'"')
            if value not in (b"minimal", b"representation"):
                raise refusal(PREFER, given, "return=minimal or return=representation")
            return value == b"minimal"
    return False


def key_range(headers: Headers) -> tuple[int, str | None] | None:
    """The physical partition asked for and, when the client names it too (.NET does), the rid of its container."""
    name = b"x-ms-documentdb-partitionkeyrangeid"
    given = headers.get(name)
    if not given:
        return None
    match = _RANGE.fullmatch(given)
    if match is None:
        raise refusal(name, given, "the id of a partition key range")
    return int(match[2]), match[1].decode() if match[1] else None


def epk_range(headers: Headers) -> tuple[bytes, bytes] | None:
    """`x-ms-start-epk` and `x-ms-end-epk` as [low, high); None when neither is there."""
    start, end = headers.get(b"x-ms-start-epk"), headers.get(b"x-ms-end-epk")
    if start is None and end is None:
        return None
    kind = headers.get(b"x-ms-read-key-type", b"EffectivePartitionKeyRange")
    if kind.lower() != b"effectivepartitionkeyrange":
        raise refusal(b"x-ms-read-key-type", kind, "EffectivePartitionKeyRange")
    low = _hex(b"x-ms-start-epk", start or b"")
    high = _hex(b"x-ms-end-epk", end or b"FF")
    if low >= high:
        raise bad_request("x-ms-start-epk must sort before x-ms-end-epk; the range between them is empty.")
    return low, high


def throughput(headers: Headers) -> Throughput:
    """The throughput that a creation asks for. Whether the number is possible is the account's to say."""
    offer_type = headers.get(b"x-ms-offer-type", b"V2")
    if offer_type.lower() not in (b"v2", b"invalid"):
        raise refusal(b"x-ms-offer-type", offer_type, "V2: S1, S2 and S3 are gone, say x-ms-offer-throughput instead")
    manual_ru = integer(headers, b"x-ms-offer-throughput", -(10**15), 10**15)
    given = headers.get(b"x-ms-cosmos-offer-autopilot-settings")
    if not given:
        return Throughput(manual_ru, None, None)
    if manual_ru is not None:
        raise bad_request(
            "x-ms-offer-throughput and x-ms-cosmos-offer-autopilot-settings exclude each other; give one of them."
        )
    settings = _object(given, {"maxThroughput", "autoUpgradePolicy"})
    upgrade = _member(settings, "autoUpgradePolicy", {"throughputPolicy"})
    policy = _member(upgrade, "throughputPolicy", {"incrementPercent"})
    maximum, percent = settings.get("maxThroughput"), policy.get("incrementPercent")
    if type(maximum) is not int or (percent is not None and type(percent) is not int):
        raise refusal(
            b"x-ms-cosmos-offer-autopilot-settings", given, '{"maxThroughput": <whole number>}, incrementPercent alike'
        )
    return Throughput(None, maximum, percent)


def activity_id(headers: Headers, source: GuidSource) -> str:
    """The client's own id for this request, or a new one. Refuses nothing: errors need an activity id themselves."""
    given = headers.get(b"x-ms-activity-id")
    if given is not None and _ACTIVITY_ID.fullmatch(given):
        return given.decode("ascii")
    return source.guid()


def render_path(link: str) -> bytes:
    """`x-ms-alt-content-path`: a link with what HTTP cannot carry percent-encoded. Python looks it up as it comes."""
    if link.isascii() and link.isprintable():
        return link.encode("ascii")
    return quote(link, safe="".join(map(chr, range(0x20, 0x7F)))).encode("ascii")


class PathHeaders(NamedTuple):
    """The path of a container as it stands in every answer about its items: by names and by rids."""

    lines: bytes
    pairs: tuple[tuple[bytes, bytes], ...]


@lru_cache(4096)  # containers; made for each point read otherwise
def path_headers(link: str, rid: str) -> PathHeaders:
    pairs = ((b"x-ms-alt-content-path", render_path(link)), (b"x-ms-content-path", rid.encode("ascii")))
    return PathHeaders(b"\r\n".join([b"%b: %b" % pair for pair in pairs]), pairs)


def _choice(headers: Headers, name: bytes, choices: Mapping[bytes, str]) -> str | None:
    given = headers.get(name)
    if given is None:
        return None
    value = choices.get(given.lower())
    if value is None:
        raise refusal(name, given, f"one of {', '.join(dict.fromkeys(choices.values()))}")
    return value


def _hex(name: bytes, given: bytes) -> bytes:
    try:
        return unhexlify(given)
    except (HexError, ValueError):
        raise refusal(name, given, "an even number of hexadecimal digits") from None


def _object(given: bytes, members: set[str]) -> dict[str, Any]:
    try:
        value = orjson.loads(given)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise refusal(b"x-ms-cosmos-offer-autopilot-settings", given, "a JSON object")
    return _only(value, members)


def _member(owner: dict[str, Any], name: str, members: set[str]) -> dict[str, Any]:
    value = owner.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} in x-ms-cosmos-offer-autopilot-settings must be an object.")
    return _only(value, members)


def _only(value: dict[str, Any], members: set[str]) -> dict[str, Any]:
    for name in value:
        if name not in members:
            raise bad_request(
                f"x-ms-cosmos-offer-autopilot-settings has the unknown member {name[:100]}; "
                f"known here: {', '.join(sorted(members))}."
            )
    return value


def refusal(name: bytes, given: bytes, wanted: str) -> Failure:
    shown = given[:100].decode("ascii", "replace")
    return bad_request(f"The header {name.decode('ascii')} has the invalid value '{shown}'; it must be {wanted}.")


SCRIPT_LOGGING = b"x-ms-documentdb-script-enable-logging"


def with_log(response: Response, log: str) -> Response:
    """Add the log of a script as a header, cut to the size that clients accept."""
    encoded = quote(log)[: limits.SCRIPT_LOG_HEADER_BYTES_MAX]
    if "%" in encoded[-2:]:
        encoded = encoded[: encoded.rindex("%")]
    name, value = b"x-ms-documentdb-script-log-results", encoded.encode("ascii")
    if response.lines:
        return Response(response.status, (), response.body, b"%b\r\n%b: %b" % (response.lines, name, value))
    return Response(response.status, [*response.headers, (name, value)], response.body)
