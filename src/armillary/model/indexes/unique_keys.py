"""Unique keys: values that no two items of one logical partition may share. Set when a container is created and never
changed; `partition` looks up the holder of a value under `layout.unique_key`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from armillary import limits
from armillary.errors import bad_request
from armillary.model.encoding import encode_value
from armillary.model.indexes.index_paths import BARE, parse_index_path

# Longer values are stored as their digest, to bound the length of keys. No encoded value begins with this byte.
_VALUES_BYTES_MAX = 512
_DIGEST_MARK = b"\xff"


@dataclass(frozen=True, slots=True)
class UniqueKeyPolicy:
    paths: tuple[tuple[str, ...], ...]  # as given, per constraint
    steps: tuple[tuple[tuple[str, ...], ...], ...]

    @classmethod
    def parse(cls, given: Any) -> UniqueKeyPolicy:
        """From a container's `uniqueKeyPolicy`; None or absent means no constraint."""
        if given is None:
            return NO_UNIQUE_KEYS
        if type(given) is not dict or set(given) - {"uniqueKeys"}:
            raise bad_request('uniqueKeyPolicy must be {"uniqueKeys": [{"paths": ["/a", "/b"]}]} and nothing more.')
        keys = given.get("uniqueKeys")
        if keys is None:
            return NO_UNIQUE_KEYS
        if type(keys) is not list:
            raise bad_request('uniqueKeyPolicy.uniqueKeys must be a list of {"paths": [...]}.')
        if len(keys) > limits.UNIQUE_KEYS_MAX:
            raise bad_request(
                f"The number of unique keys, {len(keys)}, exceeds the maximum per container, {limits.UNIQUE_KEYS_MAX}."
            )
        parsed = tuple(_parse_key(key) for key in keys)
        if len({frozenset(steps) for _, steps in parsed}) < len(parsed):
            raise bad_request("Two unique keys have the same paths. Remove one of them.")
        return cls(tuple(paths for paths, _ in parsed), tuple(steps for _, steps in parsed))

    def to_json(self) -> dict[str, Any]:
        return {"uniqueKeys": [{"paths": list(paths)} for paths in self.paths]}

    @property
    def meaning(self) -> frozenset[frozenset[tuple[str, ...]]]:
        """Equal for two policies that demand the same: neither spelling nor order of paths matter."""
        return frozenset(frozenset(steps) for steps in self.steps)

    @property
    def count(self) -> int:
        return len(self.paths)

    def values(self, document: Mapping[str, Any]) -> list[bytes]:
        """For each constraint the bytes that must be unique within the logical partition. A missing path counts as
        null, so that two items that lack it conflict."""
        return [_encoded(document, steps) for steps in self.steps]


NO_UNIQUE_KEYS = UniqueKeyPolicy((), ())


def _parse_key(key: Any) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    if type(key) is not dict or set(key) != {"paths"} or type(key["paths"]) is not list:
        raise bad_request('A unique key must be {"paths": ["/a", "/b"]} and nothing more.')
    paths = key["paths"]
    if not 1 <= len(paths) <= limits.UNIQUE_KEY_PATHS_MAX:
        raise bad_request(f"A unique key has 1 to {limits.UNIQUE_KEY_PATHS_MAX} paths, not {len(paths)}.")
    steps: list[tuple[str, ...]] = []
    for path in paths:
        if type(path) is not str:
            raise bad_request("The paths of a unique key must be strings such as '/a/b'.")
        parsed = parse_index_path(path, allows_bare=True)
        names = tuple(step for step in parsed.steps if step is not None)
        if parsed.ending != BARE or len(names) < len(parsed.steps):
            raise bad_request(f"The unique key path '{path}' may not contain a wildcard.")
        if names in steps:
            raise bad_request(f"The unique key path '{path}' is given twice in one key.")
        steps.append(names)
    return tuple(paths), tuple(steps)


def _encoded(document: Mapping[str, Any], paths: tuple[tuple[str, ...], ...]) -> bytes:
    values = b"".join([encode_value(_value(document, steps)) for steps in paths])
    return values if len(values) <= _VALUES_BYTES_MAX else _DIGEST_MARK + sha256(values).digest()


def _value(document: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if type(document) is not dict:
            return None
        document = document.get(step)
    return document
