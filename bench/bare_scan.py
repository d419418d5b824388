"""Upper bound of a scan: a RocksDB iterator, orjson and the compiled filter in a plain loop, on a directory that a
server has open. Run as a program it prints items per second.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import orjson
import rocksdict

from armillary.languages.sql.compiling.compile import compile_query
from armillary.model import layout
from armillary.model.encoding import payload_of
from armillary.storage import rocks_database

# No index helps with either condition, and the second is never true: every item is read, none is returned.
SCAN: Final = "SELECT * FROM c WHERE c.name != 'nobody' AND c.amount < c.sequence"
_STORES_MAX: Final = 64


def scan(database: rocksdict.Rdict, store: int) -> tuple[int, float]:
    """The number of items, and the seconds that scanning them took."""
    predicate = compile_query(SCAN).bind({}).predicate
    assert predicate is not None
    prefix = store.to_bytes(4, "big")
    low, high = prefix + layout.ITEMS, prefix + layout.space_end(layout.ITEMS)
    options = rocksdict.ReadOptions()
    options.set_iterate_upper_bound(high)
    iterator = database.iter(options)
    iterator.seek(low)
    count = 0
    begin_s = time.perf_counter()
    while iterator.key() is not None:
        if predicate(orjson.loads(payload_of(iterator.value()))):
            raise RuntimeError("an item meets the filter that none should meet")
        count += 1
        iterator.next()
    return count, time.perf_counter() - begin_s


def main(directory: Path, size: int) -> None:
    options = rocks_database._options()
    database = rocksdict.Rdict(str(directory / "rocks"), options, access_type=rocksdict.AccessType.read_only())
    for store in range(_STORES_MAX):
        count, taken_s = scan(database, store)
        if count == size:
            print(count / taken_s)
            return
    raise RuntimeError(f"no store has {size} items")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
