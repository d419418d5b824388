"""Each variable and argument of the official emulator's images: what it sets here, what the log says of it, or why it
is refused. docs/docker.md says the same of each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from armillary.tools.cli import _parser
from armillary.tools.emulator.emulator_arguments import HARMLESS, SETTINGS
from armillary.tools.emulator.emulator_command import emulator_settings
from armillary.tools.emulator.emulator_environment import PREFIX, RULES, VNEXT_ARGUMENTS
from armillary.tools.settings import Settings

PAGE = (Path(__file__).parents[3] / "docs" / "docker.md").read_text("utf-8")
PARSER = _parser()
OWN_KEY = "QXJtaWxsYXJ5IHRlc3Qga2V5IG9mIG91ciBvd24u"
KEY_FILE = "{directory}/key"

# A variable, a value, and the attributes of the settings that follow from it.
HONOURED: list[tuple[str, str, dict[str, Any]]] = [
    (f"{PREFIX}ENABLE_DATA_PERSISTENCE", "true", {"is_in_memory": False}),
    (f"{PREFIX}ENABLE_DATA_PERSISTENCE", "false", {"is_in_memory": True}),
    (f"{PREFIX}IP_ADDRESS_OVERRIDE", "192.168.1.4", {"advertise": "192.168.1.4"}),
    (f"{PREFIX}KEY", OWN_KEY, {"key": OWN_KEY}),
    (f"{PREFIX}ENABLE_MONGODB_ENDPOINT", "7.0", {"mongo_version": "7.0"}),
    (f"{PREFIX}ENABLE_GREMLIN_ENDPOINT", "true", {}),
    (f"{PREFIX}ENABLE_TABLE_ENDPOINT", "true", {}),
    (f"{PREFIX}ENABLE_CASSANDRA_ENDPOINT", "false", {}),
    (f"{PREFIX}ARGS", "/Port=9000", {"sql_port": 9000}),
    ("PROTOCOL", "http", {"requires_tls": False}),
    ("PROTOCOL", "https", {"requires_tls": True}),
    ("PROTOCOL", "https-insecure", {"requires_tls": True}),
    ("PORT", "9001", {"sql_port": 9001}),
    ("ENABLE_EXPLORER", "true", {"portal": "login", "portal_port": 1234}),
    ("ENABLE_EXPLORER", "false", {"portal": "off", "portal_port": None}),
    ("EXPLORER_PORT", "9002", {"portal_port": 9002}),
    ("EXPLORER_PROTOCOL", "http", {"portal_port": 1234}),
    ("GATEWAY_PUBLIC_ENDPOINT", "https://cosmos.example:8443/", {"advertise": "cosmos.example:8443"}),
    ("KEY_FILE", KEY_FILE, {"key": OWN_KEY}),
    ("DATA_PATH", "elsewhere", {"directory": Path("elsewhere")}),
    ("CERT_PATH", "both.pem", {"tls_certificate": Path("both.pem"), "tls_key": Path("both.pem")}),
    ("LOG_LEVEL", "quiet", {"log_level": "error"}),
    ("LOG_LEVEL", "error", {"log_level": "error"}),
    ("LOG_LEVEL", "warn", {"log_level": "warning"}),
    ("LOG_LEVEL", "info", {"log_level": "info"}),
    ("LOG_LEVEL", "debug", {"log_level": "debug"}),
    ("ENABLE_OTLP_EXPORTER", "false", {}),
    ("ENABLE_CONSOLE_EXPORTER", "false", {}),
]
# What the log says; the attributes are checked as well.
NAMED: list[tuple[str, str, str, dict[str, Any]]] = [
    (f"{PREFIX}PARTITION_COUNT", "10", "partitions are not allocated in advance", {}),
    (f"{PREFIX}ENABLE_MONGODB_ENDPOINT", "3.2", "reports 4.2", {"mongo_version": "4.2"}),
    (f"{PREFIX}ENABLE_MONGODB_ENDPOINT", "3.6", "reports 4.2", {"mongo_version": "4.2"}),
    (f"{PREFIX}ENABLE_MONGODB_ENDPOINT", "4.0", "reports 4.2", {"mongo_version": "4.2"}),
    (f"{PREFIX}ENABLE_GREMLIN_ENDPOINT", "false", "served all the same", {}),
    (f"{PREFIX}ENABLE_TABLE_ENDPOINT", "false", "served all the same", {}),
    ("LOG_LEVEL", "trace", "no level below debug", {"log_level": "debug"}),
    ("ENABLE_TELEMETRY", "true", "nothing is sent", {}),
    ("ENABLE_TELEMETRY", "false", "nothing is sent", {}),
]
REFUSED: list[tuple[str, str, str]] = [
    (f"{PREFIX}PARTITION_COUNT", "many", "expected a number"),
    (f"{PREFIX}ENABLE_DATA_PERSISTENCE", "perhaps", "expected true or false"),
    (f"{PREFIX}KEY", "short", "expected base64"),
    (f"{PREFIX}ENABLE_MONGODB_ENDPOINT", "2.6", "expected"),
    (f"{PREFIX}ENABLE_GREMLIN_ENDPOINT", "perhaps", "expected true or false"),
    (f"{PREFIX}ENABLE_TABLE_ENDPOINT", "perhaps", "expected true or false"),
    (f"{PREFIX}ENABLE_CASSANDRA_ENDPOINT", "true", "no Cassandra API"),
    (f"{PREFIX}ARGS", "/Port='9000", "a quote that is not closed"),
    (f"{PREFIX}ARGS", "9000", "expected arguments such as"),
    (f"{PREFIX}SOMETHING", "1", "is not known here"),
    ("PROTOCOL", "ftp", "expected http, https"),
    ("PORT", "all", "expected"),
    ("ENABLE_EXPLORER", "perhaps", "expected true or false"),
    ("EXPLORER_PORT", "all", "expected"),
    ("EXPLORER_PROTOCOL", "ftp", "expected http, https"),
    ("KEY_FILE", "nowhere/key", "No such file"),
    ("CERT_PATH", "own.pfx", "openssl pkcs12 -in own.pfx"),
    ("CERT_PATH", "own.p12", "openssl pkcs12 -in own.p12"),
    ("CERT_SECRET", "x", "password"),
    ("LOG_LEVEL", "loud", "expected one of quiet"),
    ("ENABLE_OTLP_EXPORTER", "true", "not exported"),
    ("ENABLE_CONSOLE_EXPORTER", "true", "not exported"),
]
# Of AZURE_COSMOS_EMULATOR_ARGS.
ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("/Port=9000", {"sql_port": 9000}),
    ("/MongoPort=10250", {"mongo_port": 10250}),
    ("/GremlinPort=9003", {"gremlin_port": 9003}),
    ("/TablePort=9004", {"table_port": 9004}),
    ("/DataPath=elsewhere", {"directory": Path("elsewhere")}),
    (f"/Key={OWN_KEY}", {"key": OWN_KEY}),
    (f"/KeyFile={KEY_FILE}", {"key": OWN_KEY}),
    ("/Consistency=Strong", {"consistency": "Strong"}),
    ("/EnableMongoDbEndpoint=6.0", {"mongo_version": "6.0"}),
    ("/EnableRateLimiting", {"throughput": "enforce"}),
    ("/DisableRateLimiting", {"throughput": "off"}),
    ("/ENABLERATELIMITING -port=9000", {"throughput": "enforce", "sql_port": 9000}),
]


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    (tmp_path / "key").write_text(f"{OWN_KEY}\n")
    (tmp_path / "key").chmod(0o600)
    return str(tmp_path)


def settings_of(*arguments: str, **variables: str) -> tuple[Settings | None, list[str]]:
    given = vars(PARSER.parse_args(["emulator", *arguments]))
    assert given.pop("command") == "emulator"
    return emulator_settings(given, variables)


def check(found: tuple[Settings | None, list[str]], expected: dict[str, Any], named: str = "") -> None:
    settings, problems = found
    assert settings is not None, problems
    assert {name: getattr(settings, name) for name in expected} == expected
    told = [each for each in settings.warnings if named and named in each]
    assert bool(told) == bool(named), settings.warnings


def both_ways(variable: str, value: str) -> list[tuple[tuple[str, ...], dict[str, str]]]:
    """As a variable, and as an argument of the image if there is one."""
    argument = VNEXT_ARGUMENTS.get(variable)
    return [((), {variable: value}), *([((f"--{argument}={value}",), {})] if argument else [])]


@pytest.mark.parametrize(("variable", "value", "expected"), HONOURED)
def test_variables_that_are_honoured(variable: str, value: str, expected: dict[str, Any], key_file: str) -> None:
    for arguments, variables in both_ways(variable, value.format(directory=key_file)):
        found = settings_of(*arguments, **variables)
        check(found, expected)
        assert found[0] is not None and not found[0].warnings, "nothing to tell"


@pytest.mark.parametrize(("variable", "value", "named", "expected"), NAMED)
def test_variables_that_the_log_names(variable: str, value: str, named: str, expected: dict[str, Any]) -> None:
    for arguments, variables in both_ways(variable, value):
        check(settings_of(*arguments, **variables), expected, named)


@pytest.mark.parametrize(("variable", "value", "told"), REFUSED)
def test_variables_that_are_refused(variable: str, value: str, told: str) -> None:
    for arguments, variables in both_ways(variable, value):
        settings, problems = settings_of(*arguments, **variables)
        assert settings is None
        assert len(problems) == 1 and told in problems[0], problems


@pytest.mark.parametrize(("argument", "expected"), ARGUMENTS)
def test_arguments_of_the_first_image_that_are_honoured(argument: str, expected: dict[str, Any], key_file: str) -> None:
    text = argument.format(directory=key_file)
    check(settings_of(**{f"{PREFIX}ARGS": text}), expected)


@pytest.mark.parametrize("name", [*HARMLESS])
def test_arguments_of_the_first_image_without_effect(name: str) -> None:
    check(settings_of(**{f"{PREFIX}ARGS": f"/{name}"}), {}, HARMLESS[name])


@pytest.mark.parametrize("name", [*SETTINGS])
def test_arguments_of_the_first_image_need_their_values(name: str) -> None:
    assert settings_of(**{f"{PREFIX}ARGS": f"/{name}"}) == (
        None,
        [f"{PREFIX}ARGS /{name} needs a value: /{name}=VALUE."],
    )


def test_each_is_among_them_and_the_page_says_the_same() -> None:
    honoured = {variable for variable, _, expected in HONOURED if expected}
    named, refused = {each[0] for each in NAMED}, {each[0] for each in REFUSED}
    assert honoured | named | refused == {*RULES, f"{PREFIX}SOMETHING"}
    tried = {word.lstrip("/-").partition("=")[0].lower() for text, _ in ARGUMENTS for word in text.split()}
    assert tried == {*SETTINGS, "enablemongodbendpoint", "enableratelimiting", "disableratelimiting"}
    rows = dict(re.findall(r"^\| `([A-Z_]+)`[^|]*\| (.*) \|$", PAGE, re.MULTILINE))
    for variable in RULES:
        said = rows[variable]
        assert not said.startswith("Honoured") or variable in honoured, variable
        assert not said.startswith("No effect") or (variable in named and variable not in honoured), variable
        assert not said.startswith("Refused") or (variable in refused and variable not in honoured), variable
