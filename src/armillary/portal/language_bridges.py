"""Bridges of the portal to the MongoDB and Gremlin doors. Imported with the first request of a page to one of them."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any, Final
from urllib.parse import urlsplit

import bson
import orjson
from bson import json_util
from bson.errors import BSONError

from armillary import limits
from armillary.doors.control.access.authentication import Access
from armillary.doors.control.fields import Fields
from armillary.doors.gremlin.authentication import Client as GremlinClient
from armillary.doors.gremlin.authentication import Principal as GremlinPrincipal
from armillary.doors.gremlin.door import GremlinDoor
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.errors import MalformedMessage
from armillary.doors.mongo.settings import Grant
from armillary.errors import Failure, Kind, bad_request
from armillary.model.bson.bson_values import CODEC
from armillary.net.http import HANG_UP, Request, Response
from armillary.portal.policy import json_response

# With types, so that a document that is shown, edited and stored again keeps them.
_TYPED: Final = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL)
_SESSION_BYTES: Final = 16  # of a UUID
_FORM: Final = b"application/vnd.gremlin-v3.0+json"
_PROFILE: Final = ".executionProfile()"


class LanguageBridges:
    def __init__(self, mongo: MongoDoor, gremlin: GremlinDoor) -> None:
        self._mongo = mongo
        self._gremlin = gremlin

    # MongoDB: a command in extended JSON.

    async def answer_mongo(self, request: Request, access: Access) -> Response:
        fields = _fields(request, "a command of MongoDB")
        database, command = fields.required_text("database"), fields.take("command")
        fields.end()
        if not isinstance(command, dict) or not command:
            raise bad_request("'command' must be a JSON object whose first member names the command.")
        own: dict[str, Any] = {"$db": database}
        if access.log_in_id and "lsid" not in command:
            own["lsid"] = _session_of(access)  # its cursors are of this log-in, and of no other
        encoded = await _aside(len(request.body), _encoded, {**command, **own})
        try:
            answered = await self._mongo.answer_as(
                encoded, Grant.READ if access.is_read_only else Grant.WRITE, request.peer
            )
        except MalformedMessage as error:
            raise bad_request(f"The command cannot be read: {error}.") from None
        if answered is None:
            return HANG_UP
        reply, statistics = answered
        shown = await _aside(len(reply), _shown, reply)
        return json_response(
            200,
            {"reply": orjson.Fragment(shown), "chargeRu": statistics.charge_ru, "ms": statistics.duration_ms},
        )

    # Gremlin: a script.

    async def answer_gremlin(self, request: Request, access: Access) -> Response:
        fields = _fields(request, "a script of Gremlin")
        database, graph = fields.required_text("database"), fields.required_text("graph")
        script, bindings = fields.required_text("script"), fields.take("bindings", {})
        fields.end()
        if not isinstance(bindings, dict):
            raise bad_request("'bindings' must be a JSON object.")
        arguments = {"gremlin": script, "bindings": bindings, "language": "gremlin-groovy"}
        asked = {"requestId": self._gremlin.account.clock.guid(), "op": "eval", "processor": "", "args": arguments}
        line = _GremlinLine()
        client = GremlinClient(line)
        client.address = request.peer
        client.principal = GremlinPrincipal(database, graph, access.is_read_only)
        await self._gremlin.answer_as(client, bytes((len(_FORM),)) + _FORM + orjson.dumps(asked))
        if line.is_hung_up or not line.messages:
            return HANG_UP
        content = line.content()
        if script.rstrip().endswith(_PROFILE) and content["data"]:
            content["profile"] = content["data"][0]
        return json_response(200, content)


class _GremlinLine:
    """In the place of a connection: collects the answers to one request."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.is_hung_up = False
        self._size_bytes = 0

    def send(self, message: bytes, is_text: bool) -> None:
        self._size_bytes += len(message)
        if self._size_bytes > limits.PORTAL_GREMLIN_BYTES_MAX:
            most = limits.PORTAL_GREMLIN_BYTES_MAX // limits.MB
            raise Failure(Kind.TOO_LARGE, f"The results are larger than {most} MB. Ask for fewer of them with limit().")
        self.messages.append(orjson.loads(message))

    async def drained(self) -> None:
        await asyncio.sleep(0)

    def close(self, code: int) -> None:
        pass

    def hang_up(self) -> None:
        self.is_hung_up = True

    def content(self) -> dict[str, Any]:
        """The parts as one answer; what it cost is told by the last."""
        status = self.messages[-1]["status"]
        costs = dict(_pairs(status["attributes"]))
        results = [each["result"]["data"] for each in self.messages]
        return {
            "status": {"code": status["code"], "message": status["message"]},
            "data": [value for each in results if each for value in each["@value"]],
            "chargeRu": _plain(costs.get("x-ms-total-request-charge", 0.0)),
            "ms": _plain(costs.get("x-ms-total-server-time-ms", 0.0)),
        }


def _pairs(attributes: Any) -> list[tuple[str, Any]]:
    """Of a map in GraphSON 3, whose keys and values take turns."""
    if isinstance(attributes, dict) and "@value" in attributes:
        listed = attributes["@value"]
        return list(zip(listed[::2], listed[1::2], strict=True))
    return list(attributes.items())


def _plain(value: Any) -> Any:
    return value["@value"] if isinstance(value, dict) else value


def _fields(request: Request, what: str) -> Fields:
    if urlsplit(request.target).query:
        raise bad_request("This request has no query parameters.")
    media_type = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json":
        raise Failure(Kind.UNSUPPORTED_MEDIA, "The body must be JSON: send 'Content-Type: application/json'.")
    return Fields(request.body, what)


def _session_of(access: Access) -> dict[str, Any]:
    """The id of a session of MongoDB's for a log-in, in extended JSON."""
    identity = bytes.fromhex(access.log_in_id)[:_SESSION_BYTES]
    return {"id": {"$binary": {"base64": b64encode(identity).decode("ascii"), "subType": "04"}}}


async def _aside(size_bytes: int, convert: Any, value: Any) -> Any:
    """Long values are converted in a thread, from which the loop takes the interpreter back."""
    if size_bytes <= limits.WORK_AT_ONCE_BSON_BYTES:
        return convert(value)
    return await asyncio.to_thread(convert, value)


def _encoded(command: dict[str, Any]) -> bytes:
    try:
        return bson.encode(json_util.loads(json.dumps(command)), codec_options=CODEC)
    except (BSONError, ValueError, TypeError, OverflowError, AttributeError, RecursionError) as error:
        raise bad_request(f"The command is not extended JSON: {str(error)[:200]}.") from None


def _shown(reply: bytes) -> str:
    return json_util.dumps(bson.decode(reply, CODEC), json_options=_TYPED)
