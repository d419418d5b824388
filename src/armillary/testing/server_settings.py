"""The settings that a test gives its server: those of `armillary serve` in Python's spelling (partition_storage="1MB").
Unknown ones are refused by name, and so are those that the tests' server has to set itself.
"""

from __future__ import annotations

import difflib
import secrets
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from armillary.errors import bad_request
from armillary.tools.options import Option
from armillary.tools.settings import ACCEPTED, OPTIONS

# What a server for tests has for itself, with the reason.
_OWN: Final = {
    **dict.fromkeys(("data", "memory", "durability", "data-permissions"), "it keeps all data in memory"),
    **dict.fromkeys(("sql-port", "table-port", "mongo-port", "gremlin-port"), "it listens on free ports"),
    **dict.fromkeys(("host", "advertise"), "it listens on 127.0.0.1"),
    **dict.fromkeys(("control-key", "stop-with-stdin"), "it is set for each server"),
    **dict.fromkeys(("require-tls", "tls-client-ca"), "every port serves TLS, and its own requests come without"),
    **dict.fromkeys(ACCEPTED.keys() - OPTIONS.keys(), "give the secret itself"),
    "config": "give the settings themselves",
}
_CLUSTER: Final = ("cluster", "node")


def server_options(settings: Mapping[str, Any]) -> dict[str, object]:
    """By option name (partition-storage), as a command line gives them. A setting that is None has its default."""
    return {_known(name): value for name, value in settings.items() if value is not None}


def server_arguments(settings: Mapping[str, Any]) -> list[str]:
    """The same as arguments of `armillary serve`, but for secrets: every user of the machine can read those (ps)."""
    arguments = []
    for name, value in server_options(settings).items():
        if OPTIONS[name].is_secret:
            continue
        if isinstance(value, bool) and OPTIONS[name].is_flag:
            arguments.append(f"--{name}" if value else f"--no-{name}")
        else:
            arguments.append(f"--{name}={value}")
    return arguments


def secret_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The secrets as variables of the environment."""
    secrets_given = {name: value for name, value in server_options(settings).items() if OPTIONS[name].is_secret}
    return {OPTIONS[name].variable: str(value) for name, value in secrets_given.items()}


def environment_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The same as variables of the environment."""
    given = server_options(settings)
    return {
        OPTIONS[name].variable: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }


def new_control_key() -> str:
    return b64encode(secrets.token_bytes(32)).decode("ascii")


def _known(name: str) -> str:
    option = name.replace("_", "-")
    if option in _OWN:
        raise bad_request(f"The setting {name} is not one that a test gives its server: {_OWN[option]}.")
    if option.startswith(_CLUSTER):
        raise bad_request(f"The setting {name} is not one that a test gives its server: it is no node of a cluster.")
    if option not in OPTIONS:
        near = difflib.get_close_matches(option, _offered(OPTIONS), n=1)
        hint = f"Did you mean {near[0].replace('-', '_')}?" if near else "docs/settings.md lists the settings."
        raise bad_request(f"The setting {name} is not known. {hint}")
    return option


def _offered(options: Mapping[str, Option]) -> list[str]:
    return [name for name in options if name not in _OWN and not name.startswith(_CLUSTER)]
