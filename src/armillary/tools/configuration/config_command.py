"""`armillary config check`, which names every unknown or wrong setting at once, and `armillary config show`, which
shows the settings in force and where each comes from. Both take what `armillary serve` takes, and look where it looks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from armillary.errors import bad_request
from armillary.tools.options import Option
from armillary.tools.resolve import Examined, examine, exposures
from armillary.tools.screen import Screen, printable
from armillary.tools.settings import ACCEPTED, OPTIONS, Settings

REFUSED: Final = 2
_HIDDEN: Final = "(hidden)"
AddCommand = Callable[..., argparse.ArgumentParser]
AddOption = Callable[[argparse.ArgumentParser, Option], None]


def add_parsers(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], add_command: AddCommand, add_option: AddOption
) -> None:
    config = add_command(commands, "config", "check and show the settings of a server")
    verbs = config.add_subparsers(dest="verb", required=True, metavar="check|show")
    check = add_command(verbs, "check", "name every unknown or wrong setting, and start nothing")
    check.add_argument("file", metavar="FILE", nargs="?", help="a configuration file, as --config")
    show = add_command(verbs, "show", "show the settings in force; secrets are hidden")
    show.add_argument("--origin", action="store_true", help="show where each setting comes from")
    for parser in (check, show):
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
        for option in ACCEPTED.values():
            add_option(parser, option)


def run_config(arguments: dict[str, Any], environment: Mapping[str, str] | None = None) -> int:
    verb = arguments.pop("verb")
    screen = Screen(is_json=arguments.pop("json", False))
    has_origin = arguments.pop("origin", False)
    file = arguments.pop("file", None)
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    if file is not None:
        if "config" in given:
            raise bad_request("Name the configuration file once: as FILE, or with --config.")
        given["config"] = file
    examined = examine(given, os.environ if environment is None else environment)
    problems = list(examined.problems)
    if examined.settings is not None:
        problems += exposures(examined.settings)
    if verb == "check" or problems:
        return _check(screen, examined, problems)
    assert examined.settings is not None, "there are no problems"
    _show(screen, examined.settings, examined, has_origin=has_origin)
    return 0


def _check(screen: Screen, examined: Examined, problems: list[str]) -> int:
    warnings = list(examined.settings.warnings) if examined.settings is not None else []
    if screen.is_json:
        screen.content({"isValid": not problems, "problems": problems, "warnings": warnings})
    else:
        for each in problems:
            print(f"armillary: {printable(each)}", file=sys.stderr)
        for each in warnings:
            print(f"armillary: warning: {printable(each)}", file=sys.stderr)
        if not problems:
            origins = Counter(given.origin for given in examined.given.values())
            counts = ", ".join(f"{number} from {_PLACES.get(origin, origin)}" for origin, number in origins.items())
            screen.say(f"The settings are valid: {counts or 'all have their defaults'}.")
    return REFUSED if problems else 0


_PLACES: Final = {"command line": "the command line", "environment": "the environment", "file": "the file"}


def _show(screen: Screen, settings: Settings, examined: Examined, *, has_origin: bool) -> None:
    shown = [shown_setting(settings, name) for name in OPTIONS]
    if screen.is_json:
        sources = {name: given.source for name, given in examined.given.items()}
        screen.content({"settings": [{**each, "source": sources.get(each["name"])} for each in shown]})
        return
    for each in shown:
        given = examined.given.get(each["name"])
        origin = each["from"] if given is None or each["from"].startswith("profile ") else given.source
        screen.say(_line(each) + (f"  # {origin}" if has_origin else ""))


def _line(shown: Mapping[str, Any]) -> str:
    """A line of a configuration file that says the same. What need not or cannot stand there is a comment: defaults,
    secrets, and the name of the file itself."""
    name, value = shown["name"], shown["value"]
    if shown["isSecret"] and shown["isSet"]:
        text = _HIDDEN
    elif value is None:  # what holds then depends on other settings, or is found when the server starts
        text = f"({OPTIONS[name].default_text})"
    else:
        text = json.dumps(value)  # strings, numbers and truths are written in TOML as in JSON
    is_live = shown["from"] in ("command line", "environment", "file") and not shown["isSecret"] and name != "config"
    return f"{'' if is_live else '# '}{name} = {text}"


def shown_setting(settings: Settings, name: str) -> dict[str, Any]:
    """One setting for a program: its value, unless it is secret, and where the value comes from."""
    option = OPTIONS[name]
    value = getattr(settings, option.attribute)
    is_plain = isinstance(value, str | int | bool | None)
    return {
        "name": name,
        "value": None if option.is_secret else value if is_plain else str(value),
        "from": settings.sources.get(name, "default"),
        "isSecret": option.is_secret,
        "isSet": name in settings.sources,
        "meaning": option.meaning,
    }
