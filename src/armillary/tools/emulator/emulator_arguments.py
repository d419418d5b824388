"""AZURE_COSMOS_EMULATOR_ARGS: the command line of the emulator for Windows (`/Port=8081 /EnableMongoDbEndpoint=4.0`),
which its image takes as one variable, translated to settings. Arguments that mean nothing here are refused by name.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final, Protocol


class Translated(Protocol):
    """Where the meaning of arguments is put: `emulator_environment.Translation`."""

    notes: list[str]
    problems: list[str]

    def use(self, name: str, source: str, value: object) -> None: ...
    def mongo_version(self, source: str, version: str) -> None: ...


# Arguments with a value, and the setting that they give; without case.
SETTINGS: Final[Mapping[str, str]] = {
    "port": "sql-port",
    "mongoport": "mongo-port",
    "gremlinport": "gremlin-port",
    "tableport": "table-port",
    "datapath": "data",
    "key": "key",
    "keyfile": "key-file",
    "consistency": "consistency",
}
# Arguments that change nothing here, and why that is harmless.
HARMLESS: Final[Mapping[str, str]] = {
    "partitioncount": "partitions are not allocated in advance",
    "defaultpartitioncount": "partitions are made by the throughput and size of containers",
    "enablegremlinendpoint": "the Gremlin API is served always",
    "enabletableendpoint": "the Table API is served always",
    "allownetworkaccess": "the image listens on all addresses",
    "nofirewall": "no firewall is changed",
    "noui": "no window is opened",
    "noexplorer": "no browser is opened",
    "enablepreview": "there are no previews",
    "disableaadauthentication": "tokens of Azure AD are accepted on loopback only",
}


def translate(text: str, variable: str, result: Translated) -> None:
    try:
        words = shlex.split(text)
    except ValueError:
        result.problems.append(f"{variable} has a quote that is not closed.")
        return
    for word in words:
        name, _, value = word.lstrip("/-").partition("=")
        source, lower = f"{variable} /{name}", name.lower()
        if word[:1] not in ("/", "-") or not name:
            result.problems.append(f"{variable} has {word!r}; expected arguments such as /Port=8081.")
        elif lower in SETTINGS and value:
            result.use(SETTINGS[lower], source, value)
        elif lower in HARMLESS:
            result.notes.append(f"{source}: {HARMLESS[lower]}")
        elif lower == "enablemongodbendpoint":
            result.mongo_version(source, value)
        elif lower == "enableratelimiting":
            result.use("throughput", source, "enforce")
        elif lower == "disableratelimiting":
            result.use("throughput", source, "off")
        elif lower in SETTINGS:
            result.problems.append(f"{source} needs a value: /{name}=VALUE.")
        else:
            result.problems.append(f"{source} is not known here. Remove it; docs/docker.md lists those that are.")
