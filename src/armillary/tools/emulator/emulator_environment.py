"""The environment variables and arguments of the official emulator's images, translated to settings: of the image that
was the only one until 2024 (AZURE_COSMOS_EMULATOR_*), and of its successor, vNext (PROTOCOL, PORT and so on).

A variable that cannot be honoured is refused with a sentence. One that changes nothing here and is harmless to its user
is named in the log. docs/docker.md has all of them as a table; a test compares it with the tables here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from armillary.tools.emulator import emulator_arguments
from armillary.tools.parsing import truth
from armillary.tools.resolve import Given

PREFIX: Final = "AZURE_COSMOS_EMULATOR_"
ORIGIN: Final = "emulator's variables"
HEALTH_PORT: Final = 8080
EXPLORER_PORT: Final = 1234
_LOG_LEVELS: Final = {"quiet": "error", "error": "error", "warn": "warning", "info": "info", "debug": "debug"}
_LOG_LEVELS_OURS: Final = ("warning",)
_MONGO_OLD: Final = ("3.2", "3.6", "4.0")
_MONGO_OLDEST: Final = "4.2"


@dataclass
class Translation:
    """What some variables mean here."""

    given: dict[str, Given] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # for the log
    problems: list[str] = field(default_factory=list)

    def use(self, name: str, source: str, value: object) -> None:
        before = self.given.get(name)
        if before is not None and before.value != value:
            self.problems.append(f"{before.source} and {source} say different things. Give only one of them.")
        self.given[name] = Given(source, ORIGIN, value)

    def mongo_version(self, source: str, version: str) -> None:
        if version in _MONGO_OLD:
            told = f"the MongoDB API reports {_MONGO_OLDEST}, the oldest release that it can, in the place of {version}"
            self.notes.append(f"{source}: {told}")
        self.use("mongo-server-version", source, _MONGO_OLDEST if version in _MONGO_OLD else version)

    def truth(self, source: str, text: str) -> bool | None:
        try:
            return truth(text)
        except ValueError:
            self.problems.append(f"{source} is {text!r}; expected true or false.")
            return None


Rule = Callable[[Translation, str, str], None]  # translates a value; `source` names the variable or argument


def translate(environment: Mapping[str, str], arguments: Mapping[str, str]) -> Translation:
    """`arguments`: of vNext's, by the names of their variables: they come first."""
    result = Translation()
    present = {name: (name, value) for name, value in environment.items() if name in RULES and value != ""}
    present |= {name: (f"--{VNEXT_ARGUMENTS[name]}", value) for name, value in arguments.items()}
    for name, (source, value) in present.items():
        RULES[name](result, source, value)
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in RULES:
            result.problems.append(
                f"The variable {name} of the emulator's image is not known here. Remove it; docs/docker.md lists those "
                "that are honoured."
            )
    _check_protocols({name: value for name, (_, value) in present.items()}, result)
    return result


def defaults(translation: Translation) -> dict[str, Given]:
    """The ports that only the emulator's images have. The others have the same numbers by default."""
    found = {"health-port": Given("health-port of armillary emulator", ORIGIN, HEALTH_PORT)}
    if "portal" not in translation.given:
        found["portal-port"] = Given("portal-port of armillary emulator", ORIGIN, EXPLORER_PORT)
    return found


def _setting(name: str) -> Rule:
    return lambda result, source, value: result.use(name, source, value)


def _note(text: str) -> Rule:
    return lambda result, source, value: result.notes.append(f"{source}: {text}")


def _refused_if_true(text: str) -> Rule:
    def rule(result: Translation, source: str, value: str) -> None:
        if result.truth(source, value):
            result.problems.append(f"{source} is true: {text}")

    return rule


def _served(result: Translation, source: str, value: str) -> None:
    """Doors that are always open."""
    if result.truth(source, value) is False:
        result.notes.append(f"{source}: the API is served all the same; its port need not be published")


def _partition_count(result: Translation, source: str, value: str) -> None:
    if not value.isdigit():
        result.problems.append(f"{source} is {value!r}; expected a number.")
    result.notes.append(f"{source}: partitions are not allocated in advance; each container has those that it needs")


def _persistence(result: Translation, source: str, value: str) -> None:
    is_kept = result.truth(source, value)
    if is_kept is not None:
        result.use("memory", source, not is_kept)


def _address(result: Translation, source: str, value: str) -> None:
    """HOST, HOST:PORT or a URL."""
    result.use("advertise", source, urlsplit(value).netloc if "://" in value else value)


def _mongo_version(result: Translation, source: str, value: str) -> None:
    result.mongo_version(source, value)


def _arguments(result: Translation, source: str, value: str) -> None:
    emulator_arguments.translate(value, source, result)


def _protocol(result: Translation, source: str, value: str) -> None:
    if value not in ("http", "https", "https-insecure"):
        result.problems.append(f"{source} is {value!r}; expected http, https or https-insecure.")
    elif value != "http":
        result.use("require-tls", source, True)


def _explorer(result: Translation, source: str, value: str) -> None:
    if result.truth(source, value) is False:
        result.use("portal", source, "off")


def _log_level(result: Translation, source: str, value: str) -> None:
    level = _LOG_LEVELS.get(value.lower(), value.lower() if value.lower() in _LOG_LEVELS_OURS else None)
    if value.lower() == "trace":
        level = "debug"
        result.notes.append(f"{source}: there is no level below debug")
    if level is None:
        result.problems.append(f"{source} is {value!r}; expected one of {', '.join(_LOG_LEVELS)}, trace.")
    else:
        result.use("log-level", source, level)


def _certificate(result: Translation, source: str, value: str) -> None:
    if Path(value).suffix.lower() in (".pfx", ".p12"):
        result.problems.append(
            f"{source} names a PKCS 12 file, which is not read here. Make a PEM file with certificate and key of it: "
            f"openssl pkcs12 -in {value} -out certificate.pem -nodes"
        )
        return
    result.use("tls-certificate", source, value)
    result.use("tls-key", source, value)


def _certificate_secret(result: Translation, source: str, value: str) -> None:
    result.problems.append(f"{source} is the password of a PKCS 12 file. Give CERT_PATH a PEM file without a password.")


def _check_protocols(values: Mapping[str, str], result: Translation) -> None:
    protocol, explorer = values.get("PROTOCOL", "http"), values.get("EXPLORER_PROTOCOL")
    if explorer == "http" and protocol != "http":
        result.problems.append(
            "EXPLORER_PROTOCOL is http and PROTOCOL is not: the portal has the protocol of the account. Leave it out."
        )


_TRACING: Final = "traces and metrics are not exported by the image. /_armillary/metrics has metrics for Prometheus."
RULES: Final[Mapping[str, Rule]] = {
    f"{PREFIX}PARTITION_COUNT": _partition_count,
    f"{PREFIX}ENABLE_DATA_PERSISTENCE": _persistence,
    f"{PREFIX}IP_ADDRESS_OVERRIDE": _address,
    f"{PREFIX}KEY": _setting("key"),
    f"{PREFIX}ARGS": _arguments,
    f"{PREFIX}ENABLE_MONGODB_ENDPOINT": _mongo_version,
    f"{PREFIX}ENABLE_GREMLIN_ENDPOINT": _served,
    f"{PREFIX}ENABLE_TABLE_ENDPOINT": _served,
    f"{PREFIX}ENABLE_CASSANDRA_ENDPOINT": _refused_if_true("there is no Cassandra API."),
    "PROTOCOL": _protocol,
    "PORT": _setting("sql-port"),
    "ENABLE_EXPLORER": _explorer,
    "EXPLORER_PORT": _setting("portal-port"),
    "EXPLORER_PROTOCOL": lambda result, source, value: _protocol(Translation(problems=result.problems), source, value),
    "GATEWAY_PUBLIC_ENDPOINT": _address,
    "KEY_FILE": _setting("key-file"),
    "DATA_PATH": _setting("data"),
    "CERT_PATH": _certificate,
    "CERT_SECRET": _certificate_secret,
    "LOG_LEVEL": _log_level,
    "ENABLE_OTLP_EXPORTER": _refused_if_true(_TRACING),
    "ENABLE_CONSOLE_EXPORTER": _refused_if_true(_TRACING),
    "ENABLE_TELEMETRY": _note("nothing is sent to Microsoft or to anyone else"),
}
# The arguments of vNext's image, by the variable that says the same. Those that `armillary serve` has too are its own.
VNEXT_ARGUMENTS: Final[Mapping[str, str]] = {
    "PROTOCOL": "protocol",
    "PORT": "port",
    "ENABLE_EXPLORER": "enable-explorer",
    "EXPLORER_PORT": "explorer-port",
    "EXPLORER_PROTOCOL": "explorer-protocol",
    "DATA_PATH": "data-path",
    "CERT_PATH": "cert-path",
    "CERT_SECRET": "cert-secret",
    "ENABLE_OTLP_EXPORTER": "enable-otlp",
    "ENABLE_CONSOLE_EXPORTER": "enable-console",
    "ENABLE_TELEMETRY": "enable-telemetry",
    "LOG_LEVEL": "log-level",
}
