"""Signed requests of the SQL protocol as text, and the few calls that set up a server for a measurement.

Texts may have placeholders (one character each) that the load generator replaces in every request, so that no item is
written twice; replacements have a fixed width, so that Content-Length is the same for all requests.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator
from email.utils import formatdate
from typing import Final
from urllib.parse import quote

import aiohttp

# The emulator's well-known key, which all contestants accept.
KEY: Final = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
DATABASE: Final = "bench"
THROUGHPUT_RU: Final = 400

NUMBER, PARTITION, REVISION, DECADE = "#", "@", "^", "~"  # placeholders: nine digits, four digits, nine digits, eight
NUMBER_FIRST: Final = 100_000_000
PARTITION_FIRST, PARTITIONS = 1_000, 1_000
BATCH_ITEMS: Final = 100

_FILLER = "The quick brown fox jumps over the lazy dog and runs on through the wide and quiet fields. "
_PRELOAD_CONNECTIONS = 8


def item() -> str:
    """One item of 1 KB (without system properties), with placeholders. It has 14 terms in the default index."""
    head = {
        "id": f"item-{NUMBER}",
        "key": f"key-{PARTITION}",
        "name": f"Customer {NUMBER}",
        "decade": f"d{DECADE}",  # ten neighbours share one
        "sequence": "<number>",
        "amount": "<amount>",
        "isActive": True,
        "created": "2024-05-17T09:30:00Z",
        "address": {"street": f"{PARTITION} Harbour Road"},
        "tags": ["alpha"],
        "note": "",
    }
    text = json.dumps(head, separators=(",", ":"))
    text = text.replace('"<number>"', NUMBER).replace('"<amount>"', f"{REVISION}.25")
    room = 1024 - len(filled(text, NUMBER_FIRST, PARTITION_FIRST))
    return text[:-2] + (_FILLER * 12)[:room] + text[-2:]


def filled(text: str, number: int, partition: int, revision: int | None = None) -> str:
    revised = number if revision is None else revision
    text = text.replace(NUMBER, str(number)).replace(PARTITION, str(partition)).replace(REVISION, str(revised))
    return text.replace(DECADE, str(number // 10))


def batched_partition(number: int) -> int:
    """The partition key of an item that was loaded by batches: a hundred neighbours share one."""
    return PARTITION_FIRST + number // BATCH_ITEMS % PARTITIONS


def signed(verb: str, resource_type: str, link: str, headers: dict[str, str] | None = None) -> dict[str, str]:
    """The headers of a request, valid for 15 minutes."""
    date = formatdate(usegmt=True)
    text = f"{verb.lower()}\n{resource_type}\n{link}\n{date.lower()}\n\n"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    return {
        "authorization": quote(f"type=master&ver=1.0&sig={signature}", safe=""),
        "x-ms-date": date,
        "x-ms-version": "2020-07-15",
        "accept": "application/json",
        **(headers or {}),
    }


def request_text(verb: str, path: str, headers: dict[str, str], body: str = "", *, has_holes: bool = True) -> str:
    """A whole request, with placeholders. Where there are none, their characters are literal."""
    lines = [f"{verb} {path} HTTP/1.1", "host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body:
        length = len(filled(body, NUMBER_FIRST, PARTITION_FIRST)) if has_holes else len(body)
        lines.append(f"content-length: {length}")
    return "\r\n".join(lines) + "\r\n\r\n" + body


def container_link(container: str) -> str:
    return f"dbs/{DATABASE}/colls/{container}"


def partition_header(partition: str) -> dict[str, str]:
    return {"x-ms-documentdb-partitionkey": f'["key-{partition}"]'}


def read_texts(container: str, numbers: range) -> Iterator[str]:
    for number in numbers:
        link = f"{container_link(container)}/docs/item-{number}"
        headers = signed("GET", "docs", link, partition_header(str(batched_partition(number))))
        yield request_text("GET", "/" + link, headers)


def create_headers(container: str, extra: dict[str, str] | None = None) -> dict[str, str]:
    """The headers of every POST of items to this container: the signature covers the feed, not the item."""
    headers = partition_header(PARTITION) | {"content-type": "application/json"}
    return signed("POST", "docs", container_link(container), headers | (extra or {}))


def create_text(container: str, *, is_upsert: bool = False) -> str:
    extra = {"x-ms-documentdb-is-upsert": "True"} if is_upsert else {}
    return request_text("POST", f"/{container_link(container)}/docs", create_headers(container, extra), item())


def batch_headers(container: str) -> dict[str, str]:
    return create_headers(container, {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"})


def batch_member() -> str:
    return f'{{"operationType":"Create","resourceBody":{item()}}}'


def batch_body(first: int, partition: int) -> str:
    member = batch_member()
    return "[" + ",".join(filled(member, number, partition) for number in range(first, first + BATCH_ITEMS)) + "]"


def call(port: int, verb: str, resource_type: str, link: str, path: str, body: str, extra: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(verb, path, body, signed(verb, resource_type, link, extra))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{verb} {path} was answered with {answer.status}: {text[:300]!r}")
    finally:
        connection.close()


def create_database(port: int) -> None:
    call(port, "POST", "dbs", "", "/dbs", json.dumps({"id": DATABASE}), {})


def create_container(port: int, container: str, throughput_ru: int = THROUGHPUT_RU, **policies: object) -> None:
    body = {"id": container, "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2}, **policies}
    link = f"dbs/{DATABASE}"
    extra = {"x-ms-offer-throughput": str(throughput_ru)}
    call(port, "POST", "colls", link, f"/{link}/colls", json.dumps(body), extra)


def preload(port: int, container: str, numbers: range, *, by_batches: bool) -> None:
    """Fill a container with items, by batches of a hundred where the server knows them."""
    asyncio.run(_preload(f"http://127.0.0.1:{port}/{container_link(container)}/docs", container, numbers, by_batches))


async def _preload(url: str, container: str, numbers: range, by_batches: bool) -> None:
    step = BATCH_ITEMS if by_batches else 1
    firsts = iter(numbers[::step])
    template = item()

    async def send() -> None:
        for first in firsts:
            partition = batched_partition(first)
            body = batch_body(first, partition) if by_batches else filled(template, first, partition)
            headers = batch_headers(container) if by_batches else create_headers(container)
            headers |= partition_header(str(partition))
            async with session.post(url, data=body.encode(), headers=headers) as answer:
                text = await answer.read()
                if answer.status not in (200, 201):
                    raise RuntimeError(f"items could not be loaded: {answer.status} {text[:300]!r}")

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(send() for _ in range(_PRELOAD_CONNECTIONS)))
