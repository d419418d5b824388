"""The `armillary` command: reads its arguments, finds the settings and calls the tool that was asked for.

Tools are imported when they are called, so that `armillary version` does not wait for a database. Every refusal ends
here, as one sentence on standard error and exit code 2; standard output carries results alone.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from armillary import __version__
from armillary.errors import Failure, bad_request
from armillary.storage.private import private_umask
from armillary.tools.cluster import arguments as cluster_commands
from armillary.tools.commands import arguments as server_commands
from armillary.tools.commands.testing import arguments as testing_commands
from armillary.tools.configuration.config_command import add_parsers as add_config_parsers
from armillary.tools.configuration.config_command import run_config
from armillary.tools.configuration.runtime_command import NAME as RUNTIME
from armillary.tools.configuration.runtime_command import add_parser as add_runtime_parser
from armillary.tools.emulator.emulator_command import add_parser as add_emulator_parser
from armillary.tools.foresight import advise_arguments as advise_commands
from armillary.tools.foresight import arguments as foresight_commands
from armillary.tools.guide import overview as guide
from armillary.tools.guide.command_parser import REFUSED, CommandParser, offer_words
from armillary.tools.guide.overview import help_text, overview
from armillary.tools.options import Option
from armillary.tools.querying import arguments as query_commands
from armillary.tools.resolve import check_exposure, resolve
from armillary.tools.screen import printable
from armillary.tools.settings import ACCEPTED, OPTIONS, Settings
from armillary.tools.transfer import arguments as transfers

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_PIPE_CODE: Final = 128 + 13  # as of a program that SIGPIPE has ended
_NOT_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    _open_closed_streams()
    with private_umask():
        return _output_of(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    parser = _server_parser() if given[:1] == ["serve"] else _parser()
    parsed = vars(parser.parse_args(arguments))
    command = parsed.pop("command")
    try:
        if parsed.pop("version", False) or command == "version":
            print(f"armillary {__version__}")
            return 0
        if command is None or command == "help":
            print(help_text(parser, parsed.get("words", ())), end="")
            return 0
        if command == "completion":
            from armillary.tools.guide.completion import completion_script

            print(completion_script(parsed["shell"], parser), end="")
            return 0
        if command == "serve":
            settings = _settings(parsed)
            check_exposure(settings)
            del parser  # its memory is used again by what is imported now
            from armillary.tools.serving.processes.start import start

            return start(settings, lambda: _settings(parsed))
        if command == "upgrade":
            from armillary.tools.commands.upgrade import upgrade

            ends = {"is_committed": parsed.get("commit", False), "is_undone": parsed.get("rollback", False)}
            return upgrade(parsed["directory"], _settings({}).data_permissions, **ends)
        if command == "check":
            from armillary.tools.check import check

            is_repairing = parsed.get("repair", False)
            return check(parsed["directory"], _settings({}).data_permissions, is_repairing=is_repairing)
        if command == "processes":
            from armillary.tools.directories.processes_command import run_processes

            return run_processes(parsed, _settings({}).data_permissions)
        if command == "trust":
            from armillary.tools.trust import trust

            truststore = parsed.pop("java", None)
            print(trust(_settings(parsed), truststore))
            return 0
        if command in (*server_commands.NAMES, *testing_commands.NAMES, RUNTIME):
            # Of the settings they take where the server is; the rest of the arguments is their own.
            settings = _settings({name: value for name, value in parsed.items() if name in ("data", "config")})
            from armillary.tools.commands.run import run_command

            return run_command(command, parsed, settings)
        if command in query_commands.NAMES:
            settings = _settings({name: value for name, value in parsed.items() if name in ("data", "config", "key")})
            if command == "shell":
                from armillary.tools.shell.shell import run_shell

                return run_shell(parsed, settings)
            from armillary.tools.querying.command import run_query

            return run_query(parsed, settings)
        if command == "cluster":
            from armillary.tools.cluster.commands import run_cluster

            return run_cluster(parsed, _settings)
        if command in transfers.NAMES:
            parsed.setdefault("remote_key", os.environ.get(transfers.KEY_VARIABLE))
            settings = _settings({name: value for name, value in parsed.items() if name in ("data", "config", "key")})
            from armillary.tools.transfer.command import run_transfer

            return run_transfer(command, parsed, settings)
        if command == "advise":
            parsed.setdefault("remote_key", os.environ.get(transfers.KEY_VARIABLE))
            settings = _settings({name: value for name, value in parsed.items() if name in ("data", "config", "key")})
            from armillary.tools.foresight.inputs import extra_packages

            with extra_packages(command):
                from armillary.tools.foresight.advise import run_advise
            return run_advise(parsed, settings)
        if command == "estimate":
            from armillary.tools.foresight.estimate import run_estimate

            return run_estimate(parsed)
        if command == "simulate":
            from armillary.tools.foresight.simulate import run_simulate

            return run_simulate(parsed)
        if command == "demo":
            from armillary.tools.demo.tour import run_demo

            return run_demo(parsed)
        if command == "scale-model":
            from armillary.tools.foresight.scale_model import run_scale_model

            return run_scale_model(parsed)
        if command == "emulator":
            from armillary.tools.emulator.emulator_command import run_emulator

            return run_emulator(parsed, _environment())
        if command == "health":
            place = {name: value for name, value in parsed.items() if name in ("data", "config")}
            from armillary.tools.remote import ask_health

            print(ask_health(_settings(place), parsed.get("url")))
            return 0
        if command == "config":
            return run_config(parsed, _environment())
        raise bad_request(f"There is no command {command!r}.")
    except Failure as failure:
        print(f"armillary: {printable(failure.message)}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:  # before the server listens to signals
        return 128 + 2


# Streams that are closed, pipes whose reader has gone, and disks that are full.


def _open_closed_streams() -> None:
    """A closed one leads nowhere. Otherwise the next file or socket would get its number, and what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115 - to the exit
            setattr(sys, name, stream)


def _output_of(run: Callable[[], int]) -> int:
    """The exit code of a command. Its output is flushed here, where a failure can still be told."""
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has closed it
        _discard_output()
        return _PIPE_CODE
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        _discard_output()
        reason = error.strerror or "unknown reason"
        print(f"armillary: The output cannot be written: {reason}. Make room, or name another place.", file=sys.stderr)
        return REFUSED


def _discard_output() -> None:
    """What is still buffered must not be written at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Settings and parsers.


def _settings(parsed: dict[str, object]) -> Settings:
    return resolve({name.replace("_", "-"): value for name, value in parsed.items()}, _environment())


def _environment() -> dict[str, str]:
    # The key of another endpoint is no setting of a server's, whatever command finds it here.
    return {name: value for name, value in os.environ.items() if name != transfers.KEY_VARIABLE}


def _program() -> tuple[CommandParser, _Commands]:
    """The parser, with `serve` as its only command."""
    program = CommandParser(
        prog="armillary",
        description="An open, partitioned multi-model database that speaks the protocols of Azure Cosmos DB.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser: argparse.ArgumentParser = program
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.default = None
    serve = _command(commands, "serve", "start the server")
    for option in ACCEPTED.values():
        _add(serve, option)
    return program, commands


def _server_parser() -> argparse.ArgumentParser:
    """For `armillary serve`: to describe the arguments of all commands takes longer than to open a database."""
    return _program()[0]


def _parser() -> argparse.ArgumentParser:
    program, commands = _program()
    parser: argparse.ArgumentParser = program
    demo = _command(commands, "demo", "take a guided tour on a server of its own: a hot key, 429s, a split, the fix")
    demo.add_argument("--yes", action="store_true", help="run through all steps without waiting for Enter")
    check = _command(commands, "check", "verify every invariant of a data directory and name what is wrong")
    check.add_argument("directory", metavar="DIR", type=Path, help="a data directory that no server is using")
    meaning = "move items that lie in another partition than their key says, after a copy of DIR was made beside it"
    check.add_argument("--repair", action="store_true", help=meaning)
    upgrade = _command(commands, "upgrade", "bring a data directory to the newest format, and keep the former state")
    upgrade.add_argument("directory", metavar="DIR", type=Path, help="a data directory that no server is using")
    upgrade.add_argument("--commit", action="store_true", help="keep the upgrade, and remove the state before it")
    upgrade.add_argument("--rollback", action="store_true", help="go back to the state before the upgrade")
    processes = _command(commands, "processes", "show or change how many processes hold a data directory's partitions")
    processes.add_argument("directory", metavar="DIR", type=Path, help="a data directory that no server is using")
    meaning = "move partitions so that N processes hold all of them, about as many each (default: show where they are)"
    processes.add_argument("--count", metavar="N", type=int, help=meaning)
    processes.add_argument("--json", action="store_true", help="print JSON, for programs")
    trust = _command(commands, "trust", "say where the development certificate is and how to install it")
    for name in ("data", "host", "advertise", "config"):
        _add(trust, OPTIONS[name])
    meaning = "write a trust store with the certificate for Java (PKCS 12; default: armillary-truststore.p12)"
    trust.add_argument(
        "--java", metavar="FILE", nargs="?", type=Path, const=Path("armillary-truststore.p12"), help=meaning
    )
    server_commands.add_parsers(commands, _command)
    testing_commands.add_parsers(commands, _command)
    query_commands.add_parsers(commands, _command)
    cluster_commands.add_parsers(commands, _command)
    transfers.add_parsers(commands, _command)
    foresight_commands.add_parsers(commands, _command)
    advise_commands.add_parsers(commands, _command)
    guide.add_parsers(commands, _command)
    add_config_parsers(commands, _command, _add)
    add_runtime_parser(commands, _command)
    add_emulator_parser(commands, _command, _add)
    health = _command(commands, "health", "ask a server whether it is ready; exit code 0 if it is")
    for name in ("data", "config"):
        _add(health, OPTIONS[name])
    health.add_argument("--url", metavar="URL", help="its address (default: its --health-port, or as its data says)")
    _command(commands, "version", "print the version")
    program.overview = overview(parser)
    return parser


def _command(commands: _Commands, name: str, meaning: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=meaning,
        description=meaning[0].upper() + meaning[1:] + ".",
        allow_abbrev=False,
        # Only what was given appears among the arguments; defaults are the settings' own.
        argument_default=argparse.SUPPRESS,
    )


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    meaning = f"{option.meaning} (default: {option.default_text}; {option.variable})".replace("%", "%%")
    if option.is_flag:
        parser.add_argument(f"--{option.name}", action=argparse.BooleanOptionalAction, help=meaning)
    else:
        action = parser.add_argument(f"--{option.name}", metavar=option.name.rpartition("-")[2].upper(), help=meaning)
        offer_words(action, option.words)
