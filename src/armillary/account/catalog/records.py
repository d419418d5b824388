"""The catalog's record of a resource: what the client gave, what only the server knows, and the system properties. Its
stored form is one JSON array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from armillary.account.catalog.container_state import Body, ContainerState, OfferState
from armillary.errors import Failure, Kind
from armillary.model.resources import ResourceType, rid_text

RECORDS = b"r"  # the first byte of their keys


@dataclass(slots=True)
class Record:
    type: ResourceType
    rid: bytes
    owner: bytes  # rid of the owner, b"" for databases and offers
    name: str
    body: Body  # what the user gave and gets back, without system properties
    state: Body  # what clients do not see, as it is stored; see `container_state.py`
    ts: int
    etag: str
    self_link: str
    _container_state: ContainerState | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def container_state(self) -> ContainerState:
        """The state of a container; parsed once."""
        parsed = self._container_state
        if parsed is None or parsed.stored is not self.state:
            parsed = self._container_state = ContainerState.parse(self.state)
        return parsed

    @property
    def offer_state(self) -> OfferState:
        return OfferState.parse(self.state)

    @property
    def stores(self) -> list[int]:
        """The stores that hold something of a container; none for other resources."""
        return self.container_state.stores if self.type is ResourceType.CONTAINER else []

    @property
    def rid_text(self) -> str:
        return rid_text(self.rid)

    def to_json(self) -> Body:
        """The resource as it is answered."""
        return {
            **self.body,
            "_rid": self.rid_text,
            "_self": self.self_link,
            "_etag": self.etag,
            "_ts": self.ts,
            **_CHILD_LINKS.get(self.type, {}),
        }

    def pack(self) -> bytes:
        return orjson.dumps(
            [
                self.type.value,
                self.rid.hex(),
                self.owner.hex(),
                self.name,
                self.body,
                self.state,
                self.ts,
                self.etag,
                self.self_link,
            ]
        )

    @classmethod
    def unpack(cls, packed: bytes) -> Record:
        type_word, rid, owner, *rest = orjson.loads(packed)
        return cls(ResourceType(type_word), bytes.fromhex(rid), bytes.fromhex(owner), *rest)


_CHILD_LINKS: Mapping[ResourceType, Body] = {
    ResourceType.DATABASE: {"_colls": "colls/", "_users": "users/"},
    ResourceType.CONTAINER: {
        "_docs": "docs/",
        "_sprocs": "sprocs/",
        "_triggers": "triggers/",
        "_udfs": "udfs/",
        "_conflicts": "conflicts/",
    },
    ResourceType.USER: {"_permissions": "permissions/"},
}

_SCRIPTS = (ResourceType.PROCEDURE, ResourceType.TRIGGER, ResourceType.FUNCTION)


def check_etag(record: Record, if_match: str | None) -> None:
    if if_match is not None and if_match not in ("*", record.etag):
        raise Failure(
            Kind.PRECONDITION_FAILED,
            f"One of the specified pre-condition is not met: '{record.name}' has another etag. Read it again.",
        )


def creation_order(resource_type: ResourceType, rid: bytes) -> bytes:
    """Sorts resources of one type by when they were made."""
    # Scripts carry a little-endian number, as all children of containers do.
    return rid[:8] + rid[:7:-1] if resource_type in _SCRIPTS else rid


def creation_order_of(record: Record) -> bytes:
    return creation_order(record.type, record.rid)


def record_key(record: Record) -> bytes:
    """Under which it is stored."""
    return RECORDS + record.type.value.encode() + b"/" + record.rid


def entries_of(removed: Sequence[Record], added: Sequence[Record]) -> dict[bytes, bytes | None]:
    """What is stored when these were removed and those added."""
    return {record_key(record): None for record in removed} | {record_key(each): each.pack() for each in added}
