"""A port that sends bare requests, ten times as many as an SDK does. Nothing is sent twice. A refusal that says when to
try again counts as a promise that nothing was done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from faults.client import Answer, Client, ConnectionLost
from faults.elastic.actors import Actor
from faults.elastic.port import ANSWERS, Document, Refused, Reply, Step, Unanswered
from faults.workload import key_header

PAUSE_S = 0.05  # after a refusal
MERGED = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
BATCH = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
LATER = "x-ms-retry-after-ms"


class RefusedForNow(Refused):
    """503 with a time after which to try again."""

    is_certain = True


class LeanPort:
    repeats, groups = False, False

    def __init__(self, port: int, names: tuple[str, str]) -> None:
        self._port = port
        self._link = f"dbs/{names[0]}/colls/{names[1]}"
        self._docs = f"{self._link}/docs"
        self._client: Client | None = None

    async def read(self, key: str, item_id: str) -> Reply:
        return await self._one("GET", f"{self._docs}/{item_id}", None, key_header(key))

    async def create(self, key: str, document: Document) -> Reply:
        return await self._one("POST", self._docs, document, key_header(key))

    async def upsert(self, key: str, document: Document) -> Reply:
        headers = {"x-ms-documentdb-is-upsert": "True"} | key_header(key)
        answer = await self._answer("POST", self._docs, document, headers)
        return Reply(answer.status, answer.json, answer.headers.get("etag"), answer.status == 200)

    async def replace(self, key: str, item_id: str, document: Document, etag: str | None) -> Reply:
        return await self._one("PUT", f"{self._docs}/{item_id}", document, key_header(key) | _if(etag))

    async def delete(self, key: str, item_id: str, etag: str | None) -> Reply:
        return await self._one("DELETE", f"{self._docs}/{item_id}", None, key_header(key) | _if(etag))

    async def increment(self, key: str, item_id: str) -> Reply:
        body = {"operations": [{"op": "incr", "path": "/count", "value": 1}]}
        return await self._one("PATCH", f"{self._docs}/{item_id}", body, key_header(key))

    async def batch(self, key: str, steps: Sequence[Step]) -> Reply:
        answer = await self._answer("POST", self._docs, [_member(step) for step in steps], BATCH | key_header(key))
        if answer.status == 200:
            return Reply(200, [each.get("resourceBody") for each in answer.json])
        statuses = [each["statusCode"] for each in answer.json] if answer.status == 207 else [answer.status]
        status = next((each for each in statuses if each != 424), 424)
        if status not in ANSWERS:
            raise Refused(f"{answer.status}: {answer.body[:600]!r}")
        return Reply(status)

    async def query(self, text: str, page_items: int, key: str | None = None) -> AsyncIterator[list[Any]]:
        """Of one key."""
        assert key is not None, "merging is the clients' work"
        headers = MERGED | key_header(key) | {"x-ms-max-item-count": str(page_items)}
        while True:
            answer = await self._answer("POST", self._docs, {"query": text}, headers)
            yield answer.json["Documents"]
            if "x-ms-continuation" not in answer.headers:
                return
            headers["x-ms-continuation"] = answer.headers["x-ms-continuation"]

    async def feed(self, page_items: int) -> AsyncIterator[list[Document]]:
        """Range by range, while none is split or merged."""
        ranges = await self._answer("GET", f"{self._link}/pkranges", None, {}, is_feed=True)
        for each in ranges.json["PartitionKeyRanges"]:
            headers = {"x-ms-documentdb-partitionkeyrangeid": each["id"], "x-ms-max-item-count": str(page_items)}
            while True:
                answer = await self._answer("GET", self._docs, None, headers, is_feed=True)
                yield answer.json["Documents"]
                if "x-ms-continuation" not in answer.headers:
                    break
                headers["x-ms-continuation"] = answer.headers["x-ms-continuation"]

    async def changes(self, continuation: str | None) -> AsyncIterator[tuple[list[Document], str | None]]:
        raise NotImplementedError("the SDKs follow the change feed")
        yield [], None

    async def close(self) -> None:
        if self._client is not None:
            self._client.close()

    async def _one(self, method: str, link: str, body: object, headers: dict[str, str]) -> Reply:
        answer = await self._answer(method, link, body, headers)
        content = answer.json if answer.body and answer.status < 300 else None
        return Reply(answer.status, content, answer.headers.get("etag"))

    async def _answer(
        self, method: str, link: str, body: object, headers: dict[str, str], *, is_feed: bool | None = None
    ) -> Answer:
        client, self._client = self._client, None
        try:
            client = client or await Client.connect(self._port)
            is_feed = method == "POST" if is_feed is None else is_feed
            answer = await client.request(method, link, body, headers, is_feed=is_feed)
        except ConnectionLost as error:
            await asyncio.sleep(PAUSE_S)
            raise Unanswered(str(error)) from error
        except BaseException:
            if client is not None:
                client.close()
            raise
        self._client = client
        if (answer.status in ANSWERS and not answer.sub_status) or answer.status == 207:
            return answer
        await asyncio.sleep(PAUSE_S)
        text = f"{answer.status}/{answer.sub_status}: {answer.body[:600]!r}"
        if answer.status == 503 and LATER in answer.headers:
            raise RefusedForNow(text)
        raise Refused(text)


def _if(etag: str | None) -> dict[str, str]:
    return {"if-match": etag} if etag is not None else {}


def _member(step: Step) -> dict[str, Any]:
    if step.verb == "create":
        return {"operationType": "Create", "resourceBody": step.value}
    if step.verb == "read":
        return {"operationType": "Read", "id": step.item_id}
    operations = [{"op": "add", "path": "/values/-", "value": step.value}]
    return {"operationType": "Patch", "id": step.item_id, "resourceBody": {"operations": operations}}


class LeanActor(Actor):
    """Without queries of several partitions, which are the clients' work."""

    async def _walk(self) -> None:
        await self._count_up()

    async def _list(self) -> None:
        await self._grow_together()

    async def _ask(self) -> None:
        key = self._keys.choose(self._dice)
        statics = sorted(each["id"] for each in self._history.statics.values() if each["key"] == key)
        text = "SELECT VALUE c.id FROM c WHERE c.kind = 'static' ORDER BY c.id"
        await self._compare_rows(text, key, statics)
