"""Path coverage: the index paths under which every item of a partition has a term, maintained by the one write path.

ORDER BY over a path also returns items that lack it, and those have no term. Knowing that there are none saves scanning
all items. Writes only shrink the set, when an item lacks a path; so a write that changes nothing costs one comparison
and stores nothing. The set grows by a scan of all items, which `partition/upkeep/upkeep.py` makes when a query needed a
path in vain and much was written since, when the rules change, and in stores whose set is not valid.

Every other change of the set gets a new *generation*, and the partition's head names the valid generation. A writer
compares its item with the set in memory, as last acknowledged, only if the head in its own transaction names the same
generation: then the stored set has at most these paths. A set of another generation is ignored; so are those of format
2, whose heads name none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import orjson

from armillary import limits, work
from armillary.model import layout
from armillary.partition.history.log import Head
from armillary.storage.engine import Txn, View

Terms = Sequence[tuple[str, bytes]]

COVERAGE_KEY = layout.META + b"presence"
SETTLED, SCANNING, RESTATING = 0, 1, 2


class PathCoverage(NamedTuple):
    generation: int  # grows with every change except writes that remove paths from the set
    rules_number: int  # the rules that its items follow
    scanned_lsn: int  # of the last scan of all items
    paths: frozenset[str]
    # During a scan or a rules change: the paths common to all items written since it began.
    stage: int = SETTLED
    sought: frozenset[str] | None = None  # None: nothing was written yet

    def holds(self, rules_number: int, terms: Terms) -> bool:
        """Whether an item with these terms leaves the set unchanged. The stored set may have fewer paths if its
        generation is the same; the caller makes sure of that."""
        return self.rules_number == rules_number and self.stage == SETTLED and _found(terms).keys() >= self.paths

    def after_item(self, rules_number: int, terms: Terms, lsn: int) -> PathCoverage:
        """The coverage after one more item with these rules and terms."""
        known = self
        if known.rules_number != rules_number:
            # The first item under new rules. All others will be restated, so each is counted once.
            known = PathCoverage(known.generation + 1, rules_number, lsn, frozenset(), RESTATING)
        found = _found(terms)
        sought = known.sought
        if known.stage != SETTLED:
            sought = paths_of(terms) if sought is None else sought & found.keys()
        return known._replace(paths=known.paths & found.keys(), sought=sought)

    def begun(self, rules_number: int) -> PathCoverage:
        """The coverage when a scan of all items begins."""
        paths = self.paths if self.rules_number == rules_number else frozenset[str]()
        return PathCoverage(self.generation + 1, rules_number, self.scanned_lsn, paths, SCANNING)

    def ended(self, found: frozenset[str] | None, lsn: int) -> PathCoverage:
        """The coverage after the scan; `found` None: it found no items, only new ones count."""
        sought = self.sought
        if found is not None:
            sought = found if sought is None else sought & found
        return PathCoverage(self.generation + 1, self.rules_number, lsn, self.paths if sought is None else sought)

    def pack(self) -> bytes:
        sought = sorted(self.sought) if self.sought is not None else None
        return orjson.dumps(
            [self.generation, self.rules_number, self.scanned_lsn, sorted(self.paths), self.stage, sought]
        )


NOTHING = PathCoverage(0, 0, 0, frozenset())


def of_first_item(generation: int, rules_number: int, terms: Terms, lsn: int) -> PathCoverage:
    """The coverage of a partition with one item; its generation follows the given one."""
    return PathCoverage(generation + 1, rules_number, lsn, paths_of(terms))


def trusted_coverage(view: View, head: Head) -> PathCoverage | None:
    """The stored coverage, if the head names its generation; else None."""
    stored = load_coverage(view)
    return stored if stored is not None and stored.generation == head.coverage_generation else None


def last_generation(view: View, head: Head) -> int:
    """The highest generation used so far."""
    return max((load_coverage(view) or NOTHING).generation, head.coverage_generation)


def note_item(
    txn: Txn, head: Head, rules_number: int, terms: Terms, lsn: int, *, is_first: bool
) -> PathCoverage | None:
    """Update the stored coverage for a written item, if it changes. The caller stores the head. Returns the coverage;
    None: there is none, until a scan of all items."""
    stored = trusted_coverage(txn, head)
    if is_first:
        becomes = of_first_item(last_generation(txn, head), rules_number, terms, lsn)
    elif stored is None:
        return None
    else:
        becomes = stored.after_item(rules_number, terms, lsn)
    if becomes != stored:
        txn.put(COVERAGE_KEY, becomes.pack())
        head.coverage_generation = becomes.generation
    return becomes


# Changes other than by writes. Each returns what it stored, with a new generation; None: nothing was changed.


def begin_coverage_scan(txn: Txn, head: Head, rules_number: int) -> PathCoverage | None:
    known = trusted_coverage(txn, head) or NOTHING._replace(generation=last_generation(txn, head))
    return None if known.stage == RESTATING else _put(txn, head, known.begun(rules_number))


def end_coverage_scan(txn: Txn, head: Head, begun: PathCoverage, found: frozenset[str] | None) -> PathCoverage | None:
    known = trusted_coverage(txn, head)
    if known is None or known.generation != begun.generation:
        return None  # the rules changed meanwhile, or there was a new first item
    return _put(txn, head, known.ended(found, head.lsn))


def end_restating(txn: Txn, head: Head, rules_number: int) -> PathCoverage | None:
    """All items follow these rules now."""
    known = trusted_coverage(txn, head)
    if known is None or known.rules_number != rules_number or known.stage != RESTATING:
        return None
    return _put(txn, head, known.ended(None, head.lsn))


def _put(txn: Txn, head: Head, coverage: PathCoverage) -> PathCoverage:
    head.coverage_generation = coverage.generation
    txn.put(COVERAGE_KEY, coverage.pack())
    txn.put(layout.HEAD_KEY, head.pack())
    return coverage


def load_coverage(view: View) -> PathCoverage | None:
    """As stored, valid or not. None: there never was one."""
    stored = view.get(COVERAGE_KEY)
    if stored is None:
        return None
    generation, rules_number, scanned_lsn, paths, stage, sought = orjson.loads(stored)
    return PathCoverage(
        generation,
        rules_number,
        scanned_lsn,
        frozenset(paths),
        stage,
        frozenset(sought) if sought is not None else None,
    )


def paths_of(terms: Terms) -> frozenset[str]:
    """The paths that may be remembered: those that an ORDER BY can name, up to a limit."""
    paths = (path for path in _found(terms) if "/[]" not in path)
    return frozenset(islice(paths, limits.COVERED_PATHS_MAX))


def _found(terms: Terms) -> dict[str, bytes]:
    """The paths of terms, each once. May give way if there are many."""
    if len(terms) <= limits.WORK_PORTION:
        return dict(terms)
    found: dict[str, bytes] = {}
    for portion in work.portions(terms, 3):
        found.update(portion)
    return found
