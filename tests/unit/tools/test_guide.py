"""Help, suggestions and completion scripts. Scripts are run in the shells that the machine has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.process import call_armillary

from armillary import __version__
from armillary.tools import cli
from armillary.tools.guide.command_parser import commands_of
from armillary.tools.guide.completion import nodes


def test_the_program_alone_helps() -> None:
    alone, asked, flag = (call_armillary(*arguments) for arguments in ((), ("help",), ("--help",)))
    assert alone.returncode == asked.returncode == flag.returncode == 0
    assert alone.stdout == asked.stdout == flag.stdout
    assert alone.stdout.count("  armillary ") == 3, "three examples to begin with"
    listed = {line.split()[0] for line in alone.stdout.splitlines() if line.startswith("  ") and line[2] != " "}
    assert set(commands_of(cli._parser())) <= listed
    assert max(map(len, alone.stdout.splitlines())) <= 80
    assert call_armillary("--version").stdout == f"armillary {__version__}\n"


def test_help_of_commands_is_that_of_their_parsers() -> None:
    assert call_armillary("help", "containers", "create").stdout == call_armillary("containers", "create", "-h").stdout
    refused = call_armillary("help", "containers", "creat")
    assert refused.returncode == 2
    assert "There is no command 'armillary containers creat'. Did you mean create?" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("contaners",), "Did you mean containers?"),
        (("cluster", "stats"), "There is no command 'armillary cluster stats'. Did you mean status?"),
        (("serve", "--thruput", "enforce"), "There is no option --thruput. Did you mean --throughput?"),
        (("serve", "--sql", "0"), "There is no option --sql. Did you mean --sql-port?"),
        (("containers", "create", "a/b", "--partion-key=/a"), "There is no option --partion-key. Did you mean --part"),
        (("scale",), "armillary scale: Give DATABASE[/CONTAINER]. `armillary help scale` shows the arguments."),
        (("scale", "a/b", "abc"), "armillary scale: RU: 'abc' is not a whole number. `armillary help scale` shows"),
        (("partit",), "Did you mean partitions?"),
        (("split", "a/b", "1", "2"), "armillary split: '2' is an argument too many."),
        (
            ("query", "a/b", "c", "--output", "xml"),
            "--output: 'xml' is none of table, json, csv. `armillary help",
        ),
        (("mode", "enforced"), "'enforced' is none of enforce, observe, off, default. Did you mean enforce?"),
        (("mode", "a/b", "off"), "The container stands behind it: `armillary mode enforce a/b`."),
        (("feed", "a/b"), "There is no command 'armillary feed a/b'. Give tail before it."),
        (("containers", "a/b"), "There is no command 'armillary containers a/b'. Give list, "),
        (("containers", "create", "a/b", "--partition-key", "c"), "'c' does not begin with a slash: write /c."),
        (("completion",), "armillary completion: Give bash|zsh|fish."),
        (("import", "a.csv", "a/b", "--create"), "There is no option --create. `armillary help import` shows"),
        (("xyzzy",), "armillary: There is no command 'armillary xyzzy'. `armillary help` lists the commands."),
    ],
)
def test_what_was_probably_meant(arguments: tuple[str, ...], expected: str) -> None:
    outcome = call_armillary(*arguments)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert expected in outcome.stderr and outcome.stderr.count("\n") == 1, outcome.stderr


def completions(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = f"""
        source {script}
        COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
        _armillary
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    outcome = subprocess.run([bash, "--norc", "-c", program], capture_output=True, text=True, check=True)
    assert outcome.stderr == ""
    return outcome.stdout.split()


def test_bash_completes_commands_options_and_values(tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(call_armillary("completion", "bash").stdout)
    assert completions(script, "armillary", "conta") == ["containers"]
    assert completions(script, "armillary", "containers", "c") == ["create"]
    assert completions(script, "armillary", "containers", "create", "--part") == ["--partition-key"]
    assert completions(script, "armillary", "query", "a/b", "SELECT 1", "--output", "") == ["table", "json", "csv"]
    assert completions(script, "armillary", "serve", "--throughput", "") == ["enforce", "observe", "off"]
    assert completions(script, "armillary", "cluster", "fail") == ["failover", "failover-region"]
    assert completions(script, "armillary", "completion", "") == ["bash", "zsh", "fish", "--help"]
    (tmp_path / "armillary.toml").touch()
    assert completions(script, "armillary", "serve", "--config", str(tmp_path / "arm")) == [
        str(tmp_path / "armillary.toml")
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_scripts(shell: str, tmp_path: Path) -> None:
    script = call_armillary("completion", shell).stdout
    for node in nodes(cli._parser()):
        assert " ".join(node.path) in script
        for option in node.options:
            assert option.name.removeprefix("--") in script
    assert all(line.count("'") % 2 == 0 for line in script.splitlines()), "quotes that do not end"
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed: its script was not run")
    file = tmp_path / "script"
    file.write_text(script)
    subprocess.run([program, "-n", str(file)], check=True)
    if shell == "fish":
        for line, expected in (("conta", "containers"), ("serve --throughput ", "enforce"), ("mode o", "observe")):
            asked = [program, "--no-config", "-c", f"source {file}; complete -C 'armillary {line}'"]
            assert expected in subprocess.run(asked, capture_output=True, text=True, check=True).stdout
