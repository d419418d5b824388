"""The `armillary` command: reads its arguments, finds the settings and calls the tool that was asked for.

Tools are imported when they are called, so that `armillary version` does not wait for a database. Every refusal ends
here, as one sentence on standard error and exit code 2; standard output carries results alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from armillary import __version__
from armillary.errors import Failure, bad_request
from armillary.storage.private import private_umask
from armillary.tools.commands import arguments as server_commands
from armillary.tools.options import Option
from armillary.tools.screen import printable
from armillary.tools.settings import OPTIONS, Settings, resolve
from armillary.tools.transfer import arguments as transfers

REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    with private_umask():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    parsed = vars(_parser().parse_args(arguments))
    command = parsed.pop("command")
    try:
        if command == "serve":
            settings = _settings(parsed)
            settings.check_exposure()
            from armillary.tools.serve import run

            return run(settings)
        if command == "check":
            from armillary.tools.check import check

            is_repairing = parsed.get("repair", False)
            return check(parsed["directory"], _settings({}).data_permissions, is_repairing=is_repairing)
        if command == "trust":
            from armillary.tools.trust import trust

            print(trust(_settings(parsed)))
            return 0
        if command in server_commands.NAMES:
            # Of the settings they take where the server is; the rest of the arguments is their own.
            settings = _settings({name: value for name, value in parsed.items() if name in ("data", "config")})
            from armillary.tools.commands.run import run_command

            return run_command(command, parsed, settings)
        if command in transfers.NAMES:
            parsed.setdefault("remote_key", os.environ.get(transfers.KEY_VARIABLE))
            settings = _settings({name: value for name, value in parsed.items() if name in ("data", "config", "key")})
            from armillary.tools.transfer.command import run_transfer

            return run_transfer(command, parsed, settings)
        if command == "version":
            print(f"armillary {__version__}")
            return 0
        raise bad_request(f"There is no command {command!r}.")
    except Failure as failure:
        print(f"armillary: {printable(failure.message)}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:  # the reader of our output has closed it; the exit must not write to it either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:  # before the server listens to signals
        return 128 + 2


def _settings(parsed: dict[str, object]) -> Settings:
    # The key of another endpoint is no setting of a server's, whatever command finds it here.
    environment = {name: value for name, value in os.environ.items() if name != transfers.KEY_VARIABLE}
    return resolve({name.replace("_", "-"): value for name, value in parsed.items()}, environment)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="armillary",
        description="An open, partitioned multi-model database that speaks the protocols of Azure Cosmos DB.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = _command(commands, "serve", "start the server")
    for option in OPTIONS.values():
        _add(serve, option)
    check = _command(commands, "check", "verify every invariant of a data directory and name what is wrong")
    check.add_argument("directory", metavar="DIR", type=Path, help="a data directory that no server is using")
    meaning = "move items that lie in another partition than their key says, after a copy of DIR was made beside it"
    check.add_argument("--repair", action="store_true", help=meaning)
    trust = _command(commands, "trust", "say where the development certificate is and how to install it")
    for name in ("data", "host", "advertise", "config"):
        _add(trust, OPTIONS[name])
    server_commands.add_parsers(commands, _command)
    transfers.add_parsers(commands, _command)
    _command(commands, "version", "print the version")
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, meaning: str
) -> argparse.ArgumentParser:
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
        parser.add_argument(f"--{option.name}", metavar=option.name.rpartition("-")[2].upper(), help=meaning)
