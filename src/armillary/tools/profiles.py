"""Profiles: the figures of the editions of Microsoft's articles on partitioning, as defaults of settings. A profile
gives values of settings and nothing else, so that each of them can be given otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TODAY: Final = "today"

# By option. In all editions one partition stores 10 GB and carries 10,000 RU/s (t), so that one partition key has at
# most 10 GB; a container gets T / t partitions; requests beyond the provisioned throughput are refused.
PROFILES: Final[Mapping[str, Mapping[str, str]]] = {
    TODAY: {},
    "2016": {
        "throughput": "enforce",
        "partition-throughput": "10000",
        "partition-headroom": "off",
        "partition-storage": "10GB",
        "logical-partition-storage": "10GB",
        "partitioned-throughput-min": "10100",  # of partitioned collections; those of a single partition end at 10,000
        "throughput-max": "250000",
    },
    "2017": {
        "throughput": "enforce",
        "partition-throughput": "10000",
        "partition-headroom": "off",
        "partition-storage": "10GB",
        "logical-partition-storage": "10GB",
        "partitioned-throughput-min": "2500",
        # The article names no most: the product's own remains.
    },
    "2018": {
        "throughput": "enforce",
        "partition-throughput": "10000",
        "partition-headroom": "off",
        "partition-storage": "10GB",
        "logical-partition-storage": "10GB",
        "partitioned-throughput-min": "1000",
        "throughput-max": "100000",
    },
}


def description(profile: str, sources: Mapping[str, str]) -> str:
    """What a profile sets, and which of it was given otherwise: for the log. `sources`: where settings come from."""
    own = PROFILES[profile]
    given = [name for name in own if sources.get(name) != f"profile {profile}"]
    text = ", ".join(f"{name} {value}" for name, value in own.items() if name not in given)
    otherwise = f"; set otherwise: {', '.join(given)}" if given else ""
    return f"profile {profile}: {text}{otherwise}"


def table(defaults: Mapping[str, str]) -> str:
    """The figures of all profiles, as a table of the documentation; a test compares it with docs/partitioning.md.
    `defaults`: of the settings, as text."""
    names = list(dict.fromkeys(name for values in PROFILES.values() for name in values))
    rows = [["Setting", *(f"`{profile}`" for profile in PROFILES)], ["---"] * (len(PROFILES) + 1)]
    rows += [[f"`--{name}`", *(values.get(name, defaults[name]) for values in PROFILES.values())] for name in names]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
