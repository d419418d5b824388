"""Further data sets whose right keys were decided before any advice on them was seen: other domains, other shapes of
rows, and keys that fail for other reasons than those of `data_sets.py`, on which the rules were made.
"""

from __future__ import annotations

import random
import uuid
from datetime import timedelta

from foresight.golden.data_sets import BEGIN, DAYS, DataSet, Row, at, keys, one_giant, op, query, words, zipf

from armillary.limits import GB


def _hex(source: random.Random, bits: int = 64) -> str:
    return f"{source.getrandbits(bits):0{bits // 4}x}"


def _guid(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))


def _bookings(source: random.Random, number: int, share: float) -> Row:
    carrier = source.choice(("LH", "AF", "BA"))
    return {
        "id": f"{number:06X}",
        "flight": f"{carrier}{source.randrange(100, 400)}-{at(min(1.0, share + 0.1))[:10]}",
        "passenger": {"no": f"P{source.randrange(40000):06}", "class": source.choice(("eco", "biz", "first"))},
        "bookedAt": at(share),
        "fare": round(source.uniform(40, 2000), 2),
        "notes": words(source, 10),
    }


_symbol = zipf(3000, 0.9)


def _ticks(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": _hex(source),
        "symbol": f"S{_symbol(source):04}",
        "ts": int((BEGIN + timedelta(days=DAYS * share)).timestamp() * 1000),
        "bid": round(source.uniform(1, 900), 2),
        "ask": round(source.uniform(1, 900), 2),
    }


def _jobs(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"job-{number}",
        "tenantId": _guid(source.randrange(400)),
        "status": source.choices(("queued", "running", "done", "failed"), (10, 5, 80, 5))[0],
        "worker": f"w-{source.randrange(16)}",
        "createdAt": at(share),
        "payload": words(source, 12),
    }


def _matches(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": _hex(source, 96),
        "playerId": f"pl-{source.randrange(50000)}",
        "matchId": f"m-{number // 10}",
        "region": source.choice(("eu", "us", "asia", "sa", "oce")),
        "startedAt": at(share),
        "score": source.randrange(5000),
    }


_depot = zipf(200, 0.8)


def _parcels(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": _hex(source),
        "trackingNo": f"00340{source.randrange(10**8):012}",
        "depot": f"depot-{_depot(source):03}",
        "status": source.choice(("in", "sorted", "out", "delivered")),
        "scannedAt": at(share),
    }


_customer = one_giant(2000, 0.35)


def _meters(source: random.Random, number: int, share: float) -> Row:
    customer = _customer(source)
    meter = source.randrange(20000) if customer == 0 else customer * 3 + source.randrange(3)
    return {
        "id": _hex(source),
        "customerId": f"C{customer:05}",
        "meterId": f"C{customer:05}-M{meter:05}",
        "readAt": at(share),
        "kwh": round(source.uniform(0, 4), 3),
        "quality": source.choice(("measured", "estimated")),
    }


_thread = zipf(20000, 0.8)


def _posts(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"p{number}",
        "threadId": f"t{_thread(source)}",
        "forum": f"forum-{source.randrange(12)}",
        "author": {"id": f"u{source.randrange(9000)}", "name": words(source, 1)},
        "postedAt": at(share),
        "body": words(source, 40),
    }


_library = zipf(5000, 0.4)


def _documents(source: random.Random, number: int, share: float) -> Row:
    tenant = _library(source)
    return {
        "id": _guid(10**6 + number),
        "tenantId": _guid(tenant),
        "folderId": f"{tenant}-{source.randrange(30)}",
        "ownerId": f"{tenant}-{source.randrange(50)}",
        "type": source.choice(("doc", "sheet", "image", "pdf")),
        "modifiedAt": at(share),
        "title": words(source, 5),
    }


def _receipts(source: random.Random, number: int, share: float) -> Row:
    """A customer is missing where the sale was anonymous, and regions are numbers in old rows."""
    row: Row = {
        "id": f"r-{number}",
        "storeId": source.randrange(3000),
        "region": source.randrange(8) if share < 0.4 else f"R{source.randrange(8)}",
        "soldAt": at(share),
        "total": round(source.uniform(1, 200), 2),
        "lines": [{"sku": source.randrange(999), "n": 1} for _ in range(4)],
    }
    if source.random() > 0.04:
        row["customer"] = f"cu-{source.randrange(60000)}"
    return row


def _assets(source: random.Random, number: int, share: float) -> Row:
    row: Row = {
        "id": f"asset-{number}",
        "meta": {"org": {"id": f"org-{source.randrange(3000)}", "plan": source.choice(("a", "b"))}, "v": 2},
        "owner": {"userId": f"u-{source.randrange(20000)}"},
        "tags": {f"tag{source.randrange(200)}": True},
        "created": at(share),
    }
    if source.random() < 0.2:
        row["meta"]["parent"] = f"asset-{source.randrange(number + 1)}"
    return row


def _responses(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": _hex(source),
        "surveyId": f"survey-{source.randrange(6)}",
        "country": source.choice(("de", "us", "fr", "in", "br", "jp", "uk", "it", "es", "pl")),
        "channel": source.choice(("mail", "web", "app")),
        "submittedAt": at(share),
        "answers": [source.randrange(5) for _ in range(20)],
    }


_service = zipf(40, 0.8)


def _logs(source: random.Random, number: int, share: float) -> Row:
    """The sample has whole traces, five rows each, as collectors draw them."""
    begun = DAYS * 86_400 * share * (number - number % 5) / max(1, number)
    moment = BEGIN + timedelta(seconds=round(begun) + number // 5 * 7919 % 3600)
    return {
        "id": f"{moment:%Y%m%dT%H%M%S}-{number:08}",
        "traceId": f"{number // 5:032x}",
        "service": f"svc-{_service(source):02}",
        "host": f"host-{source.randrange(2000)}",
        "level": source.choices(("info", "warn", "error"), (90, 8, 2))[0],
        "timestamp": moment.isoformat(),
        "message": words(source, 12),
    }


def _cached(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"cache:{_hex(source)}",
        "region": source.choice(("eu", "us")),
        "version": source.randrange(9),
        "updatedAt": at(share),
        "blob": words(source, 60),
    }


_lab = one_giant(15, 0.5)


def _results(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"res-{number}",
        "labId": f"lab-{_lab(source):02}",
        "sampleId": f"smp-{number // 3}",
        "patientId": f"pat-{source.randrange(8000)}",
        "takenAt": at(share),
        "values": {"hb": round(source.gauss(14, 2), 1), "crp": round(source.random(), 2)},
    }


_campaign = zipf(800, 1.0)


def _impressions(source: random.Random, number: int, share: float) -> Row:
    moment = at(share)
    campaign = _campaign(source)
    return {
        "id": _hex(source),
        "campaignId": f"camp-{campaign:03}",
        "advertiserId": f"adv-{campaign % 60}",
        "hour": moment[:13],
        "shownAt": moment,
        "slot": source.choice(("top", "side", "bottom")),
    }


_friend, _author = zipf(30000, 0.3), zipf(10000, 0.9)


def _feed(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": _hex(source),
        "userId": f"u{_friend(source)}",
        "authorId": f"u{_author(source)}",
        "kind": source.choice(("post", "like", "share")),
        "createdAt": at(share),
        "text": words(source, 15),
    }


def _machines(source: random.Random, number: int, share: float) -> Row:
    moment = at(share)
    return {
        "id": _hex(source),
        "deviceId": f"machine-{source.randrange(300)}",
        "day": moment[:10],
        "ts": moment,
        "vibration": round(source.gauss(0, 1), 4),
        "rpm": source.randrange(9000),
    }


_seller = zipf(5000, 1.0)


def _listings(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"l{number}",
        "sellerId": f"s{_seller(source)}",
        "category": f"cat-{source.randrange(30)}",
        "price": round(source.uniform(1, 400), 2),
        "listedAt": at(share),
        "title": words(source, 8),
    }


def _members(source: random.Random, number: int, share: float) -> Row:
    tenant = source.randrange(8)
    return {
        "id": f"a{number}",
        "tenantId": f"tenant-{tenant}",
        "userId": f"{tenant}-user-{source.randrange(5000)}",
        "action": source.choice(("login", "view", "edit")),
        "when": at(share),
        "detail": words(source, 10),
    }


def _deliveries(source: random.Random, number: int, share: float) -> Row:
    """Names beyond ASCII, and a number as the key."""
    return {
        "id": f"{number}",
        "kundennummer": 100000 + source.randrange(20000),
        "größe": source.choice(("S", "M", "L")),
        "日付": at(share)[:10],
        "straße": words(source, 2),
        "betrag": round(source.uniform(1, 500), 2),
    }


def _aggregates(source: random.Random, number: int, share: float) -> Row:
    aggregate = source.randrange(30000)
    return {
        "id": f"order-{aggregate}-{number}",
        "aggregateId": f"order-{aggregate}",
        "version": source.randrange(12),
        "type": source.choice(("Placed", "Paid", "Packed", "Sent")),
        "at": at(share),
        "content": words(source, 15),
    }


def _charges(source: random.Random, number: int, share: float) -> Row:
    month = at(share)[:7]
    return {
        "id": f"{month}-{number}",
        "month": month,
        "customerId": f"c{source.randrange(40000)}",
        "amount": round(source.uniform(5, 60), 2),
        "chargedAt": f"{month}-01",
        "method": source.choice(("card", "debit")),
    }


FURTHER_SETS = (
    DataSet(
        "airline bookings",
        _bookings,
        (op("create", 50), query(300, "/passenger/no", rows=4), query(20, "/flight", rows=150)),
        keys("/passenger/no"),
        keys("/passenger/class"),
        150 * GB,
    ),
    DataSet(
        "price ticks",
        _ticks,
        (op("create", 5000), query(50, "/symbol", rows=200)),
        keys("/symbol,/id"),
        keys("/symbol"),
        4000 * GB,
        10 * GB,
    ),
    DataSet(
        "jobs of tenants",
        _jobs,
        (op("create", 100), op("read", 200), op("patch", 200), query(100, "/tenantId", "/status", rows=20)),
        keys("/tenantId"),
        size_bytes=20 * GB,
        poor=keys("/status", "/worker", "/status,/id", "/status,/tenantId"),
        may_hang=True,
    ),
    DataSet(
        "players of matches",
        _matches,
        (op("create", 500), query(400, "/playerId", rows=20), query(300, "/matchId", rows=10)),
        keys("/playerId"),
        keys("/region"),
        300 * GB,
    ),
    DataSet(
        "scans of parcels",
        _parcels,
        (op("create", 800), query(900, "/trackingNo", rows=8), query(5, "/depot", rows=100)),
        keys("/trackingNo"),
        keys("/depot", "/status"),
        800 * GB,
        2 * GB,
    ),
    DataSet(
        "smart meters with one huge customer",
        _meters,
        (op("create", 3000), query(200, "/customerId", "/meterId", rows=96), query(20, "/customerId", rows=200)),
        keys("/customerId,/meterId", "/customerId,/meterId,/id"),
        keys("/customerId", "/quality"),
        1500 * GB,
        1 * GB,
    ),
    DataSet(
        "posts of a forum",
        _posts,
        (op("create", 20), op("read", 100), query(500, "/threadId", rows=20), query(50, "/author/id")),
        keys("/threadId"),
        size_bytes=80 * GB,
        poor=keys("/forum"),
    ),
    DataSet(
        "documents of tenants",
        _documents,
        (
            op("read", 800),
            op("replace", 50),
            query(200, "/tenantId", rows=30),
            query(100, "/tenantId", "/folderId"),
        ),
        keys("/tenantId"),
        keys("/type"),
        600 * GB,
    ),
    DataSet(
        "receipts without a customer",
        _receipts,
        (op("create", 100), query(100, "/customer", rows=5), query(80, "/storeId", rows=20)),
        keys("/storeId"),
        keys("/customer", "/region"),
        400 * GB,
    ),
    DataSet(
        "assets with nested keys",
        _assets,
        (op("create", 50), query(300, "/meta/org/id", rows=20), query(20, "/owner/userId")),
        keys("/meta/org/id"),
        keys("/meta/org/plan"),
        150 * GB,
    ),
    DataSet(
        "answers to few surveys",
        _responses,
        (op("create", 400), op("read", 30), query(3, "/surveyId", rows=100)),
        keys("/id"),
        keys("/surveyId", "/country", "/channel"),
        250 * GB,
    ),
    DataSet(
        "logs with ids by time",
        _logs,
        (op("create", 3000), query(50, "/traceId", rows=5), query(3, "/service", rows=100)),
        keys("/traceId"),
        keys("/service", "/level"),
        1000 * GB,
        5 * GB,
        possible=keys("/id"),
    ),
    DataSet(
        "a cache that is read by id",
        _cached,
        (op("read", 5000), op("upsert", 1000), op("delete", 10)),
        keys("/id"),
        keys("/region"),
        50 * GB,
    ),
    DataSet(
        "results of laboratories",
        _results,
        (op("create", 100), query(150, "/patientId", rows=15), query(100, "/sampleId", rows=3)),
        keys("/patientId"),
        keys("/labId"),
        300 * GB,
    ),
    DataSet(
        "impressions of campaigns",
        _impressions,
        (op("create", 8000), query(30, "/campaignId", rows=100), query(1, "/advertiserId", rows=100)),
        keys("/campaignId,/id"),
        keys("/campaignId", "/advertiserId", "/slot"),
        5000 * GB,
        20 * GB,
        poor=keys("/hour"),
    ),
    DataSet(
        "feed of friends",
        _feed,
        (op("create", 4000), query(800, "/userId", rows=30)),
        keys("/userId"),
        keys("/authorId", "/kind"),
        700 * GB,
    ),
    DataSet(
        "machines that outgrow their key",
        _machines,
        (op("create", 2500), query(40, "/deviceId", "/day", rows=100)),
        keys("/deviceId,/day", "/deviceId,/day,/id", "/deviceId,/id", "{day}-{deviceId}"),
        size_bytes=2000 * GB,
        growth_bytes_day=8 * GB,
        poor=keys("/deviceId", "/day", "/day,/deviceId", "/day,/id"),
        may_hang=True,
    ),
    DataSet(
        "listings of sellers",
        _listings,
        (op("read", 1500), op("patch", 200), query(100, "/sellerId", rows=30), query(60, "/category", rows=30)),
        keys("/id", "/sellerId"),
        size_bytes=60 * GB,
        poor=keys("/category"),
        may_hang=True,
    ),
    DataSet(
        "users of eight tenants",
        _members,
        (op("create", 300), query(250, "/tenantId", "/userId", rows=20), query(5, "/tenantId", rows=100)),
        keys("/userId", "{tenantId}-{userId}"),
        keys("/tenantId", "/action"),
        400 * GB,
    ),
    DataSet(
        "deliveries with names beyond ASCII",
        _deliveries,
        (op("create", 50), query(200, "/kundennummer")),
        keys("/kundennummer"),
        keys("/größe"),
        100 * GB,
        poor=keys("/日付"),
    ),
    DataSet(
        "events of aggregates",
        _aggregates,
        (op("create", 600), query(700, "/aggregateId", rows=12)),
        keys("/aggregateId"),
        keys("/type"),
        120 * GB,
    ),
    DataSet(
        "charges by month",
        _charges,
        (op("create", 300), query(200, "/customerId", rows=12), query(10, "/month", rows=100)),
        keys("/customerId"),
        keys("/method"),
        200 * GB,
        poor=keys("/month"),
    ),
)
