"""`armillary config check|show`, and secrets that come from files and from systemd's credentials."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.cosmos import CosmosClient
from support.process import READY_S, ServerProcess, call_armillary

from armillary import limits
from armillary.errors import Failure
from armillary.tools.configuration.secret_files import secret_of
from armillary.tools.exposure import WELL_KNOWN_KEY
from armillary.tools.resolve import resolve
from armillary.tools.settings import ACCEPTED, OPTIONS

OWN_KEY = "QXJtaWxsYXJ5IHRlc3Qga2V5IG9mIG91ciBvd24u"
OTHER_KEY = "QXJtaWxsYXJ5IHRlc3Qga2V5LCBhbm90aGVyIG9uZQ=="
SECRETS = [name for name, option in OPTIONS.items() if option.is_secret]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a key that only its owner may read."""
    file = tmp_path / "key"
    file.write_text(f"{OWN_KEY}\n")
    file.chmod(0o600)
    return file


def refusal(command_line: dict[str, object], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(Failure) as caught:
        resolve(command_line, environment or {})
    return caught.value.message


def test_check_names_every_problem_at_once(tmp_path: Path) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text('sql-prot = 1\nhost = 3\nkey = "short"\n')
    outcome = call_armillary("config", "check", str(file), "--durability", "no", environment={"ARMILLARY_SQLPORT": "1"})
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr.splitlines() == [
        "armillary: The environment variable ARMILLARY_SQLPORT is not known. Did you mean ARMILLARY_SQL_PORT?",
        f"armillary: The setting sql-prot in {file} is not known. Did you mean sql-port?",
        f"armillary: host in {file} is 3; expected an IP address or host name.",
        f"armillary: key in {file} is not valid; expected base64 of at least 16 bytes.",
        "armillary: --durability is 'no'; expected one of full, relaxed.",
    ]


def test_check_compares_settings_and_says_what_serve_would_refuse(tmp_path: Path) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text("node = 'a'\ntls-key = 'k.pem'\nhost = '0.0.0.0'\n")
    told = json.loads(call_armillary("config", "check", "--json", "--config", str(file)).stdout)
    assert told["isValid"] is False
    assert [each.partition(" in ")[0] for each in told["problems"]] == ["tls-key", "node"]
    file.write_text("host = '0.0.0.0'\nportal = 'open'\n")
    outcome = call_armillary("config", "check", str(file))
    assert (outcome.returncode, outcome.stderr.count("The host 0.0.0.0 can be reached")) == (2, 2)
    assert call_armillary("serve", "--config", str(file)).stderr == outcome.stderr.splitlines(True)[0]


def test_check_accepts_what_serve_would(tmp_path: Path) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text('sql-port = 9000\nprofile = "2016"\n')
    outcome = call_armillary("config", "check", str(file), environment={"ARMILLARY_HOST": "127.0.0.2"})
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "1 from the environment" in outcome.stdout and "2 from the file" in outcome.stdout
    assert "once" in call_armillary("config", "check", str(file), "--config", str(file)).stderr
    assert call_armillary("config", "check").stdout == "The settings are valid: all have their defaults.\n"


def test_show_says_where_each_setting_comes_from(tmp_path: Path, secret: Path) -> None:
    file = tmp_path / "armillary.toml"
    file.write_text('account = "of-file"\nprofile = "2016"\n')
    arguments = ("--config", str(file), "--sql-port", "9", "--key-file", str(secret))
    variables = {"ARMILLARY_HOST": "127.0.0.2", "ARMILLARY_CONTROL_KEY": OTHER_KEY}
    outcome = call_armillary("config", "show", "--origin", *arguments, environment=variables)
    assert outcome.returncode == 0, outcome.stderr
    assert OWN_KEY not in outcome.stdout and OTHER_KEY not in outcome.stdout
    lines = outcome.stdout.splitlines()
    assert len(lines) == len(OPTIONS)
    for line in (
        "sql-port = 9  # --sql-port",
        'host = "127.0.0.2"  # ARMILLARY_HOST',
        f'account = "of-file"  # account in {file}',
        '# throughput = "enforce"  # profile 2016',
        '# durability = "full"  # default',
        f"# key = (hidden)  # --key-file ({secret})",
        "# control-key = (hidden)  # ARMILLARY_CONTROL_KEY",
        "# secondary-key = (none)  # default",
        "# memory = false  # default",
        f'# config = "{file}"  # --config',
    ):
        assert line in lines
    file.write_text(call_armillary("config", "show", *arguments, environment=variables).stdout)
    again = resolve({"config": str(file)}, {})
    assert (again.sql_port, again.host, again.account, again.throughput) == (9, "127.0.0.2", "of-file", "enforce")
    file.write_text('account = "of-file"\nprofile = "2016"\n')
    content = json.loads(call_armillary("config", "show", "--json", *arguments, environment=variables).stdout)
    told = {each["name"]: each for each in content["settings"]}
    assert list(told) == list(OPTIONS)
    assert (told["key"]["value"], told["key"]["from"], told["key"]["isSecret"]) == (None, "command line", True)
    assert (told["sql-port"]["value"], told["sql-port"]["source"]) == (9, "--sql-port")
    assert call_armillary("config", "show", "--sql-port", "x").returncode == 2


def test_every_secret_has_a_file_and_a_credential(tmp_path: Path) -> None:
    assert [name for name in ACCEPTED if secret_of(name)] == [f"{name}-file" for name in SECRETS]
    for number, name in enumerate(SECRETS):
        value = "postgresql://a:b@c/d" if name == "cluster" else OTHER_KEY.replace("QXJ", f"QX{number}")
        directory = tmp_path / name
        directory.mkdir(mode=0o700)
        file = directory / f"armillary.{name}"
        file.write_text(value + "\r\n")
        file.chmod(0o400)
        variable = f"ARMILLARY_{name.upper().replace('-', '_')}_FILE"
        for found in (
            resolve({f"{name}-file": str(file)}, {}),
            resolve({}, {variable: str(file)}),
            resolve({}, {"CREDENTIALS_DIRECTORY": str(directory)}),
        ):
            assert getattr(found, OPTIONS[name].attribute) == value
            assert found.warnings == ()
    assert found.sources["cluster" if name == "cluster" else name] == "credentials"


def test_a_value_and_a_file_are_refused(tmp_path: Path, secret: Path) -> None:
    both = refusal({"key-file": str(secret)}, {"ARMILLARY_KEY": OTHER_KEY})
    assert both == "--key-file and ARMILLARY_KEY both give the same secret. Give only one of them."
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "armillary.key").write_text(OWN_KEY)
    assert "the credential armillary.key and --key both" in refusal(
        {"key": OTHER_KEY}, {"CREDENTIALS_DIRECTORY": str(credentials)}
    )
    assert "armillary.key and --key-file both" in refusal(
        {"key-file": str(secret)}, {"CREDENTIALS_DIRECTORY": str(credentials)}
    )


def test_credentials_of_others_are_left_alone_and_unknown_ones_refused(tmp_path: Path) -> None:
    (tmp_path / "postgres.password").write_text("x")
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert resolve({}, environment) == resolve({}, {"CREDENTIALS_DIRECTORY": str(tmp_path / "missing")})
    (tmp_path / "armillary.kee").write_text(OWN_KEY)
    assert "armillary.kee is not known. Did you mean key?" in refusal({}, environment)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"\xff\xfe", "it is not text"),
        (b"a" * (limits.SECRET_FILE_BYTES_MAX + 1), "it has more than 65536 bytes"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    assert refusal({"key-file": str(file)}) == f"The file {file} of --key-file cannot be used: {reason}."


def test_a_wrong_secret_is_not_shown_and_a_pipe_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("hunter2")
    message = refusal({"key-file": str(file)})
    assert message == f"--key-file ({file}) is not valid; expected base64 of at least 16 bytes."
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a plain file" in refusal({"key-file": str(tmp_path / "pipe")})
    assert "cannot be used: " in refusal({"key-file": str(tmp_path)})


def test_secrets_on_the_command_line_are_warned_about() -> None:
    for name in SECRETS:
        value = "postgresql://a:b@c/d" if name == "cluster" else OTHER_KEY
        [warning] = resolve({name: value}, {}).warnings
        assert warning.startswith(f"the secret of --{name} is on the command line, which other users")
        assert f"--{name}-file, or in {OPTIONS[name].variable}" in warning and value not in warning
        assert resolve({}, {OPTIONS[name].variable: value}).warnings == ()
    assert resolve({"key": WELL_KNOWN_KEY}, {}).warnings == ()
    assert resolve({"cluster": "postgresql://c/d"}, {}).warnings == ()


def test_a_file_that_others_may_read_is_warned_about(
    start_server: Callable[..., ServerProcess], secret: Path, tmp_path: Path
) -> None:
    secret.chmod(0o644)
    assert resolve({"key-file": str(secret), "data-permissions": "inherited"}, {}).warnings == ()
    server = start_server("--key-file", str(secret))
    assert f"WARNING armillary: the secret in {secret} is open to other users" in server.log
    assert OWN_KEY not in server.log
    with CosmosClient(server.url, OWN_KEY, timeout=READY_S) as client:
        assert list(client.list_databases()) == []
    told = call_armillary("config", "check", "--key-file", str(secret))
    assert (told.returncode, "chmod 600" in told.stderr) == (0, True)
