"""The policies of a container other than its partition key, index and unique keys: validated, stored and answered. Also
the properties that a replacement of the container may not change. Vector and full-text policies are in
`model/indexes/search_policies.py`; policies are put into effect elsewhere: expiry in `partition`, computed properties
in the query language.

Texts in the service's words are those that the clients' own tests look for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from armillary import limits
from armillary.errors import Failure, Kind, bad_request
from armillary.model.indexes.index_paths import is_plain_path
from armillary.model.indexes.search_policies import FullTextPolicy, VectorPolicy
from armillary.model.indexes.unique_keys import UniqueKeyPolicy
from armillary.model.items import SYSTEM_PROPERTIES
from armillary.model.json_members import INVALID_INPUT, members, shown
from armillary.model.keys import PartitionKeyDefinition, parse_path

DEFAULT_CONFLICT_RESOLUTION = {
    "mode": "LastWriterWins",
    "conflictResolutionPath": "/_ts",
    "conflictResolutionProcedure": "",
}
_CONTAINER_PROPERTIES = frozenset(
    (
        "id",
        "partitionKey",
        "indexingPolicy",
        "uniqueKeyPolicy",
        "defaultTtl",
        "analyticalStorageTtl",
        "computedProperties",
        "vectorEmbeddingPolicy",
        "fullTextPolicy",
        "conflictResolutionPolicy",
        "geospatialConfig",
        "changeFeedPolicy",
        "clientEncryptionPolicy",
        "materializedViewDefinition",
        "statistics",
    )
)
_COMPUTED_QUERY = re.compile(r"\s*select\s+value\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ContainerPolicies:
    """All optional parts of a container's definition, as answered."""

    default_ttl: int | None
    analytical_ttl: int | None
    computed_properties: tuple[tuple[str, str], ...]  # name, query
    vector: VectorPolicy | None
    full_text: FullTextPolicy | None
    conflict_resolution: Mapping[str, Any]
    geospatial: str  # Geography or Geometry
    change_feed_minutes: int | None
    encryption: Mapping[str, Any] | None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ContainerPolicies:
        """From the body of a container's creation or replacement; properties that begin with `_` are the server's."""
        for name in body:
            if name not in _CONTAINER_PROPERTIES and not name.startswith("_"):
                raise bad_request(f"{INVALID_INPUT}: a container has no property '{shown(name)}'.")
        if body.get("materializedViewDefinition") is not None:
            raise Failure(
                Kind.UNSUPPORTED,
                "Global secondary indexes (materializedViewDefinition) are not offered. Create an ordinary container "
                "and fill it from the change feed.",
            )
        return cls(
            _ttl(body, "defaultTtl", allows_zero=False),
            _ttl(body, "analyticalStorageTtl", allows_zero=True),
            _computed_properties(body.get("computedProperties")),
            VectorPolicy.parse(body.get("vectorEmbeddingPolicy")),
            FullTextPolicy.parse(body.get("fullTextPolicy")),
            _conflict_resolution(body.get("conflictResolutionPolicy")),
            _geospatial(body.get("geospatialConfig")),
            _change_feed(body.get("changeFeedPolicy")),
            _encryption(body.get("clientEncryptionPolicy")),
        )

    def to_json(self) -> dict[str, Any]:
        """The members of these policies in a container's answer."""
        answer: dict[str, Any] = {}
        if self.default_ttl is not None:
            answer["defaultTtl"] = self.default_ttl
        if self.analytical_ttl is not None:
            answer["analyticalStorageTtl"] = self.analytical_ttl
        answer["conflictResolutionPolicy"] = dict(self.conflict_resolution)
        answer["geospatialConfig"] = {"type": self.geospatial}
        if self.computed_properties:
            answer["computedProperties"] = [{"name": name, "query": query} for name, query in self.computed_properties]
        if self.vector is not None:
            answer["vectorEmbeddingPolicy"] = self.vector.given
        if self.full_text is not None:
            answer["fullTextPolicy"] = self.full_text.given
        if self.change_feed_minutes is not None:
            answer["changeFeedPolicy"] = {"retentionDuration": self.change_feed_minutes}
        if self.encryption is not None:
            answer["clientEncryptionPolicy"] = dict(self.encryption)
        return answer


def check_replacement(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to change what is fixed at a container's creation. Both are definitions as answered. Paths are compared by
    the names that they mean: `/pk` is `/"pk"`."""
    if new["id"] != old["id"]:
        raise bad_request(f"The id of a container cannot be changed: '{shown(old['id'])}' is not '{shown(new['id'])}'.")
    meanings: tuple[tuple[str, str, Callable[[Any], object]], ...] = (
        ("partitionKey", "Partition key paths, kind and version", _key_meaning),
        ("uniqueKeyPolicy", "Unique keys", lambda given: UniqueKeyPolicy.parse(given).meaning),
        ("clientEncryptionPolicy", "The client encryption policy", lambda given: given or None),
    )
    for name, what, meaning in meanings:
        if meaning(new.get(name)) != meaning(old.get(name)):
            raise bad_request(
                f"{what} cannot be changed after a container was created ({name}). Create a new container and copy the "
                "items."
            )
    _check_kept(old, new, "vectorEmbeddingPolicy", "vectorEmbeddings", "existing embedding policy")
    _check_kept(old, new, "indexingPolicy", "vectorIndexes", "existing vector indexing policy")


def _key_meaning(given: Any) -> object:
    if given is None:
        return None
    key = PartitionKeyDefinition.parse(given)
    return key.steps, key.kind, key.version, key.is_system


def _check_kept(old: Mapping[str, Any], new: Mapping[str, Any], policy: str, entries: str, what: str) -> None:
    """Entries may be added and removed, but not changed."""
    before = {parse_path(entry["path"]): entry for entry in (old.get(policy) or {}).get(entries) or ()}
    for entry in (new.get(policy) or {}).get(entries) or ():
        if {**before.get(parse_path(entry["path"]), entry), "path": entry["path"]} != entry:
            raise bad_request(
                f"Paths in {what} cannot be modified in Collection Replace: {entry['path']}. Remove it in one step and "
                "add it again in another."
            )


def _ttl(body: Mapping[str, Any], name: str, *, allows_zero: bool) -> int | None:
    ttl = body.get(name)
    if ttl is None:
        return None
    if type(ttl) is float and ttl.is_integer() and abs(ttl) <= limits.TTL_SECONDS_MAX:
        ttl = int(ttl)
    if type(ttl) is int and (ttl == -1 or (0 if allows_zero else 1) <= ttl <= limits.TTL_SECONDS_MAX):
        return ttl
    raise bad_request(
        f"The input ttl '{shown(ttl)}' of {name} is invalid. Ensure to provide a nonzero positive integer up to "
        f"{limits.TTL_SECONDS_MAX}, or -1 for no expiry by default."
    )


def _computed_properties(given: Any) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    if type(given) is not list:
        raise bad_request(f"{INVALID_INPUT}: computedProperties must be a list of names with queries.")
    if len(given) > limits.COMPUTED_PROPERTIES_MAX:
        raise bad_request(f"A container has at most {limits.COMPUTED_PROPERTIES_MAX} computed properties.")
    properties: dict[str, str] = {}
    for entry in given:
        entry = members(entry, "computedProperties", {"name", "query"})
        name, query = entry.get("name"), entry.get("query")
        if type(name) is not str or not name or name == "id" or name in SYSTEM_PROPERTIES:
            raise bad_request(f"{INVALID_INPUT}: a computed property cannot have the name '{shown(name)}'.")
        if name in properties:
            raise bad_request(f"{INVALID_INPUT}: the computed property '{shown(name)}' is defined twice.")
        if type(query) is not str or not _COMPUTED_QUERY.match(query):
            raise bad_request(
                f"{INVALID_INPUT}: the query of the computed property '{shown(name)}' must begin with SELECT VALUE."
            )
        properties[name] = query
    return tuple(properties.items())


def _conflict_resolution(given: Any) -> dict[str, Any]:
    if given is None:
        return dict(DEFAULT_CONFLICT_RESOLUTION)
    given = members(given, "conflictResolutionPolicy", set(DEFAULT_CONFLICT_RESOLUTION))
    mode = given.get("mode", "LastWriterWins")
    path, procedure = given.get("conflictResolutionPath"), given.get("conflictResolutionProcedure")
    if type(mode) is not str or mode.lower() not in ("lastwriterwins", "custom"):
        raise bad_request(f"{INVALID_INPUT}: conflictResolutionPolicy.mode must be LastWriterWins or Custom.")
    if mode.lower() == "custom":
        if path:
            raise bad_request(f"{INVALID_INPUT}: conflictResolutionPath goes with the mode LastWriterWins only.")
        if procedure is not None and type(procedure) is not str:
            raise bad_request(f"{INVALID_INPUT}: conflictResolutionProcedure must be the link of a stored procedure.")
        return {"mode": "Custom", "conflictResolutionPath": "", "conflictResolutionProcedure": procedure or ""}
    if procedure:
        raise bad_request(f"{INVALID_INPUT}: conflictResolutionProcedure goes with the mode Custom only.")
    if path and not is_plain_path(path):
        raise bad_request(f"{INVALID_INPUT}: conflictResolutionPath '{shown(path)}' is not a path such as /number.")
    return {**DEFAULT_CONFLICT_RESOLUTION, "conflictResolutionPath": path or "/_ts"}


def _geospatial(given: Any) -> str:
    if given is None:
        return "Geography"
    kind = members(given, "geospatialConfig", {"type"}).get("type")
    if kind not in ("Geography", "Geometry"):
        raise bad_request(f"{INVALID_INPUT}: geospatialConfig.type must be Geography or Geometry, not '{shown(kind)}'.")
    return str(kind)


def _change_feed(given: Any) -> int | None:
    if given is None:
        return None
    minutes = members(given, "changeFeedPolicy", {"retentionDuration"}).get("retentionDuration")
    if type(minutes) is not int or not 0 <= minutes <= limits.CHANGE_FEED_RETENTION_MINUTES_MAX:
        raise bad_request(
            f"{INVALID_INPUT}: changeFeedPolicy.retentionDuration must be a number of minutes from 0 to "
            f"{limits.CHANGE_FEED_RETENTION_MINUTES_MAX}, not '{shown(minutes)}'."
        )
    return minutes


def _encryption(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    given = members(given, "clientEncryptionPolicy", {"includedPaths", "policyFormatVersion"})
    version, listed = given.get("policyFormatVersion", 1), given.get("includedPaths")
    if type(version) is not int or version not in (1, 2):
        raise bad_request(f"{INVALID_INPUT}: clientEncryptionPolicy.policyFormatVersion must be 1 or 2.")
    if type(listed) is not list:
        raise bad_request(f"{INVALID_INPUT}: clientEncryptionPolicy.includedPaths must be a list.")
    seen: set[str] = set()
    for entry in listed:
        known = {"path", "clientEncryptionKeyId", "encryptionType", "encryptionAlgorithm"}
        entry = members(entry, "clientEncryptionPolicy.includedPaths", known)
        path = entry.get("path")
        if not is_plain_path(path) or path.count("/") != 1 or path in seen:
            raise bad_request(
                f"{INVALID_INPUT}: the encrypted path '{shown(path)}' must be top-level, such as /a, and unique."
            )
        seen.add(path)
        if type(entry.get("clientEncryptionKeyId")) is not str or not entry["clientEncryptionKeyId"]:
            raise bad_request(f"{INVALID_INPUT}: the encrypted path '{path}' lacks its clientEncryptionKeyId.")
        if entry.get("encryptionType") not in ("Deterministic", "Randomized"):
            raise bad_request(f"{INVALID_INPUT}: encryptionType of '{path}' must be Deterministic or Randomized.")
        if entry.get("encryptionAlgorithm") != "AEAD_AES_256_CBC_HMAC_SHA256":
            raise bad_request(f"{INVALID_INPUT}: encryptionAlgorithm of '{path}' must be AEAD_AES_256_CBC_HMAC_SHA256.")
        if path == "/id" and (version == 1 or entry["encryptionType"] != "Deterministic"):
            raise bad_request(
                f"{INVALID_INPUT}: /id can be encrypted only Deterministic and with policyFormatVersion 2."
            )
    return {"includedPaths": listed, "policyFormatVersion": version}
