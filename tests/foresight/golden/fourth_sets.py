"""Sixteen data sets of a fourth check, with answers that were written down before an advice was seen. Most have a path
that looks like the key and is not: few values, one giant, what is written now, what a reader may not know.
"""

from __future__ import annotations

import random

from foresight.golden.data_sets import DAYS, DataSet, Row, at, keys, one_giant, op, query, words, zipf

from armillary.limits import GB

_city = zipf(40, 1.0)


def _trips(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"trip-{source.getrandbits(64):016x}",
        "riderId": f"r{source.randrange(80_000):06}",
        "driverId": f"d{source.randrange(6_000):05}",
        "cityId": f"city-{_city(source):02}",
        "requestedAt": at(share),
        "status": source.choices(("completed", "cancelled", "running"), (88, 11, 1))[0],
        "fare": {"amount": round(source.uniform(4, 60), 2), "currency": "EUR"},
    }


_clinic = zipf(14, 0.6)


def _appointments(source: random.Random, number: int, share: float) -> Row:
    clinic = _clinic(source)
    return {
        "id": f"apt-{number:08}",
        "clinicId": f"clinic-{clinic:02}",
        "doctorId": f"clinic-{clinic:02}-d{source.randrange(15):02}",
        "patientId": f"pat-{source.randrange(20_000):06}",
        "date": at(share + source.random() / 5)[:10],
        "bookedAt": at(share),
        "reason": words(source, 6),
    }


# One row for each player and season; all writes are of the season that is played.
def _standings(source: random.Random, number: int, share: float) -> Row:
    season, player = int(share * 12), source.randrange(40_000)
    return {
        "id": f"s{season:02}:p{player:06}",
        "seasonId": f"s{season:02}",
        "playerId": f"p{player:06}",
        "region": source.choice(("eu", "us", "asia")),
        "points": source.randrange(100_000),
        "updatedAt": at(share),
    }


_owner = zipf(30_000, 0.5)
_fork_root = one_giant(4_000, 0.12)


def _repositories(source: random.Random, number: int, share: float) -> Row:
    row = {
        "id": f"R{number:09}",
        "ownerId": f"o{_owner(source):06}",
        "name": words(source, 2),
        "language": source.choices(("js", "py", "go", "rust", "c"), (30, 25, 20, 15, 10))[0],
        "createdAt": at(share),
        "isArchived": source.random() < 0.1,
        "readme": words(source, 40),
    }
    if source.random() < 0.4:
        row["rootId"] = f"R{_fork_root(source):09}"
    return row


_company = zipf(800, 0.4)


# Every company counts from one: numbers alone are no key.
def _numbered(source: random.Random, number: int, share: float) -> Row:
    company = _company(source)
    counted = 1 + int(share * 4_000) + source.randrange(20)
    return {
        "id": f"c{company:04}-{counted:06}",
        "companyId": f"c{company:04}",
        "number": f"2026-{counted:06}",
        "year": 2026,
        "issuedAt": at(share),
        "net": round(source.uniform(10, 5000), 2),
        "lines": [{"text": words(source, 4), "n": 1} for _ in range(3)],
    }


# Versions are rolled out to all devices in turn.
def _cohorts(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{source.getrandbits(64):016x}",
        "deviceId": f"sn-{source.randrange(30_000):06}",
        "model": source.choice(("a1", "a2", "b1", "b2", "c1")),
        "firmware": f"4.{int(share * 6 + source.random())}",
        "reportedAt": at(share),
        "battery": source.randrange(100),
    }


_supported = one_giant(3_000, 0.35)


def _tickets(source: random.Random, number: int, share: float) -> Row:
    customer = _supported(source)
    return {
        "id": f"T{number:08}",
        "customerId": f"cust-{customer:05}",
        "status": source.choices(("closed", "open", "waiting"), (80, 12, 8))[0],
        "assigneeId": f"agent-{source.randrange(60):03}",
        "openedAt": at(share),
        "text": words(source, 50),
    }


_endless = one_giant(50_000, 0.03)


def _thread_posts(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"p-{source.getrandbits(56):014x}",
        "threadId": f"th-{_endless(source):06}",
        "board": f"board-{source.randrange(20):02}",
        "authorId": f"u-{source.randrange(25_000):05}",
        "postedAt": at(share),
        "text": words(source, 30),
    }


_pool = one_giant(6, 0.7)


def _runs(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{source.getrandbits(96):024x}",
        "queue": ("default", "mail", "thumbnails", "reports", "billing", "search")[_pool(source)],
        "state": source.choices(("done", "queued", "running", "failed"), (85, 8, 5, 2))[0],
        "workerId": f"w-{source.randrange(40)}",
        "scheduledAt": at(share),
        "arguments": words(source, 10),
    }


def _subscriptions(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"sub_{source.getrandbits(64):016x}",
        "customerId": f"cus_{source.randrange(60_000):06}",
        "planId": f"plan-{source.randrange(12):02}",
        "status": source.choices(("active", "cancelled", "trial"), (70, 22, 8))[0],
        "startedAt": at(share),
        "renewsOn": at(share + source.random() / 6)[:10],
    }


# Two hundred auctions at a time, numbered as they open: their numbers rise with time and are no clock.
def _bids(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{source.getrandbits(72):018x}",
        "auctionId": f"A{int(share * 2_000_000) + source.randrange(200):08}",
        "bidderId": f"b{source.randrange(200_000):06}",
        "placedAt": at(share),
        "cents": source.randrange(100, 1_000_000),
    }


# A patient is there for five days; 225 at a time.
def _vitals(source: random.Random, number: int, share: float) -> Row:
    bed = source.randrange(225)
    return {
        "id": f"{source.getrandbits(64):016x}",
        "wardId": f"ward-{bed % 15:02}",
        "bedId": f"bed-{bed:03}",
        "patientId": f"pat-{bed * 40 + int((share * DAYS / 5 + bed / 225) % 40):05}",
        "measuredAt": at(share),
        "pulse": source.randrange(50, 140),
        "pressure": {"high": source.randrange(100, 180), "low": source.randrange(60, 100)},
    }


_principal = one_giant(5_000, 0.2)


def _permissions(source: random.Random, number: int, share: float) -> Row:
    document, principal = source.randrange(50_000), _principal(source)
    name = "everyone" if principal == 0 else f"user-{principal:05}"
    return {
        "id": f"doc-{document:06}:{name}",
        "docId": f"doc-{document:06}",
        "principalId": name,
        "level": source.choice(("read", "write", "own")),
        "grantedAt": at(share),
    }


def _endpoints(source: random.Random, number: int, share: float) -> Row:
    tenant = source.randrange(250)
    return {
        "id": f"dlv_{source.getrandbits(80):020x}",
        "tenantId": f"t-{tenant:04}",
        "endpointId": f"t-{tenant:04}-ep{source.randrange(16):02}",
        "status": source.choices((200, 500, 410), (93, 5, 2))[0],
        "sentAt": at(share),
        "body": words(source, 25),
    }


_gene = zipf(20_000, 0.3)
_chromosome = zipf(24, 0.4)


def _variants(source: random.Random, number: int, share: float) -> Row:
    chromosome = _chromosome(source)
    return {
        "id": f"v-{source.getrandbits(64):016x}",
        "chromosome": f"chr{chromosome + 1}",
        "position": source.randrange(240_000_000),
        "gene": f"chr{chromosome + 1}-g{_gene(source):05}",
        "sampleId": f"smp-{source.randrange(2_500):04}",
        "loadedAt": at(share),
        "quality": round(source.uniform(10, 99), 1),
    }


_bank = zipf(1_500, 0.9)


def _movements(source: random.Random, number: int, share: float) -> Row:
    bank, holder = _bank(source), source.randrange(300)
    return {
        "id": f"mv-{source.getrandbits(80):020x}",
        "account": {"iban": f"DE{bank:08}{holder:010}", "bank": {"code": bank}},
        "bookedAt": at(share),
        "amount": round(source.gauss(0, 400), 2),
        "purpose": words(source, 8),
    }


FOURTH_SETS = (
    DataSet(
        "trips of a ride-hailing service",
        _trips,
        (op("create", 400), op("replace", 800), query(600, "/riderId", rows=20), query(150, "/driverId", rows=20)),
        keys("/riderId"),
        keys("/cityId", "/status"),
        800 * GB,
    ),
    DataSet(
        "appointments of few clinics",
        _appointments,
        (
            op("create", 5),
            query(60, "/clinicId", "/date", rows=40),
            query(50, "/clinicId", "/doctorId", "/date", rows=15),
            query(40, "/patientId", rows=5),
        ),
        # A single clinic holds 4.5 GB of 20, but fourteen are few.
        keys(
            "/clinicId",
            "/clinicId,/date",
            "/clinicId,/doctorId",
            "/clinicId,/doctorId,/date",
            "/clinicId,/date,/doctorId",
            "/clinicId,/date,/id",
            "/clinicId,/doctorId,/id",
            "/clinicId,/patientId",
            "/doctorId",
            "{clinicId}-{date}",
        ),
        size_bytes=25 * GB,
        possible=keys("/patientId", "/doctorId", "/id"),
        may_hang=True,
    ),
    DataSet(
        "standings of seasons",
        _standings,
        (op("upsert", 2000), query(200, "/playerId", rows=5), query(30, "/seasonId", rows=100)),
        keys("/playerId"),
        frozenset(),
        120 * GB,
        poor=keys("/seasonId", "/seasonId,/playerId", "/seasonId,/id", "/region"),
    ),
    DataSet(
        "repositories with forks",
        _repositories,
        (op("read", 3000), op("replace", 50), query(200, "/ownerId", rows=30), query(10, "/rootId", rows=100)),
        keys("/id", "/ownerId"),
        keys("/rootId", "/language"),
        100 * GB,
        poor=keys("/isArchived"),
        may_hang=True,  # whether a reader of one repository knows its owner
    ),
    DataSet(
        "invoices that every company numbers",
        _numbered,
        (op("create", 30), query(100, "/companyId", "/number", rows=1), query(60, "/companyId", rows=50)),
        keys("/companyId", "/companyId,/number", "/companyId,/number,/id"),
        frozenset(),
        90 * GB,
        possible=keys("/companyId", "/id"),
    ),
    DataSet(
        "a fleet with firmware cohorts",
        _cohorts,
        (op("create", 8000), query(200, "/deviceId", rows=100), query(1, "/firmware", rows=100)),
        keys("/deviceId"),
        keys("/firmware", "/model"),
        2000 * GB,
        5 * GB,
        poor=keys("/firmware,/deviceId", "/firmware,/id", "/model,/firmware"),
    ),
    DataSet(
        "support tickets with one giant customer",
        _tickets,
        (
            op("create", 40),
            query(80, "/customerId", rows=25),
            query(40, "/customerId", "/status", rows=10),
            query(30, "/assigneeId", rows=20),
        ),
        keys(
            "/customerId,/id",
            "/customerId,/status,/id",
            "/customerId,/assigneeId",
            "/customerId,/assigneeId,/id",
            "/customerId,/assigneeId,/status",
        ),
        keys("/customerId", "/customerId,/status", "/status"),
        400 * GB,
    ),
    DataSet(
        "a forum with one endless thread",
        _thread_posts,
        (op("create", 60), query(800, "/threadId", rows=20), query(20, "/authorId", rows=20)),
        keys("/threadId,/id", "/threadId,/authorId", "/threadId,/authorId,/id", "/threadId,/postedAt"),
        keys("/threadId", "/board"),
        900 * GB,
    ),
    DataSet(
        "runs of jobs in few queues",
        _runs,
        (op("create", 300), op("replace", 1200), op("delete", 300), query(30, "/queue", "/state", rows=10)),
        keys("/id"),
        frozenset(),
        5 * GB,
        hot=keys("/queue", "/state"),
        poor=keys("/queue,/state", "/queue,/id", "/queue,/state,/id"),
    ),
    DataSet(
        "subscriptions of customers",
        _subscriptions,
        (op("replace", 20), op("create", 2), query(300, "/customerId", rows=2), query(1, "/renewsOn", rows=100)),
        keys("/customerId"),
        size_bytes=15 * GB,
        poor=keys("/status"),
    ),
    DataSet(
        "bids of auctions",
        _bids,
        (op("create", 1500), query(800, "/auctionId", rows=30), query(30, "/bidderId", rows=20)),
        keys("/auctionId"),
        frozenset(),
        300 * GB,
        possible=keys("/auctionId", "/bidderId", "/id"),
        may_hang=True,  # a sample has each number about once, as it has each second
    ),
    DataSet(
        "vital signs of patients who come and go",
        _vitals,
        (op("create", 5000), query(300, "/patientId", rows=60), query(20, "/wardId", rows=100)),
        keys("/patientId"),
        keys("/wardId"),
        700 * GB,
        3 * GB,
    ),
    DataSet(
        "permissions with a group of all users",
        _permissions,
        (op("read", 6000), op("create", 20), query(300, "/docId", rows=8), query(100, "/principalId", rows=100)),
        keys("/docId", "/id"),
        frozenset(),
        30 * GB,
        poor=keys("/principalId", "/level"),
        may_hang=True,  # whether a reader of one permission knows its document
    ),
    DataSet(
        "deliveries to endpoints of tenants",
        _endpoints,
        (op("create", 600), query(60, "/tenantId", "/endpointId", rows=50), query(20, "/tenantId", rows=50)),
        keys("/tenantId", "/tenantId,/endpointId"),
        keys("/status"),
        300 * GB,
        1 * GB,
        may_hang=True,  # in 2,000 rows a tenant has eight
    ),
    DataSet(
        "variants of genes",
        _variants,
        (op("create", 200), query(100, "/gene", rows=200), query(5, "/sampleId", rows=100)),
        keys("/gene"),
        keys("/chromosome"),
        600 * GB,
    ),
    DataSet(
        "movements of bank accounts",
        _movements,
        (op("create", 700), query(900, "/account/iban", rows=20)),
        keys("/account/iban"),
        keys("/account/bank/code"),
        500 * GB,
    ),
)
