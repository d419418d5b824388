"""Allocation of rids, etags and store numbers from counters in the catalog's store. A number is never given twice.
Imports and restores reserve numbers before their records are entered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from armillary.model import resources
from armillary.model.resources import ResourceType
from armillary.storage.engine import Txn

_COUNTERS = b"n"
_PLACE_BITS: Final = 24  # of a store's number: the place is above them, a counter of that place's stores below
_OF_TRANSACTIONS: Final = (1 << _PLACE_BITS) - 1
UNFINISHED = b"u"  # stores that are being filled, and that no record names yet


class NewStore(Protocol):
    """Allocates the number of a store that the process with this number holds."""

    def __call__(self, place: int = 0) -> int: ...


class Reservation:
    """Allocates numbers inside a transaction of the catalog."""

    def __init__(self, txn: Txn, stamp: Callable[[Txn], tuple[str, int]]) -> None:
        self._txn = txn
        self._stamp = stamp

    def rid(self, resource_type: ResourceType, owner: bytes) -> bytes:
        return new_rid(self._txn, resource_type, owner)

    def stamp(self) -> tuple[str, int]:
        """An etag, and the time."""
        return self._stamp(self._txn)

    def store(self, place: int = 0) -> int:
        """A new store. Unless a record comes to name it, it is emptied, at the next start at the latest."""
        number = new_store_number(self._txn, place)
        self._txn.put(store_key(UNFINISHED, number), b"")
        return number


def store_key(space: bytes, number: int) -> bytes:
    return space + number.to_bytes(4, "big")


def new_rid(txn: Txn, resource_type: ResourceType, owner: bytes) -> bytes:
    return resources.child_rid(owner, resource_type, count(txn, b"rid/" + resource_type.value.encode() + b"/" + owner))


def new_store_number(txn: Txn, place: int = 0) -> int:
    number = count(txn, b"store/%d" % place if place else b"store")
    assert number < _OF_TRANSACTIONS, "the numbers of a place's stores are used up"
    return place << _PLACE_BITS | number


def place_of_store(number: int) -> int:
    """Where a store is, if partitions are spread over several processes (`armillary serve --processes`), each of which
    holds one place, or over several logs of a cluster, each of which is one."""
    return number >> _PLACE_BITS


def transactions_store(place: int) -> int:
    """The store in which a process keeps what it has promised to transactions over several processes, and decided."""
    return place << _PLACE_BITS | _OF_TRANSACTIONS


def first_store(place: int) -> int:
    """The lowest number of a store in a place."""
    return place << _PLACE_BITS


def are_together(store: int, other: int) -> bool:
    """Whether one engine holds two stores, so that a transaction can be of both."""
    return place_of_store(store) == place_of_store(other)


def count(txn: Txn, name: bytes) -> int:
    """The next number of a counter that never goes back."""
    key = _COUNTERS + name
    stored = txn.get(key)
    number = int.from_bytes(stored, "big") + 1 if stored else 1
    txn.put(key, number.to_bytes(8, "big"))
    return number
