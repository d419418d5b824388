"""The image: its Dockerfile read, and its commands run without Docker. Its start command runs with a read-only root
file system, under another user where the tests are root, and on its own ports, in namespaces of its own."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from support.process import KEY, clean_environment

from armillary.tools.cli import _parser
from armillary.tools.emulator.emulator_arguments import HARMLESS, SETTINGS
from armillary.tools.emulator.emulator_command import emulator_settings
from armillary.tools.emulator.emulator_environment import PREFIX, RULES, VNEXT_ARGUMENTS
from armillary.tools.settings import ACCEPTED, Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
PAGE = (ROOT / "docs" / "docker.md").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "docker" / "compose.yaml").read_text("utf-8"))
NAMESPACES = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
OWN_KEY = "QXJtaWxsYXJ5IHRlc3Qga2V5IG9mIG91ciBvd24u"


def instructions(stage: int) -> list[tuple[str, str]]:
    """The instructions of a stage: their names and what follows."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    lines = [line.partition(" ")[::2] for line in text.splitlines() if line.strip()]
    stages: list[list[tuple[str, str]]] = []
    for name, rest in lines:
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, " ".join(rest.split())))
    return stages[stage]


def of(name: str, stage: int = -1) -> list[str]:
    return [rest for each, rest in instructions(stage) if each == name]


ENVIRONMENT = dict(word.split("=", 1) for line in of("ENV") for word in shlex.split(line))
(ENTRYPOINT,) = (json.loads(line) for line in of("ENTRYPOINT"))
(USER,) = of("USER")
PARSER = _parser()


def settings_of(*arguments: str, **variables: str) -> tuple[Settings | None, list[str]]:
    """Of a container with these arguments and variables."""
    given = vars(PARSER.parse_args([*ENTRYPOINT[1:], *arguments]))
    assert given.pop("command") == "emulator"
    return emulator_settings(given, ENVIRONMENT | variables)


def accepted(*arguments: str, **variables: str) -> Settings:
    settings, problems = settings_of(*arguments, **variables)
    assert settings is not None, problems
    return settings


def refused(*arguments: str, **variables: str) -> str:
    settings, problems = settings_of(*arguments, **variables)
    assert settings is None and len(problems) == 1, problems
    return problems[0]


def test_the_image_is_small_and_runs_as_nobody() -> None:
    assert of("FROM", 0) == ["python:3.11-slim AS build"] and of("FROM") == ["python:3.11-slim"]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", USER)
    assert of("VOLUME") == [ENVIRONMENT["ARMILLARY_DATA"]]
    for copied in of("COPY", 0):
        assert all((ROOT / source).exists() for source in copied.split()[:-1])
    ignore = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    sources = {source for copied in of("COPY", 0) for source in copied.split()[:-1]}
    assert ignore[0] == "*" and {line[1:] for line in ignore if line.startswith("!")} == sources
    assert not any(fnmatch.fnmatch(source, line) for source in sources for line in ignore[1:] if line[0] != "!")


def test_the_ports_of_the_image_are_those_of_the_emulator() -> None:
    settings = accepted()
    ports = {settings.sql_port, settings.health_port, settings.portal_port, 8901, 8902, 10255}
    assert {int(port) for port in " ".join(of("EXPOSE")).split()} == ports == {8081, 8080, 1234, 8901, 8902, 10255}
    assert (settings.host, settings.allows_well_known_key, settings.key) == ("0.0.0.0", True, KEY)
    assert (str(settings.directory), settings.requires_tls) == ("/data", False)
    (health,) = of("HEALTHCHECK")
    command = health.partition(" CMD ")[2]
    assert command.endswith(" || exit 1"), "the codes of health checks are 0 and 1"
    assert vars(PARSER.parse_args(shlex.split(command.partition(" ||")[0])[1:])) == {"command": "health"}


def test_variables_of_the_emulators_images_together(tmp_path: Path) -> None:
    """tests/unit/tools/test_emulator_variables.py has each of them alone."""
    settings = accepted(
        AZURE_COSMOS_EMULATOR_PARTITION_COUNT="10",
        AZURE_COSMOS_EMULATOR_ENABLE_DATA_PERSISTENCE="true",
        AZURE_COSMOS_EMULATOR_ENABLE_MONGODB_ENDPOINT="4.0",
        AZURE_COSMOS_EMULATOR_ARGS="/Port=9000 /MongoPort=10250 /EnableRateLimiting /NoUI /Consistency=Strong",
    )
    assert (settings.sql_port, settings.mongo_port, settings.throughput) == (9000, 10250, "enforce")
    assert (settings.mongo_version, settings.is_in_memory, settings.consistency) == ("4.2", False, "Strong")
    named = " ".join(settings.warnings)
    assert all(word in named for word in ("PARTITION_COUNT", "ENABLE_MONGODB_ENDPOINT", "/NoUI"))
    same = accepted("--protocol", "https", "--port", "9001", "--log-level", "trace", "--enable-explorer", "false")
    assert (same.requires_tls, same.sql_port, same.log_level, same.portal) == (True, 9001, "debug", "off")
    assert (same.portal_port, same.health_port) == (None, 8080)
    assert accepted("--enable-explorer").portal == "login"
    assert accepted("--port", "9001", PORT="9002").sql_port == 9001, "arguments come first"
    key = tmp_path / "key"
    key.write_text(OWN_KEY + "\n")
    assert "PROTOCOL" in refused(PROTOCOL="https", EXPLORER_PROTOCOL="http")
    assert "both give the same secret" in refused(KEY_FILE=str(key), ARMILLARY_KEY=OWN_KEY)
    assert "say different things" in refused(PORT="1", AZURE_COSMOS_EMULATOR_ARGS="/Port=2")
    assert "has no effect" in refused(DATA_PATH="/d", AZURE_COSMOS_EMULATOR_ENABLE_DATA_PERSISTENCE="false")


def test_the_page_lists_every_variable_and_argument() -> None:
    rows = set(re.findall(r"^\| `([A-Z_/][A-Za-z_]+)`", PAGE, re.MULTILINE))
    assert rows >= set(RULES)
    listed = {word.lower() for word in re.findall(r"`/([A-Za-z]+)", PAGE)}
    assert listed >= {*SETTINGS, *HARMLESS, "enablemongodbendpoint", "enableratelimiting", "disableratelimiting"}
    for variable, name in VNEXT_ARGUMENTS.items():
        assert re.search(rf"^\| `{variable}`, `--{name}`", PAGE, re.MULTILINE), variable
    assert all(name in RULES for name in rows if name.startswith(PREFIX))


def test_the_compose_file_publishes_to_this_machine_alone() -> None:
    (service,) = COMPOSE["services"].values()
    published = [port.split(":") for port in service["ports"]]
    assert all(host == "127.0.0.1" for host, _, _ in published)
    assert {int(inside) for _, _, inside in published} == {int(port) for port in " ".join(of("EXPOSE")).split()}
    assert service["read_only"] is True and service["tmpfs"] == ["/tmp"]
    assert service["volumes"] == ["data:/data"] and "data" in COMPOSE["volumes"]
    accepted(**service["environment"])
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "image.yml").read_text("utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert any("linux/amd64,linux/arm64" in str(step.get("with", {}).get("platforms")) for step in steps)


def tried(program: list[str], variables: dict[str, str], urls: list[str], *then: list[str]) -> dict[str, Any]:
    """What `support.image_trial` found. `program`: in the place of the word armillary."""
    probe = subprocess.run([*NAMESPACES, "mount", "-o", "remount,bind,ro", "/"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("no network and mount namespaces can be made here")
    user = int(USER.partition(":")[0]) if os.geteuid() == 0 else None
    environment = ENVIRONMENT | {"ARMILLARY_DATA": "/tmp/volume", "HOME": "/nonexistent"} | variables
    if program[0] == sys.executable:  # the checkout
        environment |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*NAMESPACES, sys.executable, "-m", "support.image_trial"],
        input=json.dumps(
            {
                "command": [*program, *ENTRYPOINT[1:]],
                "user": user,
                "environment": environment,
                "urls": urls,
                "then": [[*program, *words] for words in then],
                "needed": [str(ROOT), sys.base_prefix],
            }
        ),
        env=clean_environment() | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ready"].startswith("ready sql="), found["log"]
    assert found["code"] == 0 and "Traceback" not in found["log"], found["log"]
    assert found["root"] == [False, False], "the root file system was not read-only"
    assert ("running as root" in found["log"]) == found["isRoot"]
    return found


def check_start(program: list[str], variables: dict[str, str]) -> dict[str, Any]:
    http = "http://127.0.0.1"
    urls = [f"{http}:8080/alive", f"{http}:8080/ready", f"{http}:8080/status", f"{http}:8080/other", f"{http}:1234/"]
    urls += [f"{http}:1234/_armillary/portal/", f"{http}:1234/dbs", f"{http}:8081/_explorer/index.html"]
    urls += [f"{http}:8081/_explorer/emulator.pem", "https://127.0.0.1:8081/_explorer/emulator.pem"]
    commands = ["health"], ["connection-strings", "mongo", "--url", f"{http}:8081"]
    found = tried(program, variables, urls, *commands)
    answers = [found["answers"][url] for url in urls]
    assert [status for status, _ in answers] == [200, 200, 200, 404, 302, 200, 404, 302, 200, 200]
    assert json.loads(answers[2][1]) == {"alive": True, "ready": True}
    assert answers[4][1] == answers[7][1] == "/_armillary/portal/" and "<script" in answers[5][1]
    assert answers[8] == answers[9] and answers[8][1].startswith("-----BEGIN CERTIFICATE-----")
    health, strings = found["commands"]
    assert (health["returncode"], health["stdout"]) == (0, "ready\n"), health
    assert "@127.0.0.1:10255/" in strings["stdout"], strings
    assert f"AccountEndpoint=http://127.0.0.1:8081/;AccountKey={KEY};" in found["log"]
    assert "ANYBODY WHO REACHES" in found["log"]
    return found


def test_the_start_command_with_a_read_only_root() -> None:
    kept = check_start([sys.executable, "-m", "armillary"], {"PROTOCOL": "http", "ENABLE_TELEMETRY": "false"})
    assert "FORMAT" in kept["volume"] and kept["temporary"] == []


@pytest.mark.soak
def test_the_start_command_without_persistence() -> None:
    in_memory = check_start(
        [sys.executable, "-m", "armillary"], {"AZURE_COSMOS_EMULATOR_ENABLE_DATA_PERSISTENCE": "false"}
    )
    assert in_memory["volume"] == []


@pytest.mark.soak
def test_the_commands_of_the_dockerfile(tmp_path: Path) -> None:
    """Paths of the image become some of the test; the wheel of a copy that has what the Dockerfile copies, and no more,
    is installed into an empty environment, as in the image."""
    place = Path(ROOT / ".cache" / f"image-{os.getpid()}")  # not below /tmp, which the start command sees empty
    places = {"/opt/armillary": place / "opt", "/build": place / "build", "/wheels": place / "wheels"}
    source = place / "source"
    source.mkdir(parents=True)
    try:
        for copied in of("COPY", 0):
            subprocess.run(["cp", "-r", *(str(ROOT / name) for name in copied.split()[:-1]), str(source)], check=True)
        for line in of("RUN", 0):
            command = line
            for inside, outside in places.items():
                command = re.sub(rf"(?<![\w/]){inside}(?![\w])", str(outside), command)
            subprocess.run(
                ["bash", "-ec", command.replace("python -m venv", f"{sys.executable} -m venv")], cwd=source, check=True
            )
        found = check_start([str(places["/opt/armillary"] / "bin" / "armillary")], {})
        assert "FORMAT" in found["volume"]
    finally:
        subprocess.run(["rm", "-rf", str(place)], check=True)


def test_the_image_sets_known_variables_only() -> None:
    known = {option.variable for option in ACCEPTED.values()}
    assert {name for name in ENVIRONMENT if name.startswith("ARMILLARY_")} <= known
