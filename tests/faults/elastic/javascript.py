"""Ports on the released JavaScript client: one Node process holds the clients of all of them."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import orjson
from faults.elastic.port import ANSWERS, Document, Refused, Reply, Step, Unanswered

HERE = Path(__file__).parent
MODULES = HERE.parents[1] / "sdk" / "js"
LINE_BYTES_MAX = 2**26


class Node:
    """Made by `start`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, url: str, key: str, names: tuple[str, str]) -> Self:
        node = shutil.which("node")
        assert node is not None, "Node.js 20 or newer is not on the PATH; `make test` brings it"
        process = await asyncio.create_subprocess_exec(
            *(node, "--no-deprecation", str(HERE / "javascript.mjs"), str(MODULES), url, key, *names),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        return cls(process)

    async def call(self, client: str, call: str, **given: Any) -> dict[str, Any]:
        """The answer; of another status than expected, or none, by exception."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps({"n": number, "client": client, "call": call, **given}) + b"\n")
        answer: dict[str, Any] = await future
        if "unanswered" in answer:
            raise Unanswered(answer["unanswered"])
        if answer.get("status", 200) not in ANSWERS or answer.get("subStatus"):
            raise Refused(f"{answer.get('status')}/{answer.get('subStatus')}: {answer.get('text')}")
        return answer

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = orjson.loads(line)
            future = self._waiting.pop(answer["n"])
            if not future.done():
                future.set_result(answer)
        for future in self._waiting.values():
            future.set_exception(AssertionError("Node ended"))


class JavaScriptPort:
    repeats, groups = False, True

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self._name = name

    async def read(self, key: str, item_id: str) -> Reply:
        return await self._one("read", key=key, id=item_id)

    async def create(self, key: str, document: Document) -> Reply:
        return await self._one("create", document=document)

    async def upsert(self, key: str, document: Document) -> Reply:
        return await self._one("upsert", document=document)

    async def replace(self, key: str, item_id: str, document: Document, etag: str | None) -> Reply:
        return await self._one("replace", key=key, id=item_id, document=document, etag=etag)

    async def delete(self, key: str, item_id: str, etag: str | None) -> Reply:
        return await self._one("delete", key=key, id=item_id, etag=etag)

    async def increment(self, key: str, item_id: str) -> Reply:
        return await self._one("increment", key=key, id=item_id)

    async def batch(self, key: str, steps: Sequence[Step]) -> Reply:
        return await self._one("batch", key=key, steps=[asdict(step) for step in steps])

    def query(self, text: str, page_items: int, key: str | None = None) -> AsyncIterator[list[Any]]:
        return self._pages(text=text, pageItems=page_items, key=key)

    def feed(self, page_items: int) -> AsyncIterator[list[Document]]:
        return self._pages(text=None, pageItems=page_items, key=None)

    async def changes(self, continuation: str | None) -> AsyncIterator[tuple[list[Document], str | None]]:
        is_end = False
        while not is_end:
            answer = await self._node.call(self._name, "changes", continuation=continuation)
            continuation, is_end = answer["continuation"], answer["isEnd"]
            yield answer["rows"], continuation

    async def close(self) -> None:
        pass  # the process that started Node closes it

    async def _one(self, call: str, **given: Any) -> Reply:
        answer = await self._node.call(self._name, call, **given)
        was_there = answer["status"] == 200 if call == "upsert" else None
        return Reply(answer["status"], answer.get("body"), answer.get("etag"), was_there)

    async def _pages(self, **given: Any) -> AsyncIterator[list[Any]]:
        cursor = (await self._node.call(self._name, "query", **given))["cursor"]
        while True:
            answer = await self._node.call(self._name, "next", cursor=cursor)
            if answer["isDone"]:
                return
            yield answer["rows"]
