"""A server with a planted defect, to prove that the fault tests notice: `python -m faults.defective DEFECT serve ...`.

Each defect is one that a hurried change could bring in. They are planted by replacing methods of the product's classes
in this process only; the product itself has no switch for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.partition.partition import Partition
from armillary.partition.writing.writer import Writer
from armillary.storage.disk_errors import Answer
from armillary.storage.engine import Txn
from armillary.storage.overlay import Layer
from armillary.storage.rocks import RocksEngine
from armillary.tools.cli import main

EARLY_S = 0.03
LSN_STEP = 50


def acknowledge_before_commit() -> None:
    """Writers get their answers a moment before their group is written."""
    write_group = RocksEngine._write_group

    def answer_first(self: RocksEngine, layer: Layer, answers: list[Answer]) -> None:
        if self._stalled is not None or layer.is_empty():
            write_group(self, layer, answers)
            return
        for future, result, error in answers:
            if not future.done():
                future.set_result(result) if error is None else future.set_exception(error)
        self._stalled = layer, answers
        self._loop.call_later(EARLY_S, self._retry_stalled)

    _replace(RocksEngine, "_write_group", answer_first)


def terms_in_a_second_transaction() -> None:
    """The item first, its index terms when it is stored; acknowledged when both are."""

    write, write_all = Partition.write, Partition.write_all
    run_one, run_all = Partition._run_one, Partition._run_all
    kept: dict[int, dict[bytes, bytes | None]] = {}  # by operation or batch: the terms that its last run wrote

    def apart(txn: Txn, asked: Any) -> Any:
        kept[id(asked)] = {}
        return _WithoutTerms(txn, kept[id(asked)])

    def one_apart(self: Partition, asked: Any, txn: Txn) -> Any:
        return run_one(self, asked, apart(txn, asked))

    def all_apart(self: Partition, txn: Txn, asked: Any, *more: Any) -> Any:
        return run_all(self, apart(txn, asked), asked, *more)

    def refuse_delivery(self: Partition, asked: Any, receiver: Any) -> None:
        raise Failure(Kind.UNAVAILABLE, "With this defect all writes wait for their second transaction.")

    def with_terms_later(send: Callable[..., Any]) -> Callable[..., Any]:
        async def send_twice(self: Partition, asked: Any, *more: Any) -> Any:
            outcome = await send(self, asked, *more)
            terms = kept.pop(id(asked))

            def run_terms(txn: Txn) -> None:
                for key, value in terms.items():
                    if value is None:
                        txn.delete(key)
                    else:
                        txn.put(key, value)

            await self._store.write(run_terms)
            return outcome

        return send_twice

    _replace(Partition, "_run_one", one_apart)
    _replace(Partition, "_run_all", all_apart)
    _replace(Partition, "deliver", refuse_delivery)
    _replace(Partition, "write", with_terms_later(write))
    _replace(Partition, "write_all", with_terms_later(write_all))


class _WithoutTerms:
    """A transaction that keeps the writes of index terms for later."""

    def __init__(self, txn: Txn, terms: dict[bytes, bytes | None]) -> None:
        self._txn = txn
        self._terms = terms

    def put(self, key: bytes, value: bytes) -> None:
        if key.startswith(layout.TERMS):
            self._terms[key] = value
        else:
            self._txn.put(key, value)

    def delete(self, key: bytes) -> None:
        if key.startswith(layout.TERMS):
            self._terms[key] = None
        else:
            self._txn.delete(key)

    def put_keys(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self.put(key, b"")

    def delete_many(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self.delete(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)


def reuse_lsn() -> None:
    """The lsn is counted in memory and stored now and then, so that it goes back when the process dies."""
    make_writer, finish = Partition._writer, Writer.finish
    counted: dict[int, int] = {}  # by partition

    def writer(self: Partition, txn: Txn) -> Writer:
        made = make_writer(self, txn)
        assert made._lsn == made.head.lsn + 1, "lsns are given elsewhere now: plant this defect there"
        made.head.lsn = max(made.head.lsn, counted.get(id(self), 0))
        made._lsn = made.head.lsn + 1
        owners[id(made)] = id(self)
        return made

    def store_now_and_then(self: Writer) -> None:
        finish(self)
        owner = owners.pop(id(self))
        if self._steps:
            counted[owner] = self.head.lsn
            stored = replace(self.head, lsn=self.head.lsn - self.head.lsn % LSN_STEP)
            self._txn.put(layout.HEAD_KEY, stored.pack())

    owners: dict[int, int] = {}
    _replace(Partition, "_writer", writer)
    _replace(Writer, "finish", store_now_and_then)


DEFECTS: dict[str, Callable[[], None]] = {
    "acknowledge-before-commit": acknowledge_before_commit,
    "terms-in-a-second-transaction": terms_in_a_second_transaction,
    "lsn-reused": reuse_lsn,
}


def _replace(owner: type, name: str, function: Callable[..., Any]) -> None:
    assert name in vars(owner), f"{owner.__name__}.{name} is gone: plant this defect elsewhere"
    setattr(owner, name, function)


if __name__ == "__main__":
    DEFECTS[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
