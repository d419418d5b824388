"""The types, resource ids (rids) and links of an account's resources.

A rid is a path of numbers, readable from its bytes alone: a container's begins with its database's, an item's with its
container's. SDKs rely on the lengths and on the marker bits (they tell name links from rid links by them), so the
layout follows the service exactly. Rids are never reused, not even after delete and re-create. Inside the engine an
item's rid is only its last part, the storage key of 8 bytes.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from enum import Enum


class ResourceType(Enum):
    """The value is the word used in links; `feed` is the property that holds a list of them."""

    DATABASE = "dbs"
    CONTAINER = "colls"
    ITEM = "docs"
    PROCEDURE = "sprocs"
    TRIGGER = "triggers"
    FUNCTION = "udfs"
    CONFLICT = "conflicts"
    RANGE = "pkranges"
    USER = "users"
    PERMISSION = "permissions"
    ENCRYPTION_KEY = "clientencryptionkeys"
    OFFER = "offers"

    @property
    def feed(self) -> str:
        return _FEEDS[self]


_FEEDS = {
    ResourceType.DATABASE: "Databases",
    ResourceType.CONTAINER: "DocumentCollections",
    ResourceType.ITEM: "Documents",
    ResourceType.PROCEDURE: "StoredProcedures",
    ResourceType.TRIGGER: "Triggers",
    ResourceType.FUNCTION: "UserDefinedFunctions",
    ResourceType.CONFLICT: "Conflicts",
    ResourceType.RANGE: "PartitionKeyRanges",
    ResourceType.USER: "Users",
    ResourceType.PERMISSION: "Permissions",
    ResourceType.ENCRYPTION_KEY: "ClientEncryptionKeys",
    ResourceType.OFFER: "Offers",
}

# The high nibble of a container child's last byte tells its type.
_CHILD_NIBBLE = {
    ResourceType.ITEM: 0x0,
    ResourceType.CONFLICT: 0x4,
    ResourceType.RANGE: 0x5,
    ResourceType.FUNCTION: 0x6,
    ResourceType.TRIGGER: 0x7,
    ResourceType.PROCEDURE: 0x8,
}

# An item's rid in storage: the id of the partition that created it, then a counter of that partition.
ITEM_COUNTER_BITS = 40
ITEM_PARTITIONS_MAX = 1 << 20


def rid_text(rid: bytes) -> str:
    """A rid on the wire: base64 with `/` replaced, so that it fits a path."""
    return b2a_base64(rid, newline=False).decode("ascii").replace("/", "-")


def rid_bytes(text: str) -> bytes | None:
    """The rid in wire form as bytes, or None if the text is not one."""
    try:
        rid = a2b_base64(text.replace("-", "/").encode("ascii"), strict_mode=True)
    except (Base64Error, ValueError):
        return None
    return rid if rid_text(rid) == text else None


def child_rid(owner: bytes, resource_type: ResourceType, number: int) -> bytes:
    """The rid of a resource of a type, by its number below an owner (b"" for databases and offers)."""
    match resource_type:
        case ResourceType.DATABASE:
            return number.to_bytes(4, "big")
        case ResourceType.OFFER:
            return number.to_bytes(3, "big")
        case ResourceType.USER:
            assert number < 1 << 31
            return owner + number.to_bytes(4, "big")
        case ResourceType.CONTAINER:
            assert number < 1 << 31
            return owner + (number | 1 << 31).to_bytes(4, "big")
        case ResourceType.PERMISSION | ResourceType.ENCRYPTION_KEY:
            return owner + number.to_bytes(8, "big")
    assert number < 1 << 60
    return owner + (number | _CHILD_NIBBLE[resource_type] << 60).to_bytes(8, "little")


def item_rid_text(container_rid: bytes, rid: int) -> str:
    return b2a_base64(container_rid + rid.to_bytes(8, "little"), newline=False).decode("ascii").replace("/", "-")


def item_rid(wire_rid: bytes) -> int | None:
    """The storage rid inside an item's wire rid, or None if it is not an item's."""
    if len(wire_rid) != 16 or wire_rid[15] & 0xF0:
        return None
    return int.from_bytes(wire_rid[8:], "little")


def first_item_rid(partition_number: int) -> int:
    """The first rid that a partition gives out, so that rids never collide when partitions split. It is above 0, so
    that every rid has a predecessor."""
    assert partition_number < ITEM_PARTITIONS_MAX
    return (partition_number << ITEM_COUNTER_BITS) + 1


def self_link(owner_self: str, resource_type: ResourceType, rid: bytes) -> str:
    """`_self`: rids at every level, with a trailing slash and without a leading one."""
    return f"{owner_self}{resource_type.value}/{rid_text(rid)}/"
