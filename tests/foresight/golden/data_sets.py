"""Twenty data sets as applications have them, with the keys that are right for each: generators from a seed, the load
that goes with the data, and the keys that must be refused. Rows are dictionaries; sizes are those of production, of
which the rows are a sample.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from armillary.insight.advice.request_load import Operation
from armillary.limits import GB

Row = dict[str, Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 200


@dataclass(frozen=True)
class DataSet:
    name: str
    row: Callable[[random.Random, int, float], Row]  # random, number, share of the time that has passed
    operations: tuple[Operation, ...]
    right: frozenset[str]  # keys that may be advised for this load
    impossible: frozenset[str] = frozenset()
    size_bytes: float | None = None
    growth_bytes_day: float = 0.0
    poor: frozenset[str] = frozenset()  # keys that must not be called good
    hot: frozenset[str] = frozenset()  # keys that this load makes impossible
    possible: frozenset[str] = frozenset()  # keys that must not be called impossible
    breaking: frozenset[str] = frozenset()  # keys that are not good for this load: transactions are lost
    warned: frozenset[str] = frozenset()  # paths that a warning has to name
    may_hang: bool = False  # a sample, or what the application knows, may leave it undecided

    def rows(self, count: int, seed: int) -> Iterator[Row]:
        source = random.Random(f"{self.name} {seed}")
        for number in range(count):
            yield self.row(source, number, number / count)


def at(share: float) -> str:
    return (BEGIN + timedelta(days=DAYS * share)).strftime("%Y-%m-%dT%H:%M:%SZ")


def zipf(count: int, exponent: float) -> Callable[[random.Random], int]:
    weights = [(rank + 1) ** -exponent for rank in range(count)]
    total, sums = 0.0, []
    for weight in weights:
        total += weight
        sums.append(total)

    def draw(source: random.Random) -> int:
        return source.choices(range(count), cum_weights=sums)[0]

    return draw


def one_giant(count: int, share: float) -> Callable[[random.Random], int]:
    """The first value has a share, the others the rest evenly."""
    return lambda source: 0 if source.random() < share else source.randrange(1, count)


def query(rate: float, *paths: str, rows: float = 10.0) -> Operation:
    return Operation("query", rate, frozenset(paths), rows=rows)


def op(kind: str, rate: float) -> Operation:
    return Operation(kind, rate)


def words(source: random.Random, count: int) -> str:
    return " ".join(source.choice(("lorem", "ipsum", "dolor", "sit", "amet", "elit")) for _ in range(count))


def _orders(source: random.Random, number: int, share: float) -> Row:
    country = source.choices(("de", "at", "ch", "fr"), (76, 12, 7, 5))[0]
    return {
        "id": f"o-{number:06}",
        "customerId": f"c-{source.randrange(1000):04}",
        "country": country,
        "day": at(share)[:10],
        "total": round(source.uniform(5, 500), 2),
        "note": words(source, 20),
    }


_tenant = one_giant(300, 0.26)


def _saas(source: random.Random, number: int, share: float) -> Row:
    tenant = _tenant(source)
    return {
        "id": f"{number:08x}",
        "tenantId": f"tenant-{tenant:03}",
        "customerId": f"cust-{tenant:03}-{source.randrange(2000 if tenant == 0 else 40):05}",
        "createdAt": at(share),
        "status": source.choice(("open", "done", "new")),
        "text": words(source, 30),
    }


def _telemetry(source: random.Random, number: int, share: float) -> Row:
    device = source.randrange(5000)
    return {
        "id": f"{source.getrandbits(64):016x}",
        "deviceId": f"dev-{device:05}",
        "site": f"site-{device % 12}",
        "ts": int((BEGIN + timedelta(days=DAYS * share)).timestamp()),
        "temperature": round(source.gauss(20, 5), 2),
        "firmware": source.choice(("1.0", "1.1", "2.0")),
    }


_conversation = zipf(3000, 0.6)


def _chat(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"m{number}",
        "conversationId": f"conv-{_conversation(source)}",
        "senderId": f"user-{source.randrange(900)}",
        "sentAt": at(share),
        "body": words(source, 12),
    }


def _events(source: random.Random, number: int, share: float) -> Row:
    moment = at(share)
    return {
        "id": f"e-{source.getrandbits(60):015x}",
        "date": moment[:10],
        "type": source.choices(("view", "click", "buy", "error"), (70, 20, 8, 2))[0],
        "time": moment,
        "payload": {"page": f"/p/{source.randrange(5000)}", "ms": source.randrange(3000)},
    }


_category = zipf(40, 0.7)


def _catalogue(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"sku-{number:07}",
        "categoryId": f"cat-{_category(source):02}",
        "brand": f"brand-{source.randrange(200)}",
        "price": round(source.uniform(1, 900), 2),
        "title": words(source, 6),
        "isActive": source.random() < 0.9,
    }


def _profiles(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"u{number:07}",
        "email": f"user{number}@example.org",
        "country": source.choice(("de", "us", "fr", "in", "br")),
        "plan": source.choice(("free", "pro")),
        "address": {"city": f"city-{source.randrange(800)}", "zip": f"{source.randrange(10000, 99999)}"},
        "bio": words(source, 15),
    }


_account = zipf(4000, 0.5)


def _ledger(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"t-{number:09}",
        "accountId": f"acc-{_account(source):06}",
        "bookedAt": at(share),
        "amount": round(source.gauss(0, 300), 2),
        "currency": source.choice(("EUR", "USD")),
        "text": words(source, 8),
    }


def _sessions(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{source.getrandbits(96):024x}",
        "userId": f"u{source.randrange(100000)}",
        "device": source.choice(("phone", "web", "tv")),
        "createdAt": at(share),
        "data": {"cart": source.randrange(9), "theme": source.choice(("dark", "light"))},
    }


_post = zipf(2000, 0.7)


def _comments(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"cm-{number}",
        "postId": f"post-{_post(source)}",
        "authorId": f"user-{source.randrange(5000)}",
        "createdAt": at(share),
        "text": words(source, 25),
        "likes": source.randrange(100),
    }


def _invoices(source: random.Random, number: int, share: float) -> Row:
    tenant = source.randrange(300)
    return {
        "id": f"inv-{number}",
        "tenantId": f"t{tenant}",
        "customerId": f"t{tenant}-c{source.randrange(50)}",
        "issuedAt": at(share),
        "dueDate": at(min(1.0, share + 0.1))[:10],
        "total": round(source.uniform(10, 9000), 2),
        "lines": [{"sku": "a", "n": 1}],
    }


def _tracks(source: random.Random, number: int, share: float) -> Row:
    vehicle = source.randrange(2000)
    return {
        "id": f"{source.getrandbits(64):016x}",
        "vehicleId": f"v-{vehicle:04}",
        "tripId": f"v-{vehicle:04}-{int(share * 60)}",
        "recordedAt": at(share),
        "position": {"lat": round(source.uniform(47, 55), 5), "lon": round(source.uniform(6, 15), 5)},
        "speed": source.randrange(130),
    }


_audited = one_giant(50, 0.6)


def _audit(source: random.Random, number: int, share: float) -> Row:
    tenant = _audited(source)
    return {
        "id": f"a-{source.getrandbits(64):016x}",
        "tenantId": f"org-{tenant:02}",
        "resourceId": f"org-{tenant:02}/r{source.randrange(3000)}",
        "actorId": f"org-{tenant:02}/u{source.randrange(400)}",
        "action": source.choice(("read", "write", "delete", "login")),
        "occurredAt": at(share),
    }


def _carts(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"cart-{number}",
        "userId": f"user-{source.randrange(40000)}",
        "updatedAt": at(share),
        "items": [{"sku": f"s{source.randrange(99)}", "n": 1} for _ in range(source.randrange(1, 5))],
        "currency": "EUR" if source.random() < 0.8 else "CHF",
    }


def _flags(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"flag-{number}",
        "appId": f"app-{source.randrange(60)}",
        "env": source.choice(("dev", "test", "prod")),
        "name": f"feature-{source.randrange(500)}",
        "isOn": source.random() < 0.5,
        "rules": words(source, 10),
    }


_queue = one_giant(20, 0.5)


def _messages(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{source.getrandbits(80):020x}",
        "queueId": f"queue-{_queue(source):02}",
        "enqueuedAt": at(share),
        "attempts": source.randrange(3),
        "body": words(source, 15),
    }


_campaign = one_giant(400, 0.3)


def _clicks(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{source.getrandbits(64):016x}",
        "campaignId": f"camp-{_campaign(source)}",
        "userId": f"u{source.randrange(300000)}",
        "clickedAt": at(share),
        "os": source.choice(("ios", "android", "other")),
        "cost": round(source.random(), 3),
    }


_hospital = zipf(20, 0.7)


def _medical(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"rec-{number}",
        "patientId": f"p{source.randrange(3000):06}",
        "hospitalId": f"h{_hospital(source):02}",
        "kind": source.choice(("lab", "image", "note", "prescription")),
        "recordedAt": at(share),
        "text": words(source, 40),
    }


_game = one_giant(10, 0.5)


def _scores(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"s-{source.getrandbits(64):016x}",
        "gameId": f"g{_game(source)}",
        "playerId": f"pl-{source.randrange(20000)}",
        "season": f"2026-{1 + int(share * 4)}",
        "points": source.randrange(100000),
        "playedAt": at(share),
    }


_star = one_giant(20000, 0.08)


def _edges(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"e{number}",
        "fromId": f"u{source.randrange(8000)}",
        "toId": f"u{_star(source)}",
        "kind": source.choice(("follows", "likes")),
        "since": at(share),
    }


def keys(*texts: str) -> frozenset[str]:
    return frozenset(texts)


DATA_SETS = (
    DataSet(
        "orders",
        _orders,
        (
            op("create", 100),
            op("read", 500),
            query(60, "/customerId"),
            query(30, "/country", rows=20),
            query(10, "/id"),
        ),
        keys("/customerId"),
        keys("/country"),
        300 * GB,
        poor=keys("/day"),
    ),
    DataSet(
        "multi-tenant SaaS with one giant",
        _saas,
        (op("create", 200), query(60, "/tenantId", "/customerId"), query(30, "/tenantId", rows=50)),
        keys("/tenantId,/customerId", "/tenantId,/customerId,/id"),
        keys("/tenantId"),
        500 * GB,
        1 * GB,
    ),
    DataSet(
        "telemetry",
        _telemetry,
        (op("create", 3000), query(100, "/deviceId", rows=50), query(2, "/site", rows=100)),
        keys("/deviceId"),
        keys("/site", "/firmware"),
        2000 * GB,
    ),
    DataSet(
        "chat",
        _chat,
        (op("create", 300), query(600, "/conversationId", rows=30), query(5, "/senderId")),
        keys("/conversationId"),
        size_bytes=200 * GB,
    ),
    DataSet(
        "event log by date",
        _events,
        (op("create", 1200), op("read", 50), query(2, "/date", "/type", rows=100)),
        keys("/id"),
        keys("/type"),
        600 * GB,
        3 * GB,
        poor=keys("/date", "/date,/id", "/date,/type", "/date,/type,/id"),
    ),
    DataSet(
        "catalogue",
        _catalogue,
        (op("read", 2000), op("replace", 20), query(10, "/categoryId", rows=20)),
        keys("/id"),
        size_bytes=20 * GB,
        poor=keys("/isActive"),
    ),
    DataSet(
        "user profiles",
        _profiles,
        (op("read", 1000), op("replace", 50), query(3, "/email", rows=1)),
        keys("/id"),
        size_bytes=30 * GB,
        poor=keys("/country", "/plan"),
    ),
    DataSet(
        "ledger",
        _ledger,
        (op("create", 400), query(300, "/accountId", rows=20), query(3, "/id", rows=1)),
        keys("/accountId"),
        keys("/currency"),
        400 * GB,
    ),
    DataSet(
        "sessions",
        _sessions,
        (op("read", 3000), op("replace", 600), op("create", 50), query(5, "/userId", rows=2)),
        keys("/id"),
        size_bytes=5 * GB,
        poor=keys("/device"),
    ),
    DataSet(
        "comments",
        _comments,
        (op("create", 50), query(900, "/postId", rows=20), query(20, "/authorId", rows=20)),
        keys("/postId"),
        size_bytes=60 * GB,
    ),
    DataSet(
        "invoices",
        _invoices,
        (op("create", 20), query(70, "/tenantId", rows=30), query(50, "/tenantId", "/customerId")),
        keys("/tenantId"),
        size_bytes=200 * GB,
    ),
    DataSet(
        "GPS tracks",
        _tracks,
        (op("create", 2000), query(70, "/vehicleId", "/tripId", rows=100), query(30, "/vehicleId", rows=100)),
        keys("/vehicleId"),
        size_bytes=1000 * GB,
    ),
    DataSet(
        "audit log",
        _audit,
        (op("create", 500), query(50, "/tenantId", "/resourceId"), query(30, "/tenantId", "/actorId")),
        keys(
            "/tenantId,/resourceId",
            "/tenantId,/resourceId,/id",
            "/tenantId,/resourceId,/actorId",
            "/resourceId",
            "/actorId",
            "/tenantId,/actorId",
            "/tenantId,/actorId,/resourceId",
        ),
        keys("/tenantId", "/action"),
        1000 * GB,
        1 * GB,
    ),
    DataSet(
        "shopping carts",
        _carts,
        (query(800, "/userId", rows=1), op("upsert", 300)),
        keys("/userId"),
        size_bytes=40 * GB,
        poor=keys("/currency"),
    ),
    DataSet(
        "feature flags",
        _flags,
        (query(200, "/appId", "/env", rows=30), op("replace", 1)),
        keys("/appId", "/appId,/env"),
        poor=keys("/env", "/isOn"),
    ),
    DataSet(
        "messages of queues",
        _messages,
        (op("create", 1500), op("delete", 1500), query(200, "/queueId", rows=20)),
        keys("/id", "/queueId,/id", "{queueId}-{0..1}", "{queueId}-{0..2}", "{queueId}-{0..3}"),
        size_bytes=10 * GB,
        hot=keys("/queueId"),
    ),
    DataSet(
        "ad clicks",
        _clicks,
        (op("create", 4000), query(20, "/userId", rows=20), query(2, "/campaignId", rows=100)),
        keys("/userId"),
        keys("/campaignId", "/os"),
        3000 * GB,
    ),
    DataSet(
        "medical records",
        _medical,
        (op("create", 30), query(90, "/patientId", rows=20), query(10, "/hospitalId", rows=50)),
        keys("/patientId"),
        keys("/hospitalId", "/kind"),
        400 * GB,
    ),
    DataSet(
        "game scores",
        _scores,
        (op("create", 1000), query(200, "/playerId", rows=20), query(5, "/gameId", rows=100)),
        keys("/playerId"),
        keys("/gameId"),
        100 * GB,
    ),
    DataSet(
        "edges of a social graph",
        _edges,
        (op("create", 300), query(120, "/fromId", rows=50), query(30, "/toId", rows=50)),
        keys("/fromId"),
        keys("/toId", "/kind"),
        500 * GB,
    ),
)
