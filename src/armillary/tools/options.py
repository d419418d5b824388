"""One row of the table of settings: how an option is named and documented, and how its value is found in the
environment and in the configuration file. The table itself is in `settings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, NamedTuple

from armillary.errors import Failure, bad_request
from armillary.tools import parsing

ENVIRONMENT_PREFIX: Final = "ARMILLARY_"


class Option(NamedTuple):
    """One row of the table."""

    name: str  # as on the command line and in the file: sql-port
    default_text: str
    parse: Callable[[str], Any]  # raises ValueError
    expected: str  # what a value must be, for messages and documentation
    meaning: str
    is_flag: bool
    is_number: bool  # the file may give it as a number, not only as text
    is_secret: bool  # never shown
    attribute: str = ""  # of Settings

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_")


class Given(NamedTuple):
    """A value as given, and its source."""

    source: str  # names the place to the reader: --sql-port, ARMILLARY_SQL_PORT, sql-port in armillary.toml
    origin: str  # command line, environment or file
    value: object


def setting(
    name: str,
    default: Any,
    parse: Callable[[str], Any],
    expected: str,
    meaning: str,
    *,
    default_text: str | None = None,
    is_number: bool = False,
    is_secret: bool = False,
    is_flag: bool = False,
) -> Any:
    is_flag = is_flag or isinstance(default, bool)
    option = Option(name, default_text or str(default), parse, expected, meaning, is_flag, is_number, is_secret)
    return field(default=default, repr=not is_secret, metadata={"option": option})


# Kinds of values: how they are parsed, and how messages and documentation name them.

TRUTH: Final[dict[str, Any]] = {"parse": parsing.truth, "expected": "true or false", "default_text": "false"}
PEM_FILE: Final[dict[str, Any]] = {"parse": parsing.path, "expected": "the path of a PEM file", "default_text": "none"}
HOST_AND_PORT: Final[dict[str, Any]] = {
    "parse": parsing.host_and_port,
    "expected": "a host name or address, optionally with a port",
}
PORT: Final[dict[str, Any]] = {
    "parse": parsing.whole_number(0, 65535),
    "expected": "a port from 0 to 65535",
    "is_number": True,
}


def choice(*words: str) -> dict[str, Any]:
    return {"parse": parsing.choice(*words), "expected": "one of " + ", ".join(words)}


def whole_number(low: int, high: int, step: int = 1, unit: str = "") -> dict[str, Any]:
    what = f"a multiple of {step}" if step > 1 else f"a whole number of {unit}" if unit else "a whole number"
    return {
        "parse": parsing.whole_number(low, high, step),
        "expected": f"{what} from {low} to {high}",
        "is_number": True,
    }


def size(default_text: str) -> dict[str, Any]:
    return {
        "parse": parsing.size_bytes,
        "expected": f"a size of at least 1KB such as {default_text}, 2MB or a number of bytes",
        "default_text": default_text,
        "is_number": True,
    }


def of_environment(options: Mapping[str, Option], environment: Mapping[str, str]) -> dict[str, Given]:
    by_variable = {option.variable: name for name, option in options.items()}
    found = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable not in by_variable:
            raise _unknown(f"The environment variable {variable}", variable, by_variable)
        found[by_variable[variable]] = Given(variable, "environment", value)
    return found


def of_file(options: Mapping[str, Option], path: Path) -> dict[str, Given]:
    import tomllib  # only when there is a file: it costs 10 ms of the start

    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise bad_request(f"The configuration file {path} cannot be read: {error.strerror}. Check --config.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise bad_request(
            f"The configuration file {path} is not TOML: {error}. Correct it, or give another with --config."
        ) from None
    names = [name for name in options if name != "config"]
    for name in content:
        if name not in names:
            raise _unknown(f"The setting {name} in {path}", name, names)
    return {name: Given(f"{name} in {path}", "file", value) for name, value in content.items()}


def value_of(option: Option, given: Given) -> Any:
    value = given.value
    is_plain_number = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, bool) and option.is_flag:
        return value
    if isinstance(value, str) or (is_plain_number and option.is_number):
        try:
            return option.parse(str(value))
        except ValueError:
            pass
    shown = "not valid" if option.is_secret else repr(value)
    raise bad_request(f"{given.source} is {shown}; expected {option.expected}.")


def _unknown(what: str, name: str, known: Mapping[str, str] | list[str]) -> Failure:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Remove it; docs/settings.md lists the settings."
    return bad_request(f"{what} is not known. {hint}")
