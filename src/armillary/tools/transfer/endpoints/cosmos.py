"""A Cosmos-compatible endpoint over its REST protocol: ours, the emulators, or the cloud. Signs requests, tries again
what may be tried again. Our own small client rather than the SDK: it sends a hundred bulk requests at
once, needs nothing that the server does not need, and the SDK for Python has no bulk mode.
"""

from __future__ import annotations

import hmac
import ssl
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from armillary.errors import Failure, Kind, bad_request
from armillary.model.keys import PartitionKeyDefinition
from armillary.tools.transfer.endpoints.http_client import TIMEOUT_S, Answer, HttpClient
from armillary.tools.transfer.endpoints.retries import Retries

API_VERSION: Final = "2020-07-15"
THROTTLED: Final = 429
PASSING: Final = frozenset((408, 449, 503))  # to be tried again after a while
_KINDS: Final = {
    400: Kind.BAD_REQUEST,
    401: Kind.UNAUTHORIZED,
    403: Kind.FORBIDDEN,
    404: Kind.NOT_FOUND,
    409: Kind.CONFLICT,
    410: Kind.RANGE_GONE,
    413: Kind.TOO_LARGE,
    415: Kind.UNSUPPORTED_MEDIA,
}


class ContainerLink(NamedTuple):
    database: str
    container: str

    @property
    def link(self) -> str:
        return f"dbs/{self.database}/colls/{self.container}"

    @property
    def target(self) -> str:
        return f"/dbs/{quote(self.database, safe='')}/colls/{quote(self.container, safe='')}"


class Range(NamedTuple):
    id: str
    low: bytes
    high: bytes
    parents: tuple[str, ...]


class Signer:
    """Signs requests with a key of the account."""

    def __init__(self, key: str, url: str) -> None:
        try:
            self._mac = hmac.new(b64decode(key, validate=True), digestmod="sha256")
        except (Base64Error, ValueError):
            raise bad_request(f"The key of {url} is not base64.") from None

    def headers(self, method: str, resource_type: str, link: str) -> list[tuple[str, str]]:
        date = formatdate(usegmt=True)
        mac = self._mac.copy()
        mac.update(f"{method.lower()}\n{resource_type}\n{link}\n{date.lower()}\n\n".encode())
        token = quote(f"type=master&ver=1.0&sig={b64encode(mac.digest()).decode()}", safe="")
        return [("authorization", token), ("x-ms-date", date), ("x-ms-version", API_VERSION)]


class CosmosEndpoint:
    def __init__(
        self,
        url: str,
        key: str,
        certificate: Path | None = None,
        context: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._http = HttpClient(url, certificate, context, timeout_s)
        self._refused = 0
        self.url = self._http.url
        self._signer = Signer(key, self.url)

    def close(self) -> None:
        self._http.close()

    async def send(
        self,
        method: str,
        resource_type: str,
        link: str,
        target: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> Answer:
        """Until there is an answer that is final: also one that is a refusal."""
        retries = Retries()
        while True:
            try:
                answer = await self._http.request(
                    method, target, [*self._signer.headers(method, resource_type, link), *headers], body
                )
            except Failure:
                if not self._http.has_answered or not await retries.wait():
                    raise
                continue
            if answer.status == THROTTLED:
                self._refused += 1
                await retries.wait(float(answer.headers.get("x-ms-retry-after-ms") or 100))
            elif answer.status not in PASSING or not await retries.wait():
                return answer

    def take_refused(self) -> int:
        """How many whole requests were refused for lack of throughput, and repeated, since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def content(self, answer: Answer) -> Any:
        """Of an answer; raises if it is a refusal."""
        if answer.status >= 400:
            raise refusal(answer, self.url)
        return orjson.loads(answer.body)

    # Containers.

    async def key_definition(self, place: ContainerLink) -> PartitionKeyDefinition | None:
        """What a container is partitioned by; None: it has no key."""
        answer = await self.send("GET", "colls", place.link, place.target)
        definition = self.content(answer).get("partitionKey")
        return PartitionKeyDefinition.parse(definition, default_version=1) if definition else None

    async def ranges(self, place: ContainerLink) -> list[Range]:
        listed: list[dict[str, Any]] = []
        continuation: str | None = ""
        while continuation is not None:
            headers = [("x-ms-max-item-count", "-1"), *([("x-ms-continuation", continuation)] if continuation else [])]
            answer = await self.send("GET", "pkranges", place.link, f"{place.target}/pkranges", headers)
            listed += self.content(answer)["PartitionKeyRanges"]
            continuation = answer.headers.get("x-ms-continuation")
        found = [
            Range(
                each["id"],
                bytes.fromhex(each["minInclusive"]),
                bytes.fromhex(each["maxExclusive"]),
                tuple(each.get("parents") or ()),
            )
            for each in listed
        ]
        return sorted(found, key=lambda each: each.low)

    async def ensure_container(self, place: ContainerLink, paths: list[str], throughput_ru: int | None) -> bool:
        """Make a container, and its database, where they are missing. Whether it had to be made."""
        await self._make("POST", "dbs", "", "/dbs", {"id": place.database})
        kind = "MultiHash" if len(paths) > 1 else "Hash"
        body = {"id": place.container, "partitionKey": {"paths": paths, "kind": kind, "version": 2}}
        headers = [("x-ms-offer-throughput", str(throughput_ru))] if throughput_ru is not None else []
        database = f"dbs/{place.database}"
        target = f"/dbs/{quote(place.database, safe='')}/colls"
        return await self._make("POST", "colls", database, target, body, headers)

    async def _make(
        self,
        method: str,
        resource_type: str,
        link: str,
        target: str,
        body: dict[str, Any],
        headers: Iterable[tuple[str, str]] = (),
    ) -> bool:
        answer = await self.send(method, resource_type, link, target, headers, orjson.dumps(body))
        if answer.status >= 400 and answer.status != 409:
            raise refusal(answer, self.url)
        return answer.status != 409


def charge_of(answer: Answer) -> float:
    return float(answer.headers.get("x-ms-request-charge") or 0)


def message_of(answer: Answer) -> str:
    try:
        message = str(orjson.loads(answer.body)["message"]).splitlines()[0].removeprefix("Message: ")
    except (ValueError, KeyError, TypeError, IndexError):
        return f"it answers {answer.status}"
    try:  # servers wrap it once more
        return " ".join(map(str, orjson.loads(message)["Errors"]))
    except (ValueError, KeyError, TypeError):
        return message


def refusal(answer: Answer, url: str) -> Failure:
    if answer.status == 401:
        return Failure(
            Kind.UNAUTHORIZED,
            f"The server at {url} does not accept the account key. Give its key in ARMILLARY_KEY or with --key (that "
            "of another endpoint in ARMILLARY_REMOTE_KEY).",
        )
    return Failure(_KINDS.get(answer.status, Kind.UNAVAILABLE), f"{url}: {message_of(answer)}")
