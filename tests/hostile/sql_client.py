"""A small client of the SQL door over sockets, and a bystander that reads one item again and again."""

from __future__ import annotations

import base64
import hmac
import http.client
import json
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

from hostile.sql_requests import Query

ITEMS = "dbs/db/colls/c/docs"
KEY_HEADER = {"x-ms-documentdb-partitionkey": '["p"]'}


class SqlClient:
    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=600
        )  # of one that uses up its work on a busy machine
        self._key = base64.b64decode(key)
        self.headers: dict[str, str] = {}  # of the last answer

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        parts = path.split("/")
        kind, link = (parts[-1], "/".join(parts[:-1])) if len(parts) % 2 else (parts[-2], path)
        date = formatdate(usegmt=True)
        signed = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        mac = base64.b64encode(hmac.digest(self._key, signed.encode(), "sha256")).decode()
        sent = {
            "x-ms-date": date,
            "x-ms-version": "2020-07-15",
            "authorization": quote(f"type=master&ver=1.0&sig={mac}", safe=""),
            "content-type": "application/json",
            **(headers or {}),
        }
        self._connection.request(method, f"/{path}", json.dumps(body) if body is not None else None, sent)
        response = self._connection.getresponse()
        text = response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, json.loads(text) if text else None

    def query(self, query: Query) -> int:
        parameters = [{"name": name, "value": value} for name, value in (query.parameters or {}).items()]
        headers = {
            **KEY_HEADER,
            "x-ms-documentdb-isquery": "True",
            "content-type": "application/query+json",
            "x-ms-max-item-count": "-1",
        }
        return self.ask("POST", ITEMS, {"query": query.text, "parameters": parameters}, headers)[0]


BYSTANDER = """
import select, sys, time
sys.path[:0] = sys.argv[3].split(":")
from hostile.sql_client import ITEMS, KEY_HEADER, SqlClient
client, slowest = SqlClient(int(sys.argv[1]), sys.argv[2]), 0.0
while True:
    if select.select([sys.stdin], [], [], 0.002)[0]:
        if not sys.stdin.readline():
            break
        print(slowest * 1000, flush=True)
        slowest = 0.0
    begun = time.perf_counter()
    assert client.ask("GET", f"{ITEMS}/i0", None, KEY_HEADER)[0] == 200
    slowest = max(slowest, time.perf_counter() - begun)
"""
