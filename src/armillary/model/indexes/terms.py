"""The index terms of an item: one walk over the document, by rules that are resolved once for each path and cached.
`indexing.py` makes the rules from the policy.

For every indexed path an item has a term for each scalar; a mark where an array or object stands (so that the index
knows what is defined); the term of UNDEFINED where a path that the policy names explicitly is missing. Scalars,
composite entries and shapes are charged for; marks, UNDEFINED and `_ts`, which changes with every write, are free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from orjson import dumps

from armillary import limits, work
from armillary.model.encoding import ARRAY_MARK, OBJECT_MARK, PLAIN_TERM_MAX, encode_term, new_tuple
from armillary.model.indexes.composites import CompositeIndex
from armillary.model.indexes.index_paths import SCALAR, Steps, step_text, text_steps
from armillary.model.items import SYSTEM_PROPERTIES
from armillary.model.spatial.cells import SPATIAL_NAME, WHOLE_TERM, SpatialIndex
from armillary.model.values import UNDEFINED

TS_PATH = "/_ts"
SPATIAL_TERMS = 4  # a shape in a spatial index is charged like four terms

_UNDEFINED_TERM = encode_term(UNDEFINED)
_FREE_TERMS = frozenset((ARRAY_MARK, OBJECT_MARK, _UNDEFINED_TERM))
_TERM_UNITS = 8  # units of work for a term
_PORTION = limits.WORK_PORTION
_NODE_BYTES = 300  # memory of a cached path besides its text


# The type of a table entity's value (`model/edm.py`). Queries never filter by it alone, and it would be a third of a
# table's index; a policy that names such a path indexes it.
_TYPE_MARK = "/$t"


Prefixes = Mapping[str, bytes]  # path -> prefix of its term keys


TermChanges = tuple[list[tuple[str, bytes]], list[tuple[str, bytes]], int]  # removed, added, how many are charged


class ItemTerms(NamedTuple):
    terms: list[tuple[str, bytes]]  # (path, term), each pair once
    charged: int


def count_charged(terms: Collection[tuple[str, bytes]]) -> int:
    """How many of these terms are charged; for those that a replace removes and adds. All cells of one spatial index
    count as one shape."""
    if len(terms) <= _PORTION:
        cells = [(path, term) for path, term in terms if path.startswith(SPATIAL_NAME)]
    else:
        portions = work.portions(list(terms), 2)
        cells = [each for portion in portions for each in portion if each[0].startswith(SPATIAL_NAME)]
    spatial = {path for path, term in cells if term != WHOLE_TERM}
    return _count_values(terms) - _count_values(cells) + SPATIAL_TERMS * len(spatial)


@lru_cache(64)
def _ts_term(ts: int) -> tuple[str, bytes]:
    """Cached: many items are written within a second."""
    return TS_PATH, encode_term(ts)


def _count_values(terms: Collection[tuple[str, bytes]]) -> int:
    if len(terms) <= _PORTION:
        return sum([term not in _FREE_TERMS and path != TS_PATH for path, term in terms])
    portions = work.portions(list(terms), 1)
    return sum(term not in _FREE_TERMS and path != TS_PATH for portion in portions for path, term in portion)


class _Rest:
    """The rest of an object or array with many members, walked in pieces to give way between them."""

    def __init__(self, value: dict[str, Any] | list[Any]) -> None:
        self._is_array = type(value) is list
        self._members: Iterator[Any] = iter(value) if self._is_array else iter(value.items())  # type: ignore[union-attr]
        self._left = len(value)

    def __len__(self) -> int:
        """Longer than a portion until nothing is left, so that the walk takes the next piece."""
        return self._left + _PORTION if self._left else 0

    def next_piece(self) -> dict[str, Any] | list[Any]:
        piece = islice(self._members, _PORTION)
        self._left = max(0, self._left - _PORTION)
        return list(piece) if self._is_array else dict(piece)


class PathRule:
    """The policy's rule for a path and everything below. None: the rule of an ancestor applies."""

    __slots__ = ("below", "scalar", "subtree")

    def __init__(self) -> None:
        self.below: dict[str | None, PathRule] = {}
        self.scalar: bool | None = None
        self.subtree: bool | None = None

    def add(self, steps: Steps, ending: str, is_indexed: bool) -> None:
        rule = self
        for step in steps:
            rule = rule.below.setdefault(step, PathRule())
        if ending == SCALAR:
            rule.scalar = is_indexed
        else:
            rule.subtree = is_indexed


class _Node:
    """A path of items, with its resolved rule. `below` fills as paths are seen."""

    __slots__ = ("below", "inherited", "is_dead", "is_indexed", "path", "rule")

    def __init__(self, path: str, rule: PathRule | None, inherited: bool) -> None:
        self.path = path
        self.rule = rule
        self.inherited = inherited if rule is None or rule.subtree is None else rule.subtree
        self.is_indexed = self.inherited if rule is None or rule.scalar is None else rule.scalar
        self.is_dead = not (self.is_indexed or self.inherited or (rule is not None and rule.below))
        if len(path) > limits.INDEX_PATH_CHARACTERS_MAX or (rule is None and path.endswith(_TYPE_MARK)):
            self.is_indexed, self.is_dead = False, True
        self.below: dict[str | None, _Node] = {}

    def child(self, step: str | None) -> _Node:
        rule = None if self.rule is None else self.rule.below.get(step)
        return _Node(f"{self.path}/{step_text(step)}", rule, self.inherited)


class TermWalk:
    def __init__(
        self,
        rules: PathRule,
        explicit: tuple[str, ...],
        composites: tuple[CompositeIndex, ...],
        spatial: tuple[SpatialIndex, ...],
    ) -> None:
        for name in SYSTEM_PROPERTIES:
            rules.below[name] = dead = PathRule()
            dead.scalar = dead.subtree = False
        self._rules = rules
        self._composites = composites
        self._spatial = spatial
        self._forget()
        self._explicit = tuple(path for path in explicit if self.is_indexed(text_steps(path)))
        self._has_more = bool(self._explicit or composites or spatial)
        paths = [steps for composite in composites for steps in composite.paths]
        paths += [text_steps(index.path) for index in spatial]
        self._composed_names = frozenset([steps[0] for steps in paths])
        # The properties that the policy names, if it names all it indexes; None: it may concern any.
        self.names: frozenset[str] | None = None
        if not rules.subtree:
            named = [name for name in rules.below if name is not None and not self._root.child(name).is_dead]
            self.names = frozenset([*named, *[name for name in self._composed_names if name is not None]])

    def is_indexed(self, steps: Steps) -> bool:
        if steps == ("_ts",):
            return True
        node = self._root
        for step in steps:
            node = node.below.get(step) or node.child(step)
            if node.is_dead:
                return False
        return node.is_indexed

    def terms(self, document: Mapping[str, Any], ts: int) -> ItemTerms:
        if self._memo_bytes > limits.INDEX_MEMO_BYTES_MAX:
            self._forget()
        terms = [_ts_term(ts)]
        free = 1
        has_twins = False
        size = 0  # of what was walked and not counted yet
        waiting: list[tuple[_Node, Any]] = [(self._root, document)]
        while waiting:
            node, value = waiting.pop()
            size += len(value)
            if size > _PORTION:
                work.spend(min(size, _PORTION) * _TERM_UNITS)
                size = 0
                if len(value) > _PORTION:
                    rest = value if type(value) is _Rest else _Rest(value)
                    value = rest.next_piece()
                    if len(rest):
                        waiting.append((node, rest))
            if type(value) is dict:
                known = node.below
                for name, inner in value.items():
                    child = known.get(name)
                    if child is None:
                        child = self._see(node, name)
                    if child.is_dead:
                        continue
                    kind = type(inner)
                    if kind is dict or kind is list:
                        waiting.append((child, inner))
                        if child.is_indexed:
                            terms.append((child.path, OBJECT_MARK if kind is dict else ARRAY_MARK))
                            free += 1
                    elif not child.is_indexed:
                        continue
                    elif (
                        kind is str
                        and len(inner) <= PLAIN_TERM_MAX
                        and inner.isascii()
                        and "\x00" not in inner
                        and "\x01" not in inner
                    ):
                        terms.append((child.path, f"0{inner}\x00".encode()))  # as `encode_term` does it, without a call
                    else:
                        terms.append((child.path, encode_term(inner)))
            else:
                child = node.below.get(None) or self._see(node, None)
                if child.is_dead:
                    continue
                path, is_indexed = child.path, child.is_indexed
                has_twins = has_twins or len(value) > 1
                for inner in value:
                    kind = type(inner)
                    if kind is dict or kind is list:
                        waiting.append((child, inner))
                    if is_indexed:
                        terms.append((path, encode_term(inner)))
                        free += terms[-1][1] in _FREE_TERMS
        if has_twins:
            # Only elements of one array share a path, so only then can a pair occur twice.
            terms = list(dict.fromkeys(terms)) if len(terms) <= _PORTION else work.unique(terms)
            charged = _count_values(terms)
        else:
            charged = len(terms) - free
        if self._has_more:
            charged += self._add_more(terms, document, ts)
        return new_tuple(ItemTerms, (terms, charged))

    def changes(
        self, before: Mapping[str, Any], after: Mapping[str, Any], before_ts: int, after_ts: int
    ) -> TermChanges | None:
        """The terms by which two small items differ that have the same properties, with values of the same types, and
        the same arrays. None: compare their `terms`. It does not give way."""
        if self._has_more:
            return None
        if self._memo_bytes > limits.INDEX_MEMO_BYTES_MAX:
            self._forget()
        removed, added = [], []
        if before_ts != after_ts:
            removed.append(_ts_term(before_ts))
            added.append(_ts_term(after_ts))
        free = len(removed)
        if before.keys() - SYSTEM_PROPERTIES != after.keys() - SYSTEM_PROPERTIES:
            return None
        waiting: list[tuple[_Node, Any, Any]] = [(self._root, before, after)]
        while waiting:
            node, old, new = waiting.pop()
            known = node.below
            for name, inner in new.items():
                child = known.get(name)
                if child is None:
                    child = self._see(node, name)
                if child.is_dead:
                    continue
                kind, was = type(inner), old[name]
                if type(was) is not kind:
                    return None
                if kind is dict:
                    if was.keys() != inner.keys():
                        return None
                    waiting.append((child, was, inner))
                elif kind is list:
                    if dumps(was) != dumps(inner):
                        return None
                elif was != inner and child.is_indexed:
                    path, gone, come = child.path, encode_term(was), encode_term(inner)
                    if gone != come:  # of long strings only the beginning is indexed
                        removed.append((path, gone))
                        added.append((path, come))
        return removed, added, len(removed) + len(added) - 2 * free

    def keys(self, document: Mapping[str, Any], ts: int, prefixes: Prefixes, rid: bytes) -> list[bytes] | None:
        """The keys of an item's terms, some perhaps twice: as `terms`, without the intermediate list and without
        counting. It does not give way, so it is for small items. None: the policy needs more than the walk."""
        if self._has_more:
            return None
        if self._memo_bytes > limits.INDEX_MEMO_BYTES_MAX:
            self._forget()
        keys = [prefixes[TS_PATH] + _ts_term(ts)[1] + rid]
        waiting: list[tuple[_Node, Any]] = [(self._root, document)]
        while waiting:
            node, value = waiting.pop()
            known = node.below
            if type(value) is dict:
                for name, inner in value.items():
                    child = known.get(name)
                    if child is None:
                        child = self._see(node, name)
                    if child.is_indexed:
                        keys.append(prefixes[child.path] + encode_term(inner) + rid)
                    kind = type(inner)
                    if (kind is dict or kind is list) and not child.is_dead:
                        waiting.append((child, inner))
            else:
                child = known.get(None) or self._see(node, None)
                if child.is_indexed and value:  # a path without terms may have no prefix
                    prefix = prefixes[child.path]
                    keys += [prefix + encode_term(inner) + rid for inner in value]
                if not child.is_dead:
                    waiting += [(child, inner) for inner in value if type(inner) is dict or type(inner) is list]
        return keys

    def _add_more(self, terms: list[tuple[str, bytes]], document: Mapping[str, Any], ts: int) -> int:
        """Terms that only some policies ask for. Returns how many of them are charged."""
        if self._explicit:
            present = {path for path, _ in terms}
            terms.extend([(path, _UNDEFINED_TERM) for path in self._explicit if path not in present])
        charged = 0
        for composite in self._composites:
            entries = composite.terms(document, ts)
            terms.extend([(composite.name, entry) for entry in entries])
            charged += len(entries)
        for spatial in self._spatial:
            cells, shapes = spatial.terms(document)
            terms.extend([(spatial.name, cell) for cell in cells])
            charged += SPATIAL_TERMS * shapes
        return charged

    def _see(self, node: _Node, step: str | None) -> _Node:
        child = node.child(step)
        self._memo_bytes += len(child.path) + _NODE_BYTES
        # Over the limit nothing more is cached; the next item starts with an empty cache.
        if self._memo_bytes <= limits.INDEX_MEMO_BYTES_MAX:
            node.below[step] = child
        return child

    def _forget(self) -> None:
        self._root = _Node("", self._rules, False)
        self._memo_bytes = 0
