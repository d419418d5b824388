"""The unit for systemd: its commands are those of this version, and systemd accepts it where it is installed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from armillary.tools.cli import _parser
from armillary.tools.settings import OPTIONS

UNIT = Path(__file__).parents[2] / "examples" / "systemd" / "armillary.service"
HARDENING = (
    *("NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables"),
    *("ProtectKernelModules", "ProtectControlGroups", "RestrictAddressFamilies", "RestrictNamespaces"),
    *("RestrictSUIDSGID", "LockPersonality", "SystemCallFilter", "CapabilityBoundingSet"),
)


def entries() -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in UNIT.read_text("utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name].append(value)
    return found


def test_the_command_is_one_of_this_version() -> None:
    unit = entries()
    assert unit["Type"] == ["notify"]
    [start] = unit["ExecStart"]
    _, *arguments = shlex.split(start)
    given = vars(_parser().parse_args(arguments))
    assert given["command"] == "serve"
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    [limit] = unit["TimeoutStopSec"]
    assert int(limit) > int(OPTIONS["drain-seconds"].default_text)
    assert unit["User"] == ["armillary"]
    assert unit["UMask"] == ["0077"]
    for name in HARDENING:
        assert name in unit


def test_credentials_that_it_names_are_secret_settings() -> None:
    named = re.findall(r"\barmillary\.([a-z-]*key)\b", UNIT.read_text("utf-8"))
    assert "key" in named
    assert all(OPTIONS[name].is_secret for name in named)
    for each in entries()["LoadCredential"]:
        assert each.partition(":")[0].removeprefix("armillary.") in named


def test_systemd_accepts_it(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = UNIT.read_text("utf-8")
    text = text.replace("/opt/armillary/bin/armillary", "/bin/true")  # it checks that programs and users exist
    text = re.sub(r"^(User|Group)=.*$", r"\1=root", text, flags=re.MULTILINE)
    unit = tmp_path / "armillary.service"
    unit.write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    mentions = [line for line in (found.stdout + found.stderr).splitlines() if "armillary" in line]
    assert (found.returncode, mentions) == (0, [])
