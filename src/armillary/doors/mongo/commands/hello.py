"""hello and its older names: the topology and limits that a driver needs. A single server presents itself as the
primary of a replica set of one. Its address is the one that the client connected to, unless a setting gives another,
since drivers use it from then on. A node of a cluster is a member of a set, at the addresses that the nodes announce.
"""

from __future__ import annotations

import hmac
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary import limits
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.client import application_in
from armillary.doors.mongo.replica_set.membership import SET_NAME, Membership, Role
from armillary.doors.mongo.sessions import sign_in_commands
from armillary.doors.mongo.wire import compression
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, encode

_ELECTION: Final = ObjectId("7fffffff0000000000000001")
# Release to wire version. 8.0 obliges to bulkWrite and to `sort` of updates.
WIRE_VERSIONS: Final = {"4.2": 8, "4.4": 9, "5.0": 13, "6.0": 17, "7.0": 21, "8.0": 25}


async def hello(call: Call) -> Reply:
    body, client = call.body, call.client
    is_new_style = call.name == "hello"
    _note_metadata(call)
    await _hold(call)
    now = DatetimeMS(int(call.clock.now_s() * 1000))
    answer: Document = {}
    if body.get("helloOk"):
        answer["helloOk"] = True
    member = call.services.membership
    answer["isWritablePrimary" if is_new_style else "ismaster"] = member is None or member.leads
    answer |= _set_of_one(call, now) if member is None else _member(call, member)
    answer |= {
        "maxBsonObjectSize": limits.MONGO_DOCUMENT_BYTES_MAX,
        "maxMessageSizeBytes": limits.MONGO_MESSAGE_BYTES_MAX,
        "maxWriteBatchSize": limits.MONGO_BATCH_OPERATIONS_MAX,
        "localTime": now,
        "logicalSessionTimeoutMinutes": limits.MONGO_SESSION_SECONDS // 60,
        "connectionId": client.id,
        "minWireVersion": 0,
        "maxWireVersion": WIRE_VERSIONS[call.services.settings.version],
        "readOnly": False,
    }
    if member is not None and member.leads and body.get("loadBalanced") is True:
        answer["serviceId"] = member.service_id
        client.is_load_balanced = True
    if client.compressors:
        answer["compression"] = client.compressors
    user = body.get("saslSupportedMechs")
    if isinstance(user, str):
        answer["saslSupportedMechs"] = call.services.authenticator.mechanisms_of(user)
    begun = await sign_in_commands.speculate(call, body.get("speculativeAuthenticate"))
    if begun is not None:
        answer["speculativeAuthenticate"] = begun
    return answer


def _set_of_one(call: Call, now: DatetimeMS) -> Document:
    host = call.services.address_of(call.client)
    return {
        "topologyVersion": topology_of(call),
        "hosts": [host],
        "setName": SET_NAME,
        "setVersion": 1,
        "secondary": False,
        "primary": host,
        "me": host,
        "electionId": _ELECTION,
        "lastWrite": _last_write(call, now, 1),
    }


def _member(call: Call, member: Membership) -> Document:
    topology = member.topology
    own = member.own_host or call.services.address_of(call.client)
    answer: Document = {
        "topologyVersion": member.version,
        "hosts": list(member.hosts) or [own],
        "setName": SET_NAME,
        "setVersion": member.set_version,
        "secondary": member.role is Role.SECONDARY,
        "me": own,
        "tags": member.tags,
        # Drivers compare this date of members for maxStalenessSeconds: both are by the leader's clock.
        "lastWrite": _last_write(call, DatetimeMS(topology.reached_us // 1000), topology.epoch),
    }
    primary = own if member.leads else member.primary_host
    if primary is not None:
        answer["primary"] = primary
    if member.leads:
        answer["electionId"] = member.election_id
    return answer


def _last_write(call: Call, date: DatetimeMS, term: int) -> Document:
    written = {"ts": call.services.cluster_time.now, "t": Int64(term)}
    return {"opTime": written, "lastWriteDate": date, "majorityOpTime": written, "majorityWriteDate": date}


def _note_metadata(call: Call) -> None:
    client = call.client
    told = call.body.get("client")
    if told is not None:
        if client.has_metadata:
            raise refusal(186, "The client metadata document may only be sent in the first hello")
        if not isinstance(told, dict):
            raise refusal(14, "The client metadata document is no document")
        if len(encode(told)) > limits.MONGO_METADATA_BYTES_MAX:
            most = limits.MONGO_METADATA_BYTES_MAX
            raise refusal(187, f"The client metadata document must be less then or equal to {most} bytes")
        client.has_metadata = True
        client.app_name = application_in(told)
    wanted = call.body.get("compression")
    if isinstance(wanted, list):
        client.compressors = compression.agreed(wanted)


async def _hold(call: Call) -> None:
    """An awaitable hello waits for a change of the topology. On a single server there is none while it runs."""
    known, wait_ms = call.body.get("topologyVersion"), call.fields.whole("maxAwaitTimeMS", low=0)
    if known is None:
        if wait_ms is not None:
            raise refusal(31368, "A request with a 'maxAwaitTimeMS' must include a 'topologyVersion'")
        return
    if wait_ms is None:
        raise refusal(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'")
    if not isinstance(known, dict):
        raise refusal(14, "BSON field 'hello.topologyVersion' is the wrong type, expected type 'object'")
    if known == topology_of(call):
        limit_s = min(wait_ms / 1000, limits.MONGO_HELLO_SECONDS_MAX)
        member = call.services.membership
        if member is None:
            await call.client.pause(limit_s)
        else:
            await member.wait(call.client, limit_s)
            member.look()


def process_id_of(secret: bytes) -> bytes:
    """The processId in the topologyVersion of a server with several processes: drivers see one."""
    return hmac.digest(secret, b"processId of MongoDB", "sha256")[:12]


def topology_of(call: Call) -> dict[str, Any]:
    member = call.services.membership
    if member is not None:
        return member.version
    return {"processId": call.services.process_id, "counter": Int64(1)}
