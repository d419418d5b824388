"""A second golden set: twelve data sets as applications have them when they grew over years. Keys of two types, keys
that rows lack, ids in the order of time, states that change, nested keys, tenants of unlike size, a newcomer that
outgrows all others, lists in queries. Their answers were written down before an advice on them was seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

from foresight.golden.blind_sets import CapturedSet
from foresight.golden.data_sets import BEGIN, DAYS, DataSet, Row, at, keys, op, query, words, zipf

from armillary.insight.advice.reading.leaf_columns import digest_number
from armillary.insight.advice.request_load import RequestRecord
from armillary.limits import GB


def _leaves(row: Row, prefix: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= _leaves(value, f"{prefix}/{name}")
        elif not isinstance(value, list):
            found[f"{prefix}/{name}"] = digest_number(value)
    return found


def _write(kind: str, moment: float, row: Row, ru: float, group: str | None = None) -> RequestRecord:
    return RequestRecord(kind, moment, row["id"], digest_number(row["id"]), _leaves(row), ru=ru, group=group)


def _snowflake(source: random.Random, share: float) -> str:
    """An id whose upper bits are the time of writing, as many services make them: 18 digits."""
    moment = BEGIN + timedelta(days=DAYS * share)
    return str((int(moment.timestamp() * 1000) - 1_288_834_974_657 << 22) + source.getrandbits(22))


def _ulid(source: random.Random, share: float) -> str:
    digits, moment = "0123456789ABCDEFGHJKMNPQRSTVWXYZ", int((BEGIN + timedelta(days=DAYS * share)).timestamp() * 1000)
    return "".join(digits[moment >> shift & 31] for shift in range(45, -5, -5)) + "".join(
        source.choice(digits) for _ in range(16)
    )


# The old system had numbers of accounts, the new one has texts: 10023 and "10023" are two keys.
def _tickets(source: random.Random, number: int, share: float) -> Row:
    account = 10_000 + source.randrange(3000)
    return {
        "id": f"tk-{number:07}",
        "accountNo": account if share < 0.6 else str(account),
        "queue": source.choice(("billing", "network", "device", "other")),
        "state": source.choices(("closed", "open", "waiting"), (92, 5, 3))[0],
        "openedAt": at(share),
        "text": words(source, 40),
    }


# Devices that are not mounted yet have no site, or null.
def _gateways(source: random.Random, number: int, share: float) -> Row:
    device = source.randrange(6000)
    row: Row = {
        "id": f"{source.getrandbits(64):016x}",
        "deviceId": f"gw-{device:05}",
        "measuredAt": at(share),
        "rssi": -source.randrange(30, 110),
        "frames": source.randrange(4000),
    }
    if device % 100 >= 8:
        row["siteId"] = f"site-{device % 700:03}"
    elif device % 100 < 2:
        row["siteId"] = None
    return row


# The current version has most of the writes; ids are in the order of time, and lie evenly all the same.
def _crashes(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": _snowflake(source, share),
        "platform": source.choices(("android", "ios"), (80, 20))[0],
        "appVersion": f"5.{int(share * 40)}.{source.randrange(2)}",
        "signature": f"sig-{source.randrange(60_000):05}",
        "model": f"phone-{source.randrange(300)}",
        "reportedAt": at(share),
        "stack": words(source, 50),
    }


_definition = zipf(50, 0.8)


def _instances(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"wf-{source.getrandbits(64):016x}",
        "definition": f"def-{_definition(source):02}",
        "state": source.choices(("done", "failed", "running", "queued"), (90, 4, 4, 2))[0],
        "startedAt": at(share),
        "attempt": source.randrange(3),
        "context": words(source, 20),
    }


def _instance_requests(source: random.Random) -> Iterator[RequestRecord]:
    """Workers poll by state; each instance is queued, running and done within a minute."""
    for number in range(1_200):
        row = _instances(source, number, 0.99) | {"state": "queued", "attempt": 0}
        moment = number * 500.0
        yield _write("create", moment, row, 7.5)
        for step, state in enumerate(("running", "done")):
            pinned = {"/state": digest_number("queued" if step == 0 else "running")}
            yield RequestRecord("query", moment + 900 * step, eq=pinned, ru=9.0, rows=5, loaded=5, parts=8)
            yield RequestRecord("read", moment + 1000 * step, row["id"], digest_number(row["id"]), ru=1.0)
            row["state"] = state
            yield _write("replace", moment + 2000 * step, row, 11.0)


_org = zipf(800, 1.2)


def _models(source: random.Random, number: int, share: float) -> Row:
    org = _org(source)
    return {
        "id": f"rev-{source.getrandbits(56):014x}",
        "owner": {"org": {"id": f"org-{org:04}", "plan": "team" if org % 3 else "enterprise"}},
        "model": {"id": f"org-{org:04}-m{source.randrange(400):04}", "format": source.choice(("step", "iges", "dwg"))},
        "savedAt": at(share),
        "parts": [words(source, 3) for _ in range(6)],
    }


# A tenant of the last tenth of the time has seven tenths of what is written now.
def _usage(source: random.Random, number: int, share: float) -> Row:
    tenant = 999 if share > 0.9 and source.random() < 0.7 else source.randrange(400)
    return {
        "id": f"{source.getrandbits(72):018x}",
        "tenantId": f"tn-{tenant:03}",
        "userId": f"tn-{tenant:03}:u{source.randrange(20_000 if tenant == 999 else 60):05}",
        "feature": f"f-{source.randrange(70)}",
        "createdAt": at(share),
        "props": {"ms": source.randrange(900), "ok": source.random() < 0.98},
    }


_author = zipf(20_000, 0.7)


def _posts(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": _ulid(source, share),
        "authorId": f"au-{_author(source):05}",
        "visibility": source.choices(("public", "friends", "private"), (70, 25, 5))[0],
        "postedAt": at(share),
        "text": words(source, 30),
    }


def _post_requests(source: random.Random) -> Iterator[RequestRecord]:
    """A feed asks for the posts of fifty authors at once, a profile for those of one."""
    for number in range(9_000):
        moment = number * 20.0
        if number % 9 == 0:
            yield _write("create", moment, _posts(source, number, 0.999), 8.0)
        elif number % 9 < 5:
            pinned = {"/authorId": digest_number(f"au-{_author(source):05}")}
            yield RequestRecord("query", moment, eq=pinned, ru=12.0, rows=20, loaded=20, parts=4)
        else:
            lists = {"/authorId": 50}
            yield RequestRecord(
                "query", moment, lists=lists, order=("/postedAt",), ru=40.0, rows=20, loaded=60, parts=4
            )


_caller = zipf(500, 1.3)


def _calls(source: random.Random, number: int, share: float) -> Row:
    moment = at(share)
    return {
        "id": _ulid(source, share),
        "apiKeyId": f"key-{_caller(source):03}",
        "route": f"GET /v1/{source.randrange(40)}",
        "status": source.choices((200, 404, 429, 500), (94, 4, 1, 1))[0],
        "minute": moment[:16],
        "at": moment,
        "ms": source.randrange(2000),
        "agent": words(source, 5),
    }


# All grades of an examination are stored in one transaction, or none.
def _grades(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"g-{source.getrandbits(48):012x}",
        "courseId": f"course-{source.randrange(1500):04}",
        "studentId": f"st-{source.randrange(30_000):05}",
        "term": f"{2020 + int(share * 6)}-{source.choice('SW')}",
        "grade": source.choice(("1.0", "1.3", "1.7", "2.0", "2.3", "3.0", "4.0", "5.0")),
        "gradedAt": at(share),
    }


def _grade_requests(source: random.Random) -> Iterator[RequestRecord]:
    for number in range(900):
        moment = number * 700.0
        course = f"course-{source.randrange(1500):04}"
        for _ in range(4):
            row = _grades(source, number, 0.999) | {"courseId": course}
            yield _write("create", moment, row, 7.0, f"batch-{number}")
        for path, value in (
            ("/studentId", f"st-{source.randrange(30_000):05}"),
            ("/courseId", f"course-{source.randrange(1500):04}"),
        ):
            pinned = {path: digest_number(value)}
            yield RequestRecord("query", moment + 50, eq=pinned, ru=9.0, rows=20, loaded=20, parts=1)


# Three sources, which have not the same fields: most lookups are by a field that many rows lack.
def _contacts(source: random.Random, number: int, share: float) -> Row:
    origin = source.choice(("shop", "fair", "import"))
    row: Row = {
        "id": f"ct-{source.getrandbits(64):016x}",
        "accountId": f"acc-{source.randrange(9000):05}",
        "source": origin,
        "changedAt": at(share),
        "phone": None if source.random() < 0.3 else f"+49{source.randrange(10**9):09}",
        "notes": words(source, 25),
    }
    if origin != "fair" or source.random() < 0.6:
        row["email"] = f"person{source.randrange(10**7)}@example.org"
    if origin == "import":
        row["externalId"] = number if number % 2 else f"X{number}"
    return row


# A concert is sold out an hour after its sale begins: what is hot moves from one to the next.
def _seats(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"s{source.getrandbits(60):015x}",
        "concertId": f"concert-{int(share * 150):04}",
        "seat": f"{source.choice('ABCDEFGH')}{source.randrange(900)}",
        "buyerId": f"b-{source.randrange(200_000):06}",
        "soldAt": at(share),
        "price": source.choice((49, 79, 119)),
        "terms": words(source, 20),
    }


# Keys are numbers, nested, and given in the order of time.
def _bills(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{2_026_000_000 + number}",
        "billNo": 2_026_000_000 + number,
        "contract": {"no": 700_000 + source.randrange(12_000), "tariff": source.choice(("basic", "green", "night"))},
        "period": at(share)[:7],
        "status": source.choices(("paid", "open", "dunned"), (88, 10, 2))[0],
        "kwh": source.randrange(50, 900),
        "lines": [{"text": words(source, 4), "amount": source.randrange(9000)} for _ in range(3)],
    }


SECOND_SETS = (
    DataSet(
        "tickets with accounts as numbers and texts",
        _tickets,
        (op("create", 40), op("replace", 60), query(250, "/accountNo", rows=15), query(4, "/state", rows=50)),
        keys("/accountNo"),
        keys("/state", "/queue"),
        120 * GB,
        warned=keys("/accountNo"),
    ),
    DataSet(
        "gateways without a site",
        _gateways,
        (op("create", 1500), query(20, "/siteId", rows=100), query(60, "/deviceId", rows=50)),
        keys("/deviceId"),
        keys("/siteId", "/siteId,/deviceId", "/siteId,/id"),
        800 * GB,
    ),
    DataSet(
        "crash reports with ids in the order of time",
        _crashes,
        (op("create", 2000), op("read", 500), query(2, "/signature", rows=50), query(1, "/appVersion", rows=100)),
        keys("/id", "/signature"),
        keys("/platform"),
        700 * GB,
        2 * GB,
        poor=keys("/appVersion", "/appVersion,/id", "/appVersion,/signature"),
        possible=keys("/id"),
        may_hang=True,  # /id or /signature: what the application knows when it reads by id
    ),
    CapturedSet(
        "workflows that are polled by their state",
        _instances,
        (),
        keys("/id"),
        keys("/state", "/definition"),
        300 * GB,
        hot=keys("/state,/id", "/state,/definition", "/definition,/state", "/attempt"),
        requests=_instance_requests,
    ),
    DataSet(
        "revisions of models in nested organisations",
        _models,
        (op("create", 30), query(80, "/owner/org/id", "/model/id", rows=12), query(15, "/owner/org/id", rows=50)),
        keys("/owner/org/id,/model/id", "/owner/org/id,/model/id,/id"),
        keys("/owner/org/id", "/owner/org/plan", "/model/format"),
        1500 * GB,
    ),
    DataSet(
        "usage with a newcomer that outgrows all others",
        _usage,
        (op("create", 300), query(50, "/tenantId", "/userId", rows=30), query(10, "/tenantId", rows=100)),
        # Also /userId: the newcomer lies on most partitions later, so that queries by tenant visit them in any case.
        keys("/tenantId,/userId", "/tenantId,/userId,/id", "/userId"),
        keys("/tenantId"),
        100 * GB,
        5 * GB,
    ),
    CapturedSet(
        "feeds of many authors",
        _posts,
        (),
        keys("/authorId"),
        keys("/visibility"),
        200 * GB,
        possible=keys("/id", "/authorId"),
        requests=_post_requests,
    ),
    DataSet(
        "calls of an interface with one large caller",
        _calls,
        (op("create", 6000), query(5, "/apiKeyId", rows=100)),
        keys("/id", "/apiKeyId,/id", *(f"{{apiKeyId}}-{{0..{most}}}" for most in range(1, 100))),
        keys("/apiKeyId", "/status", "/route"),
        1000 * GB,
        20 * GB,
        poor=keys("/minute", "/at", "/minute,/id", "/minute,/apiKeyId"),
        possible=keys("/id"),
    ),
    CapturedSet(
        "grades that are stored by examination",
        _grades,
        (),
        keys("/courseId"),
        frozenset(),
        30 * GB,
        poor=keys("/term", "/grade"),
        breaking=keys("/studentId", "/id"),
        requests=_grade_requests,
    ),
    DataSet(
        "contacts of three sources",
        _contacts,
        (op("upsert", 50), query(120, "/email", rows=1), query(80, "/accountId", rows=10)),
        keys("/accountId"),
        keys("/email", "/phone", "/externalId", "/source", "/email,/id", "/email,/accountId"),
        150 * GB,
    ),
    DataSet(
        "seats of concerts that sell out",
        _seats,
        (op("create", 3000), query(200, "/concertId", "/seat", rows=1), query(150, "/buyerId", rows=4)),
        # Also /seat: the same names are sold for every concert, and queries for a seat name it.
        keys("/buyerId", "/id", "/seat", "{concertId}-{seat}", "{buyerId}-{concertId}"),
        frozenset(),
        400 * GB,
        poor=keys("/concertId", "/concertId,/seat", "/concertId,/id", "/concertId,/buyerId", "/concertId,/seat,/id"),
        may_hang=True,  # the planned rates do not tell that what is hot moves
    ),
    DataSet(
        "bills of contracts with numbers",
        _bills,
        (op("create", 60), query(170, "/contract/no", rows=24), query(3, "/period", "/status", rows=100)),
        keys("/contract/no"),
        keys("/status", "/contract/tariff"),
        250 * GB,
        poor=keys("/period", "/period,/status", "/period,/id", "/period,/status,/id"),
        possible=keys("/id", "/billNo"),
    ),
)
