from __future__ import annotations

from pathlib import Path

import pytest

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.tools import parsing
from armillary.tools.exposure import WELL_KNOWN_KEY
from armillary.tools.options import document
from armillary.tools.profiles import PROFILES, table
from armillary.tools.resolve import check_exposure, resolve
from armillary.tools.settings import ACCEPTED, OPTIONS, Settings

OWN_KEY = "QXJtaWxsYXJ5IHRlc3Qga2V5IG9mIG91ciBvd24u"
OTHER_KEY = "QXJtaWxsYXJ5IHRlc3Qga2V5LCBhbm90aGVyIG9uZQ=="
DOCUMENT = Path(__file__).parents[3] / "docs" / "settings.md"


def refusal(command_line: dict[str, object] | None = None, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(Failure) as caught:
        resolve(command_line or {}, environment or {})
    assert caught.value.kind is Kind.BAD_REQUEST
    return caught.value.message


def test_defaults_are_those_of_the_issue() -> None:
    settings = resolve({}, {"PATH": "/bin"})
    assert settings == Settings()
    assert (settings.directory, settings.host, settings.sql_port) == (Path("armillary-data"), "127.0.0.1", 8081)
    assert (settings.account, settings.key) == ("localhost", WELL_KNOWN_KEY)
    assert (settings.durability, settings.throughput) == ("full", "observe")
    assert settings.partition_throughput_ru == 10_000
    assert settings.partition_storage_bytes == 50 * limits.GB
    assert not settings.is_in_memory


def test_every_default_is_what_its_text_says() -> None:
    for option in OPTIONS.values():
        default = getattr(Settings(), option.attribute)
        if default is not None and not option.is_secret:
            assert option.parse(option.default_text) == default, option.name


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text('sql-port = 1\naccount = "of-file"\npartition-storage = "2MB"\n')
    settings = resolve(
        {"sql-port": "3"}, {"ARMILLARY_SQL_PORT": "2", "ARMILLARY_ACCOUNT": "of-env", "ARMILLARY_CONFIG": str(file)}
    )
    assert (settings.sql_port, settings.account) == (3, "of-env")
    assert settings.partition_storage_bytes == 2 * limits.MB
    assert settings.host == "127.0.0.1"


def test_file_takes_numbers_and_truths_where_they_belong(tmp_path: Path) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text("memory = true\npartition-storage = 4096\npartition-throughput = 500\n")
    settings = resolve({"config": str(file)}, {})
    assert (settings.is_in_memory, settings.partition_storage_bytes) == (True, 4096)
    assert settings.partition_throughput_ru == 500


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sql-prot = 1", "The setting sql-prot in {file} is not known. Did you mean sql-port?"),
        ("[serve]\nhost = 'x'", "The setting serve in {file} is not known."),
        ("config = 'other.toml'", "The setting config in {file} is not known."),
        ("sql-port = true", "sql-port in {file} is True; expected a port from 0 to 65535."),
        ("sql-port = 1.5", "sql-port in {file} is 1.5; expected a port from 0 to 65535."),
        ("account = 5", "account in {file} is 5; expected 3 to 44 lower-case letters"),
        ("key = 'short'", "key in {file} is not valid; expected base64 of at least 16 bytes."),
        ("host", "The configuration file {file} is not TOML: "),
    ],
)
def test_file_is_refused_by_name(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text(text)
    assert refusal({"config": str(file)}).startswith(expected.format(file=file))


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "missing.toml cannot be read: No such file" in refusal({"config": str(tmp_path / "missing.toml")})


def test_unknown_variable_is_refused_by_name() -> None:
    message = refusal(environment={"ARMILLARY_SQLPORT": "1"})
    assert message == "The environment variable ARMILLARY_SQLPORT is not known. Did you mean ARMILLARY_SQL_PORT?"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sql-port", "65536"),
        ("sql-port", "-1"),
        ("sql-port", "1_0"),
        ("sql-port", "٣"),
        ("host", ""),
        ("host", "a b"),
        ("host", "127.0.0.1:80"),
        ("host", "300.1.1.1"),
        ("account", "Upper"),
        ("account", "ab"),
        ("account", "a" * 45),
        ("durability", "none"),
        ("throughput", "on"),
        ("partition-throughput", "0"),
        ("partition-storage", "0"),
        ("partition-storage", "1.5"),
        ("partition-storage", "2XB"),
        ("partition-storage", "-2MB"),
        ("memory", "maybe"),
        ("log-level", "loud"),
        ("consistency", "Weak"),
        ("aad", "yes"),
        ("data", ""),
        ("config", ""),
    ],
)
def test_bad_value_names_where_and_what(name: str, value: str) -> None:
    variable = OPTIONS[name].variable
    message = refusal(environment={variable: value})
    assert message == f"{variable} is {value!r}; expected {OPTIONS[name].expected}."


@pytest.mark.parametrize(
    ("text", "size"),
    [("50GB", 50 * limits.GB), ("2MB", 2 * limits.MB), ("2mb", 2 * limits.MB), ("1.5 KB", 1536), ("4096", 4096)],
)
def test_sizes(text: str, size: int) -> None:
    assert parsing.size_bytes(text) == size


@pytest.mark.parametrize("name", ["key", "secondary-key", "read-only-key", "secondary-read-only-key"])
def test_secrets_are_never_shown(name: str) -> None:
    assert "hunter2" not in refusal({name: "hunter2"})
    assert OWN_KEY not in repr(resolve({name: OWN_KEY}, {}))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "db.example.org", "localhost.example.org"])
def test_public_host_needs_a_key_of_its_own(host: str) -> None:
    for line in ({"host": host}, {"host": host, "key": OWN_KEY, "secondary-key": WELL_KNOWN_KEY}):
        with pytest.raises(Failure, match="well-known key"):
            check_exposure(resolve(line, {}))
    check_exposure(resolve({"host": host, "key": OWN_KEY}, {}))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_may_use_the_well_known_key(host: str) -> None:
    settings = resolve({"host": host}, {})
    check_exposure(settings)
    assert settings.accepts_aad


def test_emulator_tokens_are_off_where_they_could_surprise() -> None:
    assert not resolve({"key": OWN_KEY}, {}).accepts_aad
    assert not resolve({"host": "0.0.0.0", "key": OWN_KEY}, {}).accepts_aad
    assert not resolve({"aad": "off"}, {}).accepts_aad
    assert resolve({"key": OWN_KEY, "aad": "on"}, {}).accepts_aad


def test_a_read_only_key_is_no_other_key() -> None:
    assert "read-only key is the same" in refusal({"key": OWN_KEY, "read-only-key": OWN_KEY})
    resolve({"key": OWN_KEY, "read-only-key": OTHER_KEY}, {})


def test_memory_with_a_directory_is_refused_unless_it_overrides_one(tmp_path: Path) -> None:
    expected = "--memory keeps nothing on disk, so --data has no effect. Give only one of them."
    assert refusal({"memory": True, "data": str(tmp_path)}) == expected
    assert resolve({"memory": True}, {"ARMILLARY_DATA": str(tmp_path)}).is_in_memory


def test_documentation_is_current() -> None:
    assert DOCUMENT.read_text("utf-8") == document(ACCEPTED.values()), "run `make docs`"


def test_tls_is_required_where_other_machines_reach_the_server() -> None:
    public = {"host": "0.0.0.0", "key": OWN_KEY}
    assert resolve(public, {}).requires_tls
    assert not resolve(public | {"require-tls": False}, {}).requires_tls
    assert not resolve(public | {"allow-well-known-key": True}, {}).requires_tls
    assert resolve(public | {"allow-well-known-key": True, "require-tls": True}, {}).requires_tls
    assert not resolve({}, {}).requires_tls
    assert resolve({}, {"ARMILLARY_REQUIRE_TLS": "true"}).requires_tls


@pytest.mark.parametrize(
    ("advertised", "host", "address", "mongo"),
    [
        ("db.example", "db.example", "db.example:8081", "db.example"),
        ("db.example:443", "db.example", "db.example:443", "db.example"),
        ("10.1.2.3:9000", "10.1.2.3", "10.1.2.3:9000", "10.1.2.3"),
        ("fd00::1", "fd00::1", "[fd00::1]:8081", "[fd00::1]"),
        ("[fd00::1]:443", "fd00::1", "[fd00::1]:443", "[fd00::1]"),
    ],
)
def test_what_is_advertised(advertised: str, host: str, address: str, mongo: str) -> None:
    settings = resolve({"advertise": advertised, "host": "db2.example"}, {})
    assert settings.advertised_host == host
    assert settings.advertised_address(8081) == address
    assert settings.named_hosts == ["db2.example", host]
    assert settings.mongo_address == mongo
    assert resolve({"advertise": advertised, "mongo-advertised-host": "m:1"}, {}).mongo_address == "m:1"


@pytest.mark.parametrize(
    "wrong", ["", "a b", "db.example:", "db.example:0", "db.example:65536", "[::1", "[::1]9", "1.2.3"]
)
def test_what_cannot_be_advertised(wrong: str) -> None:
    with pytest.raises(Failure, match="--advertise"):
        resolve({"advertise": wrong}, {})


@pytest.mark.parametrize("given", ["tls-certificate", "tls-key"])
def test_a_certificate_comes_with_its_key(given: str) -> None:
    with pytest.raises(Failure, match=f"--{given} needs --tls-"):
        resolve({given: "file.pem"}, {})


def test_a_profile_gives_defaults(tmp_path: Path) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text("throughput-max = 300000\n")
    settings = resolve({"profile": "2016", "config": str(file)}, {"ARMILLARY_THROUGHPUT": "off"})
    assert (settings.partitioned_throughput_min_ru, settings.partition_headroom) == (10_100, "off")
    assert settings.logical_partition_bytes_max == settings.partition_storage_bytes == 10 * limits.GB
    assert (settings.throughput, settings.throughput_max_ru) == ("off", 300_000)
    sources = {name: settings.sources[name] for name in ("throughput", "throughput-max", "partition-storage")}
    assert sources == {"throughput": "environment", "throughput-max": "file", "partition-storage": "profile 2016"}


def test_profiles_name_settings_and_their_values() -> None:
    for profile in PROFILES:
        assert resolve({"profile": profile}, {}).profile == profile
    assert resolve({"profile": "today"}, {}) == Settings()
    assert "expected one of today, 2016, 2017, 2018" in refusal({"profile": "2015"})
    assert "No container with a partition key" in refusal({"profile": "2016", "throughput-max": "10000"})


def test_settings_of_single_servers_and_of_nodes_are_told_apart() -> None:
    node = {"cluster": "postgresql://a/b"}
    assert "Give only one of the two" in refusal({**node, "processes": "2"})
    assert resolve({**node, "processes": "1"}, {}).processes == 1
    for name in (each for each in OPTIONS if each.startswith("cluster-") and each != "cluster-file"):
        given = {"cluster-log-size": "1GB", "cluster-single-postgres": "true"}.get(name, "5")
        assert f"--{name} is for nodes of a cluster" in refusal({name: given}), name


def test_the_table_of_profiles_in_the_documentation_is_the_code_s() -> None:
    defaults = {option.name: option.default_text for option in OPTIONS.values()}
    assert table(defaults) in (DOCUMENT.parent / "partitioning.md").read_text("utf-8")


def test_a_share_may_be_a_number_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text("log-requests = 0.25\ntracing-share = 1\n")
    settings = resolve({"config": str(file)}, {})
    assert (settings.log_requests, settings.tracing_share) == ("0.25", 1.0)
    for text in ("log-requests = 2\n", "sql-port = 1.5\n"):
        file.write_text(text)
        with pytest.raises(Failure, match="expected"):
            resolve({"config": str(file)}, {})
