"""Thirteen data sets of other domains than the rules were made on, with answers from knowledge of the domain that were
written down before an advice was seen. Three have requests as a capture shows them instead of planned rates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from foresight.golden.data_sets import BEGIN, DAYS, DataSet, Row, at, keys, op, query, words, zipf

from armillary.insight.advice.reading.leaf_columns import digest_number
from armillary.insight.advice.request_load import RequestRecord
from armillary.limits import GB


@dataclass(frozen=True)
class CapturedSet(DataSet):
    """Its requests were captured: they have values and times of their own."""

    requests: Callable[[random.Random], Iterator[RequestRecord]] = lambda source: iter(())


def _leaves(row: Row) -> dict[str, int]:
    return {f"/{name}": digest_number(value) for name, value in row.items()}


# A mailbox is read as a whole; mailboxes are many, and none is a giant.
_mailbox = zipf(100_000, 0.4)


def _mails(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"<{source.getrandbits(80):020x}@mail.example>",
        "mailboxId": f"mb-{_mailbox(source):06}",
        "folder": source.choices(("inbox", "archive", "sent", "spam"), (55, 30, 10, 5))[0],
        "receivedAt": at(share),
        "threadId": f"th-{source.getrandbits(40):010x}",
        "subject": words(source, 6),
        "isRead": source.random() < 0.8,
    }


def _links(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{source.getrandbits(42):011x}",
        "ownerId": f"own-{source.randrange(8000)}",
        "target": f"https://example.org/{source.getrandbits(48):x}",
        "domain": source.choices(("s.ly", "go.to", "custom"), (80, 15, 5))[0],
        "createdAt": at(share),
        "isActive": source.random() < 0.97,
    }


# Nearly all ballots are of the election that is held.
def _ballots(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"{source.getrandbits(96):024x}",
        "electionId": "2026-general" if source.random() < 0.95 else f"2026-local-{source.randrange(9)}",
        "precinctId": f"p-{source.randrange(5000):04}",
        "castAt": at(0.999 + share / 1000),
        "method": source.choices(("machine", "mail"), (70, 30))[0],
        "sealed": f"{source.getrandbits(256):064x}",
    }


# Bytes are even over matches: what is hot is in the requests alone.
def _live(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"r-{source.getrandbits(64):016x}",
        "matchId": f"match-{source.randrange(1000):04}",
        "userId": f"u-{source.randrange(60_000):05}",
        "kind": source.choice(("cheer", "comment", "vote")),
        "sentAt": at(share),
        "text": words(source, 10),
    }


def _live_requests(source: random.Random) -> Iterator[RequestRecord]:
    """12,000 a second, 70 % of them of the match that is played."""
    for number in range(12_000):
        row = _live(source, number, 0.999)
        if source.random() < 0.7:
            row["matchId"] = "match-0417"
        moment = number / 12.0
        if number % 7 == 0:
            pinned = {"/matchId": digest_number(row["matchId"])}
            yield RequestRecord("query", moment, eq=pinned, ru=10.0, rows=10, loaded=10)
        else:
            digest = digest_number(row["id"])
            yield RequestRecord("create", moment, row["id"], digest, _leaves(row), ru=7.5)


# Users ask for their own tasks, and tasks are given to other users.
_project = zipf(2000, 0.5)


def _tasks(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"task-{number:07}",
        "projectId": f"prj-{_project(source):04}",
        "assigneeId": f"person-{source.randrange(5000):04}",
        "status": source.choice(("open", "doing", "done")),
        "createdAt": at(share),
        "title": words(source, 8),
    }


def _task_requests(source: random.Random) -> Iterator[RequestRecord]:
    rows = [_tasks(source, number, 0.5) for number in range(800)]
    for number in range(6_000):
        row = rows[source.randrange(len(rows))]
        moment = number / 0.6
        match number % 10:
            case 0 | 1 | 2:
                if source.random() < 0.2:
                    row["assigneeId"] = f"person-{source.randrange(5000):04}"
                row["status"] = source.choice(("open", "doing", "done"))
                digest = digest_number(row["id"])
                yield RequestRecord("replace", moment, row["id"], digest, _leaves(row), ru=11.0)
            case 3:
                pinned = {"/projectId": digest_number(row["projectId"])}
                yield RequestRecord("query", moment, eq=pinned, ru=10.0, rows=20, loaded=20, parts=4)
            case 4 | 5:
                yield RequestRecord("read", moment, row["id"], digest_number(row["id"]), ru=1.0)
            case _:
                pinned = {"/assigneeId": digest_number(row["assigneeId"])}
                yield RequestRecord("query", moment, eq=pinned, ru=8.0, rows=10, loaded=10, parts=4)


_product = zipf(5000, 1.0)


def _reviews(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"rev-{source.getrandbits(56):014x}",
        "productId": f"B{_product(source):07}",
        "userId": f"u{source.randrange(40_000)}",
        "stars": source.choices((1, 2, 3, 4, 5), (8, 5, 10, 22, 55))[0],
        "language": source.choice(("de", "en", "fr")),
        "writtenAt": at(share),
        "text": words(source, 40),
    }


_merchant = zipf(2000, 1.1)


def _payments(source: random.Random, number: int, share: float) -> Row:
    merchant = _merchant(source)
    return {
        "id": f"pay_{source.getrandbits(72):018x}",
        "merchantId": f"m_{merchant:05}",
        "orderRef": f"{merchant}-{source.randrange(10_000_000):07}",
        "status": source.choices(("captured", "refunded", "failed"), (90, 4, 6))[0],
        "currency": source.choices(("EUR", "USD", "GBP"), (60, 30, 10))[0],
        "createdAt": at(share),
        "amount": source.randrange(100, 90_000),
    }


# All cells are written once an hour, at the hour.
def _weather(source: random.Random, number: int, share: float) -> Row:
    moment = BEGIN + timedelta(hours=int(DAYS * 24 * share))
    return {
        "id": f"{source.getrandbits(64):016x}",
        "cellId": f"u{source.randrange(20_000):05x}",
        "validAt": moment.strftime("%Y-%m-%dT%H:00:00Z"),
        "model": source.choice(("icon", "gfs", "ecmwf")),
        "temperature": round(source.gauss(9, 8), 1),
        "wind": {"speed": round(source.uniform(0, 30), 1), "direction": source.randrange(360)},
    }


def _rates(source: random.Random, number: int, share: float) -> Row:
    return {
        "id": f"rate-{number:05}",
        "country": f"C{number % 190:03}",
        "category": source.choice(("food", "books", "services", "fuel", "other")),
        "percent": source.choice((0, 5, 7, 10, 19, 20, 25)),
        "validFrom": f"{2015 + number % 11}-01-01",
    }


def _stock(source: random.Random, number: int, share: float) -> Row:
    warehouse, sku = source.randrange(50), source.randrange(20_000)
    return {
        "id": f"w{warehouse:02}-s{sku:05}-{number}",
        "warehouseId": f"w{warehouse:02}",
        "sku": f"s{sku:05}",
        "quantity": source.randrange(500),
        "shelf": f"{source.choice('ABCDEF')}-{source.randrange(90)}",
        "countedAt": at(share),
    }


# One container for all entities, with the key that was made for it.
def _entities(source: random.Random, number: int, share: float) -> Row:
    customer = source.randrange(3000)
    kind = source.choices(("customer", "order", "line"), (10, 30, 60))[0]
    return {
        "id": f"{kind}-{number:07}",
        "pk": f"customer#{customer:05}",
        "type": kind,
        "company": "acme",
        "changedAt": at(share),
        "body": words(source, 15),
    }


def _entity_requests(source: random.Random) -> Iterator[RequestRecord]:
    for number in range(2_000):
        moment = number * 5.0
        pk = f"customer#{source.randrange(3000):05}"
        for member in range(3):
            row = _entities(source, 1_000_000 + 3 * number + member, 0.9) | {"pk": pk}
            digest = digest_number(row["id"])
            yield RequestRecord("create", moment, pk, digest, _leaves(row), ru=8.0, group=f"batch-{number}")
        pinned = {"/pk": digest_number(f"customer#{source.randrange(3000):05}")}
        yield RequestRecord("query", moment + 1, eq=pinned, ru=9.0, rows=12, loaded=12)


# Dashboards ask for minutes, so the minute looks like the key; all writes of a minute would go to one value.
def _buckets(source: random.Random, number: int, share: float) -> Row:
    moment = BEGIN + timedelta(days=DAYS * share)
    return {
        "id": f"{source.getrandbits(64):016x}",
        "bucket": int(moment.strftime("%Y%m%d%H%M")),
        "sensorId": f"s-{source.randrange(9000):04}",
        "at": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": round(source.gauss(50, 9), 3),
    }


_folder = zipf(50_000, 0.7)


def _files(source: random.Random, number: int, share: float) -> Row:
    folder = f"/home/{_folder(source):05}"
    return {
        "id": f"{source.getrandbits(64):016x}",
        "parent": folder,
        "name": f"file-{number}.txt",
        "owner": f"user-{source.randrange(3000)}",
        "mime": source.choice(("text/plain", "image/png", "application/pdf")),
        "modified": at(share),
        "size": source.randrange(10_000_000),
    }


BLIND_SETS = (
    # In every run: the two that showed a defect, and those with captures.
    DataSet(
        "minutes of a dashboard",
        _buckets,
        (op("create", 5000), query(60, "/bucket", rows=100), query(3, "/sensorId", rows=100)),
        keys("/sensorId", "/id", "{bucket}-{sensorId}"),
        frozenset(),
        800 * GB,
        2 * GB,
        poor=keys("/bucket", "/bucket,/sensorId", "/bucket,/id"),
        may_hang=True,
    ),
    DataSet(
        "weather of cells",
        _weather,
        (op("create", 2000), query(800, "/cellId", rows=24), query(1, "/model", rows=100)),
        keys("/cellId"),
        keys("/model"),
        500 * GB,
        10 * GB,
        poor=keys("/validAt", "/validAt,/cellId", "/validAt,/id"),
    ),
    CapturedSet(
        "a match that is played",
        _live,
        (),
        keys("/id", "/userId", "{matchId}-{userId}"),
        keys("/kind"),
        300 * GB,
        poor=keys("/matchId,/id", "/matchId,/userId", "/matchId,/kind"),
        hot=keys("/matchId"),
        may_hang=True,
        requests=_live_requests,
    ),
    CapturedSet(
        "tasks that change hands",
        _tasks,
        (),
        keys("/projectId", "/id"),
        frozenset(),
        40 * GB,
        hot=keys("/assigneeId", "/status", "/assigneeId,/id", "/assigneeId,/projectId", "/projectId,/assigneeId"),
        may_hang=True,  # /id or /projectId: what the application knows when it reads by id decides
        requests=_task_requests,
    ),
    CapturedSet(
        "all entities of customers",
        _entities,
        (),
        keys("/pk"),
        keys("/type", "/company"),
        250 * GB,
        requests=_entity_requests,
    ),
    DataSet(
        "mail archive",
        _mails,
        (op("create", 500), query(900, "/mailboxId", "/folder", rows=25), query(40, "/threadId", rows=5)),
        keys("/mailboxId", "/mailboxId,/folder", "/mailboxId,/folder,/id"),
        keys("/folder", "/isRead"),
        3000 * GB,
    ),
    DataSet(
        "short links",
        _links,
        (op("read", 8000), op("create", 30), query(5, "/ownerId", rows=20)),
        keys("/id"),
        keys("/domain"),
        100 * GB,
        poor=keys("/isActive"),
    ),
    DataSet(
        "ballots of one election",
        _ballots,
        (op("create", 5000), query(50, "/precinctId", rows=50)),
        keys("/precinctId"),
        keys("/electionId", "/method"),
        200 * GB,
    ),
    DataSet(
        "reviews",
        _reviews,
        (op("create", 20), query(500, "/productId", rows=20), query(30, "/userId", rows=10)),
        keys("/productId"),
        size_bytes=40 * GB,
        poor=keys("/language", "/stars"),
    ),
    DataSet(
        "payments of merchants",
        _payments,
        (op("create", 300), query(100, "/merchantId", "/orderRef", rows=1), query(50, "/merchantId", rows=50)),
        keys("/merchantId,/orderRef", "/merchantId,/id", "/merchantId,/orderRef,/id"),
        keys("/merchantId", "/currency", "/status"),
        2000 * GB,
    ),
    DataSet(
        "tax rates",
        _rates,
        (op("read", 20), query(50, "/country", rows=10)),
        keys("/country"),
        poor=keys("/category"),
        may_hang=True,
    ),
    DataSet(
        "stock of warehouses",
        _stock,
        (op("read", 3000), op("patch", 1000), query(100, "/sku", rows=50), query(5, "/warehouseId", rows=100)),
        keys("/sku", "/id"),
        size_bytes=20 * GB,
        may_hang=True,
    ),
    DataSet(
        "files of a drive",
        _files,
        (op("read", 1000), op("create", 40), query(300, "/parent", rows=20)),
        keys("/parent"),
        keys("/mime"),
        300 * GB,
        may_hang=True,
    ),
)
