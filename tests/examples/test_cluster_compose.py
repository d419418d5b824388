"""The compose file of a cluster, and the commands of its page: Docker is not run here, but the commands are those of
this version, and the parts fit together."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from armillary.tools.cli import _parser
from armillary.tools.resolve import check_exposure, resolve
from armillary.tools.settings import Settings

DIRECTORY = Path(__file__).parents[2] / "examples" / "cluster"
COMPOSE: dict[str, Any] = yaml.safe_load((DIRECTORY / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODES = [name for name in SERVICES if name.startswith("node")]
SECRETS = {"POSTGRES_PASSWORD": "a password", "ARMILLARY_KEY": "A" * 88}


def settings_of(name: str) -> Settings:
    """As the node has them."""
    service = SERVICES[name]
    environment = dict(service["environment"])
    for variable, value in SECRETS.items():
        environment = {key: text.replace(f"${{{variable}}}", value) for key, text in environment.items()}
    given = vars(_parser().parse_args(service["command"]))
    assert given.pop("command") == "serve"
    settings = resolve({key.replace("_", "-"): value for key, value in given.items()}, environment)
    check_exposure(settings)
    return settings


@pytest.mark.parametrize("name", NODES)
def test_a_node_starts_with_settings_that_are_accepted(name: str) -> None:
    settings = settings_of(name)
    assert settings.node == settings.advertised_host == name
    assert settings.cluster is not None
    hosts = settings.cluster.partition("@")[2].partition("/")[0].split(",")
    assert set(hosts) == {each for each in SERVICES if each.startswith("postgres")}
    assert "target_session_attrs=primary" in settings.cluster
    assert settings.requires_tls and not settings.allows_single_postgres
    assert SERVICES[name]["volumes"] == [f"{name}:{settings.directory}"]
    healthcheck = SERVICES[name]["healthcheck"]["test"]
    assert healthcheck[:2] == ["CMD", "armillary"]
    assert vars(_parser().parse_args(healthcheck[2:]))["data"] == str(settings.directory)


def test_nodes_differ_in_name_and_region_alone() -> None:
    assert len(NODES) == 3
    assert {settings_of(name).region for name in NODES} == {"eu", "us"}
    assert len({settings_of(name).key for name in NODES}) == 1


def test_commits_wait_for_a_standby_that_has_its_name() -> None:
    allowed = (DIRECTORY / "allow-standby.sh").read_text()
    assert "'ANY 1 (postgres1, postgres2)'" in allowed
    assert "cluster_name=postgres1" in SERVICES["postgres1"]["command"]
    assert "cluster_name=postgres2" in (DIRECTORY / "start-standby.sh").read_text()


def test_files_and_volumes_exist() -> None:
    used = [volume for service in SERVICES.values() for volume in service["volumes"]]
    for volume in used:
        source = volume.partition(":")[0]
        assert (DIRECTORY / source).is_file() if source.startswith("./") else source in COMPOSE["volumes"], volume
    dockerfile = SERVICES["node1"]["build"]
    assert (DIRECTORY / dockerfile["context"] / dockerfile["dockerfile"]).is_file()


@pytest.mark.parametrize("script", ["allow-standby.sh", "start-standby.sh"])
def test_scripts_are_shell(script: str) -> None:
    subprocess.run(["sh", "-n", DIRECTORY / script], check=True)
    assert (DIRECTORY / script).stat().st_mode & 0o111


PAGE = (DIRECTORY.parents[1] / "docs" / "cluster.md").read_text("utf-8")


def test_the_page_shows_commands_that_are_accepted() -> None:
    blocks = re.findall(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if re.match(r"(\.venv/bin/)?armillary ", line)]
    assert len(lines) >= 5
    for line in lines:
        _parser().parse_args(shlex.split(line)[1:])


def test_the_page_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["cluster", "--help"])
    verbs = re.findall(r"^    ([a-z-]+)(?: |$)", capsys.readouterr().out, re.MULTILINE)
    assert len(verbs) >= 11
    for verb in verbs:
        assert re.search(rf"`{verb} \[|armillary cluster {verb}\b", PAGE), verb
