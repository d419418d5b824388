"""Stores that the catalog has given up: marked in the transaction that gives them up, emptied afterwards."""

from __future__ import annotations

from typing import Final

from armillary.account.catalog.allocation import place_of_store, store_key
from armillary.errors import Failure
from armillary.storage.engine import Engine, Store, Txn

_GARBAGE: Final = b"g"
_END: Final = bytes([_GARBAGE[0] + 1])


def mark(txn: Txn, number: int) -> None:
    txn.put(store_key(_GARBAGE, number), b"")


async def collect(catalog: Store, engine: Engine) -> None:
    """Empty the stores that are marked. What a crash leaves is emptied at the next start."""
    marks = await catalog.read(lambda view: [key for key, _ in view.scan(_GARBAGE, _END)])
    for key in marks:
        number = int.from_bytes(key[1:], "big")
        try:
            await engine.drop(number)
        except Failure:
            if place_of_store(number) == 0:
                raise
            continue  # its process is not there: it is emptied when this is called the next time
        await catalog.write(lambda txn, key=key: txn.delete(key), is_freeing=True)  # type: ignore[misc]
