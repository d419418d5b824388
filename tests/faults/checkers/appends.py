"""Are the transactions of a logical partition isolated? They append unique values to lists and read them, as Elle does.

A list tells the order of its own versions, so dependencies between transactions are known and not guessed: ww (who
appended after whom), wr (who read whose append), rw (who did not see whose append), and the order in real time. Cycles
of these are the anomalies of Adya's that the names of the violations mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from faults.ledger import Outcome, Violation


@dataclass(frozen=True, slots=True)
class Append:
    item: str
    value: int


@dataclass(frozen=True, slots=True)
class Read:
    item: str
    values: tuple[int, ...]


Action = Append | Read


@dataclass(frozen=True, slots=True)
class Transaction:
    name: str
    actions: tuple[Action, ...]  # of one without an answer: what it would have appended
    begun: float
    ended: float
    outcome: Outcome

    def reads(self) -> Iterator[tuple[Read, tuple[int, ...]]]:
        """What it read, each with the version before its own appends."""
        own: dict[str, int] = defaultdict(int)
        for action in self.actions:
            if isinstance(action, Append):
                own[action.item] += 1
            else:
                count = own[action.item]
                yield action, action.values[: len(action.values) - count] if count else action.values


Edges = dict[int, set[int]]


def check_appends(transactions: Sequence[Transaction]) -> list[Violation]:
    """The first violations of each rule. Transactions on lists of several logical partitions may be mixed."""
    return _Check(transactions).run()


class _Check:
    def __init__(self, transactions: Sequence[Transaction]) -> None:
        self._all = transactions
        self._done = [each for each in transactions if each.outcome is Outcome.OK]
        self._found: list[Violation] = []
        self._writers: dict[tuple[str, int], int] = {}
        for number, each in enumerate(transactions):
            for action in each.actions:
                if isinstance(action, Append):
                    assert (action.item, action.value) not in self._writers, "every append needs a value of its own"
                    self._writers[action.item, action.value] = number

    def run(self) -> list[Violation]:
        for each in self._done:
            self._check_inside(each)
            self._check_reads(each)
        versions = self._versions()
        self._check_lost(versions)
        self._check_updates()
        if not self._found:  # without an order of versions the graph would say anything
            self._check_cycles(versions)
        return self._found

    def _accuse(self, kind: str, text: str) -> None:
        self._found.append(Violation(kind, text))

    def _check_inside(self, each: Transaction) -> None:
        known: dict[str, tuple[int, ...]] = {}
        appended: dict[str, tuple[int, ...]] = defaultdict(tuple)
        for action in each.actions:
            if isinstance(action, Append):
                appended[action.item] += (action.value,)
                continue
            own = appended[action.item]
            wanted = known[action.item] + own if action.item in known else None
            if (wanted is not None and action.values != wanted) or (own and action.values[-len(own) :] != own):
                self._accuse("internal", f"{each.name} read {action.values} of {action.item} after appending {own}")
            known[action.item], appended[action.item] = action.values, ()

    def _check_reads(self, each: Transaction) -> None:
        for read, values in each.reads():
            what = f"{each.name} read {values} of {read.item}"
            if len(set(read.values)) < len(read.values):
                self._accuse("duplicate append", f"{what}: the same append twice")
            for value in values:
                writer = self._writers.get((read.item, value))
                if writer is None:
                    self._accuse("phantom", f"{what}: nobody appended {value}")
                elif self._all[writer].outcome is Outcome.FAILED:
                    self._accuse("G1a", f"{what}: {value} is of {self._all[writer].name}, which was refused")
            self._check_whole(read.item, values, what)

    def _check_whole(self, item: str, values: tuple[int, ...], what: str) -> None:
        """Some appends of a transaction and not all of them."""
        for writer in {self._writers[item, value] for value in values if (item, value) in self._writers}:
            own = {each.value for each in self._all[writer].actions if isinstance(each, Append) and each.item == item}
            if not own.issubset(values):
                self._accuse("G1b", f"{what}: of {self._all[writer].name}'s appends {own} not all are there")

    def _versions(self) -> dict[str, tuple[int, ...]]:
        """The longest list that was read of each item. All others must be its beginnings."""
        longest: dict[str, tuple[int, ...]] = {}
        reads = [(read.item, read.values, each.name) for each in self._done for read, _ in each.reads()]
        for item, values, _ in reads:
            if len(values) > len(longest.setdefault(item, ())):
                longest[item] = values
        for item, values, name in reads:
            if longest[item][: len(values)] != values:
                self._accuse("order", f"{name} read {values} of {item}, somebody else {longest[item]}")
        return longest

    def _check_lost(self, versions: Mapping[str, tuple[int, ...]]) -> None:
        """An append that was acknowledged shows in every list that was read later."""
        for item in versions:
            acknowledged = sorted(
                (each.ended, action.value)
                for each in self._done
                for action in each.actions
                if isinstance(action, Append) and action.item == item
            )
            readers = sorted(
                (each.begun, each.name, read.values)
                for each in self._done
                for read, _ in each.reads()
                if read.item == item
            )
            order = {value: place for place, value in enumerate(versions[item])}
            for ended, value in acknowledged:
                if value in order:
                    continue  # whether every reader saw it in time is seen from the graph
                late = next((reader for reader in readers if reader[0] > ended), None)
                if late is not None:
                    self._accuse("lost", f"{late[1]} read {late[2]} of {item} without the acknowledged {value}")

    def _check_updates(self) -> None:
        """Two that read the same version and both appended to it."""
        updated: dict[tuple[str, tuple[int, ...]], str] = {}
        for each in self._done:
            appended = {action.item for action in each.actions if isinstance(action, Append)}
            first_reads: dict[str, tuple[int, ...]] = {}
            for read, values in each.reads():
                first_reads.setdefault(read.item, values)
            for item in appended & first_reads.keys():
                other = updated.setdefault((item, first_reads[item]), each.name)
                if other != each.name:
                    text = f"{other} and {each.name} both appended to {first_reads[item]} of {item}"
                    self._accuse("lost update", text)

    # The graph.

    def _check_cycles(self, versions: Mapping[str, tuple[int, ...]]) -> None:
        ww, wr, rw = self._dependencies(versions)
        real = _real_time(self._all)
        for kind, parts in (("G0", (ww,)), ("G1c", (ww, wr))):
            cycle = _component(_joined(*parts))
            if cycle:
                self._accuse(kind, self._names(cycle))
                return
        known = _joined(ww, wr)
        for reader, writers in rw.items():
            for writer in writers:
                if reader in _reachable(known, writer):
                    self._accuse("G-single", self._names([reader, writer]))
                    return
        for kind, edges in (("G2", _joined(ww, wr, rw)), ("real time", _joined(ww, wr, rw, real))):
            cycle = _component(edges)
            if cycle:
                self._accuse(kind, self._names(cycle))
                return

    def _dependencies(self, versions: Mapping[str, tuple[int, ...]]) -> tuple[Edges, Edges, Edges]:
        ww: Edges = defaultdict(set)
        wr: Edges = defaultdict(set)
        rw: Edges = defaultdict(set)
        for item, values in versions.items():
            writers = [self._writers[item, value] for value in values]
            for earlier, later in pairwise(writers):
                if earlier != later:
                    ww[earlier].add(later)
        for number, each in enumerate(self._all):
            if each.outcome is not Outcome.OK:
                continue
            for read, values in each.reads():
                if values:
                    source = self._writers[read.item, values[-1]]
                    if source != number:
                        wr[source].add(number)
                following = versions[read.item][len(values) : len(values) + 1]
                if following:
                    target = self._writers[read.item, following[0]]
                    if target != number:
                        rw[number].add(target)
        return ww, wr, rw

    def _names(self, numbers: Collection[int]) -> str:
        return "; ".join(str(self._all[number]) for number in list(numbers)[:6])


def _real_time(transactions: Sequence[Transaction]) -> Edges:
    """Who had ended before whom began, without what follows from the rest."""
    edges: Edges = defaultdict(set)
    moments: list[tuple[float, int, int]] = []
    for number, each in enumerate(transactions):
        moments.append((each.begun, 1, number))
        if each.outcome is Outcome.OK:
            moments.append((each.ended, 0, number))
    latest: set[int] = set()
    before: dict[int, set[int]] = {}
    for _, is_beginning, number in sorted(moments):
        if is_beginning:
            before[number] = set(latest)
            for earlier in latest:
                edges[earlier].add(number)
        else:
            latest -= before[number]
            latest.add(number)
    return edges


def _joined(*parts: Edges) -> Edges:
    joined: Edges = defaultdict(set)
    for part in parts:
        for source, targets in part.items():
            joined[source] |= targets
    return joined


def _reachable(edges: Edges, start: int) -> set[int]:
    seen, waiting = {start}, [start]
    while waiting:
        for target in edges.get(waiting.pop(), ()):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


def _component(edges: Edges) -> list[int]:
    """Some nodes that all reach each other; none if there is no cycle. Tarjan's, without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in list(edges):
        if root in order:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, _enter(root, edges, order, low, stack, on_stack))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in order:
                    work.append((target, _enter(target, edges, order, low, stack, on_stack)))
                    break
                if target in on_stack:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    place = stack.index(node)
                    component = stack[place:]
                    del stack[place:]
                    on_stack.difference_update(component)
                    if len(component) > 1:
                        return component
    return []


def _enter(
    node: int, edges: Edges, order: dict[int, int], low: dict[int, int], stack: list[int], on_stack: set[int]
) -> Iterator[int]:
    order[node] = low[node] = len(order)
    stack.append(node)
    on_stack.add(node)
    targets: Iterable[int] = edges.get(node, ())
    return iter(targets)
