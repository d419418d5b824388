"""Indexing policies: which paths of an item are indexed, and the index terms of an item. Storing and finding terms is
left to `partition` and `query`; the grammar of paths is in `index_paths.py`, the walk over an item in `terms.py`.

Of the paths that match a node the deepest applies, at equal depth `/?` before `/*`. In consistent mode `id`, `_ts` and
the partition key are always indexed, whatever the policy says; other system properties never are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from armillary import limits
from armillary.errors import bad_request
from armillary.model.bson.bson_json import document_of, field_name
from armillary.model.bson.bson_values import Document
from armillary.model.indexes.composites import CompositeIndex
from armillary.model.indexes.field_indexes import FieldIndex
from armillary.model.indexes.index_paths import (
    SCALAR,
    SUBTREE,
    IndexPath,
    Steps,
    bad_index_path,
    parse_index_path,
    text_steps,
)
from armillary.model.indexes.search_policies import (
    FullTextPolicy,
    VectorPolicy,
    check_full_text_index,
    check_vector_index,
)
from armillary.model.indexes.terms import ItemTerms as ItemTerms
from armillary.model.indexes.terms import PathRule, Prefixes, TermChanges, TermWalk
from armillary.model.indexes.terms import count_charged as count_charged
from armillary.model.json_members import INVALID_INPUT, members, shown
from armillary.model.keys import PartitionKeyDefinition
from armillary.model.spatial.cells import SHAPE_KINDS, SpatialIndex

CONSISTENT, NONE = "consistent", "none"
ETAG_PATH = '/"_etag"/?'
ROOT_MISSING = (
    'The special mandatory indexing path "/" is not provided in any of the path type sets. Please provide this path in '
    "one of the sets."
)

_MEMBERS = {
    "indexingMode",
    "automatic",
    "includedPaths",
    "excludedPaths",
    "compositeIndexes",
    "spatialIndexes",
    "vectorIndexes",
    "fullTextIndexes",
}
_OLD_KINDS = ("Range", "Hash", "Spatial")
_OLD_TYPES = ("String", "Number", *SHAPE_KINDS)


class IndexingPolicy:
    """A parsed policy: the text to answer and the rules for walking items."""

    def __init__(
        self,
        echo: dict[str, Any],
        rules: PathRule,
        explicit: tuple[str, ...],
        composites: tuple[CompositeIndex, ...],
        tuples: tuple[CompositeIndex, ...] = (),
        fields: tuple[FieldIndex, ...] = (),
    ) -> None:
        self.mode: str = echo["indexingMode"]
        self.is_automatic: bool = echo["automatic"]
        self.composites = composites
        self.tuples = tuples  # over members of array elements
        self._echo = echo
        spatial = [
            SpatialIndex(parse_index_path(entry["path"]).steps, frozenset(entry["types"]), entry.get("boundingBox"))
            for entry in echo.get("spatialIndexes", ())
        ]
        self.spatial = {index.path: index for index in spatial}
        self._walk = TermWalk(rules, explicit, (*composites, *tuples), tuple(self.spatial.values()))
        self._explicit = frozenset(explicit)
        # The document fields that the policy concerns besides their ids, each with its name in an item; None: all.
        names = self._walk.names if self.mode != NONE else frozenset[str]()
        self.named_fields: tuple[tuple[str, str], ...] | None = None
        if names is not None:
            pairs = [(field_name(name), name) for name in sorted(names)]
            self.named_fields = tuple([(field, name) for field, name in pairs if field is not None])
        self.fields = fields  # indexes of a MongoDB collection
        self.unique_fields = tuple([index for index in fields if index.is_unique])
        self.dated_fields = tuple([index for index in fields if index.expires_after_s is not None])

    @classmethod
    def parse(
        cls,
        given: Any,
        *,
        key_definition: PartitionKeyDefinition | None,
        has_ttl: bool,
        vector_policy: Any = None,
        fulltext_policy: Any = None,
        geospatial: str | None = None,
        fields: tuple[FieldIndex, ...] = (),
    ) -> IndexingPolicy:
        """From a container's `indexingPolicy` (None: the default) and the related policies as sent. Without
        `geospatial` (Geography or Geometry) bounding boxes are accepted, for policies accepted earlier."""
        policy = members({} if given is None else given, "indexingPolicy", _MEMBERS)
        policy = {name: value for name, value in policy.items() if value is not None}
        vectors = VectorPolicy.parse(vector_policy)
        echo: dict[str, Any] = {"indexingMode": _mode(policy), "automatic": _automatic(policy)}
        if echo["indexingMode"] == NONE:
            return cls._without_index(policy, echo, has_ttl, fields)

        included, excluded = _paths(policy)
        free = _add_default_exclusions(included, excluded, vectors)
        for name, listed in (("includedPaths", included), ("excludedPaths", excluded)):
            if len(listed.keys() - free) > limits.INDEX_PATHS_MAX:
                raise bad_request(
                    f"The indexing policy has {len(listed)} {name}; {limits.INDEX_PATHS_MAX} are allowed."
                )
        echo["includedPaths"] = list(included.values())
        echo["excludedPaths"] = list(excluded.values())
        rules = PathRule()
        for path in excluded:
            rules.add(path.steps, path.ending, False)
        for path in included:
            # A tuple path indexes the members together, not each by itself.
            if not path.members:
                rules.add(path.steps, path.ending, True)
        always = [("id",), *(key_definition.steps if key_definition is not None else ())]
        for steps in always:
            rules.add(steps, SCALAR, True)
        explicit = tuple(dict.fromkeys(path.text for path in included if not path.is_root and not path.members))

        composites = _composites(policy, echo)
        _spatial(policy, echo, geospatial)
        full_text = FullTextPolicy.parse(fulltext_policy)
        _search_indexes(policy, echo, "vectorIndexes", lambda entry: check_vector_index(entry, vectors))
        _search_indexes(policy, echo, "fullTextIndexes", lambda entry: check_full_text_index(entry, full_text))
        tuples = tuple([CompositeIndex.of_tuple(path) for path in included if path.members])
        return cls(echo, rules, explicit, composites, tuples, fields)

    @classmethod
    def _without_index(
        cls, policy: Mapping[str, Any], echo: dict[str, Any], has_ttl: bool, fields: tuple[FieldIndex, ...]
    ) -> IndexingPolicy:
        if has_ttl:
            raise bad_request(
                "The indexing mode 'none' cannot be combined with time to live. Use 'consistent' and exclude '/*'."
            )
        for name in _MEMBERS - {"indexingMode", "automatic", "excludedPaths"}:
            if _list(policy, name):
                raise bad_request(f"The indexing mode 'none' allows no {name}. Leave them out, or use 'consistent'.")
        excluded = _path_set(_list(policy, "excludedPaths"), "excludedPaths")
        # Without indexing there is no automatic indexing.
        echo |= {"automatic": False, "includedPaths": [], "excludedPaths": list(excluded.values())}
        return cls(echo, PathRule(), (), (), (), fields)

    def to_json(self) -> dict[str, Any]:
        """The policy as stored and answered. Parsing it gives the same policy."""
        return self._echo

    def applies(self, directive: str = "Default") -> bool:
        """Whether an item written with this indexing directive is indexed."""
        if self.mode == NONE or directive == "Exclude":
            return False
        return self.is_automatic or directive == "Include"

    def terms(self, document: Mapping[str, Any], ts: int) -> ItemTerms:
        """The index terms of an indexed item; see `terms.py`. System properties in the document are ignored, so that an
        item as sent and as stored has the same terms."""
        made = ItemTerms([], 0) if self.mode == NONE else self._walk.terms(document, ts)
        return self.with_fields(made, document_of(document)) if self.fields else made

    def changes(
        self, before: Mapping[str, Any], after: Mapping[str, Any], before_ts: int, after_ts: int
    ) -> TermChanges | None:
        """The terms by which two small items differ, as far as that is cheap to say. None: compare their `terms`."""
        if self.mode == NONE or self.fields:
            return None
        return self._walk.changes(before, after, before_ts, after_ts)

    def plain_terms(self, document: Mapping[str, Any], ts: int) -> ItemTerms:
        """Without those of a collection's indexes."""
        return ItemTerms([], 0) if self.mode == NONE else self._walk.terms(document, ts)

    def term_keys(self, document: Mapping[str, Any], ts: int, prefixes: Prefixes, rid: bytes) -> list[bytes] | None:
        """The term keys of a small item, for deleting them; None: use `terms`."""
        if self.mode == NONE or self.fields:
            return None
        return self._walk.keys(document, ts, prefixes, rid)

    def with_fields(self, made: ItemTerms, document: Document) -> ItemTerms:
        """Add the terms of a collection's indexes, which are made from the BSON document."""
        terms, charged = made
        for index in self.fields:
            found = index.terms(document)
            terms += found
            charged += len(found)
        return ItemTerms(terms, charged)

    def is_indexed(self, path: str) -> bool:
        """Whether every value at a path (canonical text) of every indexed item is in the index."""
        return self.mode != NONE and self._walk.is_indexed(text_steps(path))

    def has_undefined(self, path: str) -> bool:
        """Whether items that lack the path are in the index under it, with the term of UNDEFINED."""
        return self.mode != NONE and path in self._explicit and self.is_indexed(path)


def _mode(policy: Mapping[str, Any]) -> str:
    mode = policy.get("indexingMode", CONSISTENT)
    known = mode.lower() if type(mode) is str else None
    if known == "lazy":
        raise bad_request("The indexing mode 'lazy' is no longer offered. Use 'consistent'.")
    if known not in (CONSISTENT, NONE):
        raise bad_request(f"{INVALID_INPUT}: indexingMode must be 'consistent' or 'none', not '{shown(mode)}'.")
    return known


def _automatic(policy: Mapping[str, Any]) -> bool:
    automatic = policy.get("automatic", True)
    if type(automatic) is not bool:
        raise bad_request(f"{INVALID_INPUT}: automatic must be true or false, not '{shown(automatic)}'.")
    return automatic


def _list(policy: Mapping[str, Any], name: str) -> list[Any]:
    listed = policy.get(name, [])
    if type(listed) is not list:
        raise bad_request(f"{INVALID_INPUT}: {name} of the indexing policy must be a list.")
    return listed


def _paths(policy: Mapping[str, Any]) -> tuple[dict[IndexPath, Any], dict[IndexPath, Any]]:
    """Both sets of paths with the entries to answer. A policy without included paths includes everything that it does
    not exclude."""
    excluded = _path_set(_list(policy, "excludedPaths"), "excludedPaths")
    root = IndexPath((), SUBTREE)
    if "includedPaths" not in policy and root not in excluded:
        included = {root: {"path": "/*"}}
    else:
        included = _path_set(_list(policy, "includedPaths"), "includedPaths")
    for path in included:
        if path in excluded:
            raise bad_request(
                f"The indexing path '{shown(included[path]['path'])}' is both included and excluded. Remove one."
            )
    if root not in included and root not in excluded:
        raise bad_request(ROOT_MISSING)
    return included, excluded


def _path_set(entries: list[Any], name: str) -> dict[IndexPath, Any]:
    is_included = name == "includedPaths"
    paths: dict[IndexPath, Any] = {}
    for entry in entries:
        entry = members(entry, name, {"path", "indexes"} if is_included else {"path"})
        text = _path_of(entry, name)
        path = parse_index_path(text, allows_tuple=is_included)
        if path in paths:
            raise bad_request(f"The indexing path '{shown(text)}' stands twice in {name}. Remove one of the two.")
        indexes = entry.get("indexes")
        if indexes is not None:
            _check_old_indexes(indexes)
        if path.is_root:
            paths[path] = {"path": "/*"}  # the older form of the root and its indexes are not echoed
        else:
            paths[path] = {"path": text} if indexes is None else {"path": text, "indexes": indexes}
    return paths


def _path_of(entry: Mapping[str, Any], what: str) -> str:
    text = entry.get("path")
    if type(text) is not str:
        raise bad_request(f"{INVALID_INPUT}: every entry of {what} needs a 'path', a string.")
    return text


def _check_old_indexes(indexes: Any) -> None:
    """The form before 2018: kind, type and precision per path. The one index serves all of them."""
    if type(indexes) is not list:
        raise bad_request(f"{INVALID_INPUT}: indexes of an included path must be a list.")
    for index in indexes:
        index = members(index, "indexes", {"kind", "dataType", "precision"})
        if index.get("kind", "Range") not in _OLD_KINDS or index.get("dataType", "String") not in _OLD_TYPES:
            raise bad_request(
                f"{INVALID_INPUT}: the kind of an index is one of {', '.join(_OLD_KINDS)}, "
                f"its dataType one of {', '.join(_OLD_TYPES)}."
            )
        precision = index.get("precision")
        if precision is not None and (type(precision) is not int or not -1 <= precision <= 100):
            raise bad_request(f"{INVALID_INPUT}: the precision of an index is -1 (the maximum) to 100.")


def _add_default_exclusions(
    included: Mapping[IndexPath, Any], excluded: dict[IndexPath, Any], vectors: VectorPolicy | None
) -> set[IndexPath]:
    """Exclude vectors, which a range index cannot use, and the etag, unless the policy names them itself. Returns the
    paths that do not count as explicit, named or added, so that an answered policy parses to the same one."""
    free = {IndexPath((), SUBTREE)}
    for text in vectors.embeddings if vectors is not None else ():
        steps = parse_index_path(text, allows_bare=True).steps
        named = {IndexPath(steps, SUBTREE), IndexPath((*steps, None), SCALAR), IndexPath((*steps, None), SUBTREE)}
        free.add(IndexPath(steps, SUBTREE))
        if named.isdisjoint(included) and IndexPath(steps, SUBTREE) not in excluded:
            excluded[IndexPath(steps, SUBTREE)] = {"path": f"{text}/*"}
    etag = parse_index_path(ETAG_PATH)
    if etag not in included and etag not in excluded:
        excluded[etag] = {"path": ETAG_PATH}
    return free | {etag}


def _composites(policy: Mapping[str, Any], echo: dict[str, Any]) -> tuple[CompositeIndex, ...]:
    if "compositeIndexes" not in policy:
        return ()
    composites: dict[str, CompositeIndex] = {}
    for entries in _list(policy, "compositeIndexes"):
        if type(entries) is not list:
            raise bad_request(f"{INVALID_INPUT}: every composite index must be a list of paths with orders.")
        composite = CompositeIndex.parse(entries)
        if composite.name in composites:
            raise bad_request(f"The composite index {shown(composite.name)} is defined twice. Remove one of the two.")
        composites[composite.name] = composite
    if sum(len(composite.paths) for composite in composites.values()) > limits.COMPOSITE_PATHS_TOTAL_MAX:
        raise bad_request(f"The composite indexes have more than {limits.COMPOSITE_PATHS_TOTAL_MAX} paths in all.")
    echo["compositeIndexes"] = policy["compositeIndexes"]
    return tuple(composites.values())


def _spatial(policy: Mapping[str, Any], echo: dict[str, Any], geospatial: str | None) -> None:
    if "spatialIndexes" not in policy:
        return
    seen: set[Steps] = set()
    echoed: list[dict[str, Any]] = []
    for entry in _list(policy, "spatialIndexes"):
        entry = members(entry, "spatialIndexes", {"path", "types", "boundingBox"})
        text = _path_of(entry, "spatialIndexes")
        path = parse_index_path(text)
        if path.is_root or path.steps in seen:
            raise bad_index_path(text, 0)
        seen.add(path.steps)  # however it ends, the shapes at this path are indexed
        types = entry.get("types", list(SHAPE_KINDS))
        if type(types) is not list or not types or not all(kind in SHAPE_KINDS for kind in types):
            raise bad_request(f"{INVALID_INPUT}: types of a spatial index are some of {', '.join(SHAPE_KINDS)}.")
        _check_bounding_box(entry.get("boundingBox"), geospatial)
        echoed.append({**entry, "types": types})
    echo["spatialIndexes"] = echoed


def _search_indexes(policy: Mapping[str, Any], echo: dict[str, Any], name: str, check: Callable[[Any], None]) -> None:
    if name not in policy:
        return
    seen: set[str] = set()
    for entry in _list(policy, name):
        check(entry)
        if entry["path"] in seen:
            raise bad_request(f"The path {shown(entry['path'])} stands twice in {name}. Remove one of the two.")
        seen.add(entry["path"])
    echo[name] = policy[name]


def _check_bounding_box(box: Any, geospatial: str | None) -> None:
    if box is None and geospatial is None:
        return
    if geospatial == "Geography":
        if box is not None:
            raise bad_request(
                f"{INVALID_INPUT}: a boundingBox goes with geospatialConfig.type Geometry only, not Geography."
            )
        return
    box = members(box, "boundingBox of a spatial index on Geometry", {"xmin", "ymin", "xmax", "ymax"})
    sides = [box.get(name) for name in ("xmin", "ymin", "xmax", "ymax")]
    if not all(type(side) is int or type(side) is float for side in sides):
        raise bad_request(f"{INVALID_INPUT}: a boundingBox has the numbers xmin, ymin, xmax and ymax.")
    if sides[0] >= sides[2] or sides[1] >= sides[3]:
        raise bad_request(f"{INVALID_INPUT}: xmin and ymin of a boundingBox must be less than xmax and ymax.")
