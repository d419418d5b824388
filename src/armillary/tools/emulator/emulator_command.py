"""`armillary emulator`: the server in the place of the official emulator's image. It takes what `armillary serve` takes
and the variables and arguments of that image (`emulator_environment.py`), and opens the image's ports. The image of
this project starts it; outside of containers it listens on loopback, as `armillary serve` does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from armillary.tools.emulator.emulator_environment import VNEXT_ARGUMENTS, defaults, translate
from armillary.tools.options import Option
from armillary.tools.resolve import examine, exposures
from armillary.tools.screen import printable
from armillary.tools.settings import ACCEPTED, Settings

REFUSED: Final = 2
_ALONE: Final = ("enable-explorer", "enable-otlp", "enable-console", "enable-telemetry")  # which need no value


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    add_command: Callable[..., argparse.ArgumentParser],
    add_option: Callable[[argparse.ArgumentParser, Option], None],
) -> None:
    parser = add_command(commands, "emulator", "start the server with the variables of the official emulator's image")
    for variable, name in VNEXT_ARGUMENTS.items():
        if name not in ACCEPTED:
            meaning = f"of the emulator's image, as the variable {variable}"
            alone: dict[str, Any] = {"nargs": "?", "const": "true"} if name in _ALONE else {}
            parser.add_argument(f"--{name}", metavar="VALUE", help=meaning, **alone)
    for option in ACCEPTED.values():
        add_option(parser, option)


def run_emulator(parsed: Mapping[str, Any], environment: Mapping[str, str]) -> int:
    settings, problems = emulator_settings(parsed, environment)
    if settings is None:
        for each in problems:
            print(f"armillary: {printable(each)}", file=sys.stderr)
        return REFUSED
    from armillary.tools.serving.processes.start import start  # takes time to import

    return start(settings, shows_strings=True)


def emulator_settings(parsed: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[Settings | None, list[str]]:
    """The settings, or what is wrong: every problem at once."""
    given = {name.replace("_", "-"): value for name, value in parsed.items()}
    by_argument = {name: variable for variable, name in VNEXT_ARGUMENTS.items()}
    of_image = {by_argument[name]: given.pop(name) for name in list(given) if name in by_argument}
    translation = translate(environment, of_image)
    examined = examine(given, environment, translation.given, defaults(translation))
    problems = [*translation.problems, *examined.problems]
    if examined.settings is not None:
        problems += exposures(examined.settings)
    if problems or examined.settings is None:
        return None, problems
    return replace(examined.settings, warnings=(*examined.settings.warnings, *translation.notes)), []
