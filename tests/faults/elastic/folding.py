"""A reader of all versions of a container's items that folds them from the beginning has its items: each version comes
once, in order, with what was there before. That is what these readers check as they go.
"""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


class Fold:
    """Items as the versions that were read make them."""

    def __init__(self) -> None:
        self.items: dict[str, Document] = {}  # by rid
        self.problems: list[str] = []
        self.kinds: dict[str, int] = {"create": 0, "replace": 0, "delete": 0, "expiry": 0}
        self._gone: set[str] = set()
        self._lsns: dict[str, int] = {}  # by key: of the last change
        self._cut: dict[str, int] = {}  # by transaction: the page that it was in

    def page(self, number: int, rows: list[Document]) -> None:
        for row in rows:
            self._apply(row)
            transaction = row["current"].get("transaction") if row["metadata"]["operationType"] == "create" else None
            if transaction is not None and self._cut.setdefault(transaction, number) != number:
                self.problems.append(f"the transaction {transaction} is in two pages")

    def _apply(self, row: Document) -> None:
        current, previous, metadata = row["current"], row.get("previous"), row["metadata"]
        operation, lsn = metadata["operationType"], metadata["lsn"]
        known = current or previous
        assert known is not None, row
        rid, key = known["_rid"], known["key"]
        if lsn < self._lsns.get(key, 0):
            self.problems.append(f"{row} of {key} comes behind {self._lsns[key]}")
        self._lsns[key] = lsn
        if previous != self.items.get(rid) or (operation == "create") != (previous is None):
            self.problems.append(f"{row} does not follow {self.items.get(rid)}")
        if operation == "create" and rid in self._gone:
            self.problems.append(f"{row} is of an item that was deleted")
        if operation == "delete":
            self.items.pop(rid, None)
            self._gone.add(rid)
            assert current == {}
            operation = "expiry" if metadata.get("timeToLiveExpired") else "delete"
            assert metadata["id"] == known["id"] and metadata["partitionKey"] == {"key": key}
        else:
            self.items[rid] = current
        self.kinds[operation] += 1

    def compare(self, listed: list[Document]) -> None:
        """With what is there in the end."""
        expected = {each["_rid"]: each for each in listed}
        if self.items != expected:
            wrong = [rid for rid in self.items.keys() | expected if self.items.get(rid) != expected.get(rid)]
            self.problems += [f"{self.items.get(rid)} is {expected.get(rid)}" for rid in wrong[:5]]
