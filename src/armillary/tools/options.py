"""One row of the table of settings: how an option is named and documented, the kinds of values, and the page of
documentation. The table itself is in `settings.py`; where values are found, in `resolve.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any, Final, NamedTuple

from armillary.tools import parsing

ENVIRONMENT_PREFIX: Final = "ARMILLARY_"
FILE_SUFFIX: Final = "-file"  # of the setting that names the file of a secret
CREDENTIAL_PREFIX: Final = "armillary."  # of the same secret among the credentials that systemd hands over


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
    words: tuple[str, ...] = ()  # values that shells complete

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_")


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
    words: tuple[str, ...] = (),
) -> Any:
    is_flag = is_flag or isinstance(default, bool)
    option = Option(name, default_text or str(default), parse, expected, meaning, is_flag, is_number, is_secret)
    option = option._replace(words=words)
    return field(default=default, repr=not is_secret, metadata={"option": option})


def file_option(option: Option) -> Option:
    """The setting beside a secret one that names the file with the secret."""
    meaning = (
        f"A file that holds the value of --{option.name}; a line end after it is dropped. systemd may give the same as "
        f"the credential {CREDENTIAL_PREFIX}{option.name}. Only one of them may be given."
    )
    return _PATH._replace(name=f"{option.name}{FILE_SUFFIX}", meaning=meaning)


_PATH: Final = Option("", "none", parsing.path, "the path of a file", "", False, False, False)

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
    return {"parse": parsing.choice(*words), "expected": "one of " + ", ".join(words), "words": words}


def whole_number(low: int, high: int, step: int = 1, unit: str = "") -> dict[str, Any]:
    what = f"a multiple of {step}" if step > 1 else f"a whole number of {unit}" if unit else "a whole number"
    return {
        "parse": parsing.whole_number(low, high, step),
        "expected": f"{what} from {low} to {high}",
        "is_number": True,
    }


def size_or_zero(default_text: str) -> dict[str, Any]:
    expected = f"0, or a size of at least 1KB such as {default_text}"
    return {**size(default_text), "parse": parsing.size_or_zero, "expected": expected}


def size(default_text: str) -> dict[str, Any]:
    return {
        "parse": parsing.size_bytes,
        "expected": f"a size of at least 1KB such as {default_text}, 2MB or a number of bytes",
        "default_text": default_text,
        "is_number": True,
    }


def document(options: Iterable[Option]) -> str:
    """The text of docs/settings.md."""
    lines = [
        "# Settings of `armillary serve`",
        "",
        "Made from the code by `make docs`; do not edit. A setting is looked for on the command line, then in the",
        "environment, then in the TOML file that `--config` names (there without the leading dashes), then among the",
        "figures of `--profile`, and then has its default. Anything unknown is refused by name, in the file and among",
        "the `ARMILLARY_` variables.",
        "",
        "`armillary config check FILE` names everything that is unknown or wrong at once, and starts nothing.",
        "`armillary config show --origin` shows what is in force and where it comes from, as lines of such a file.",
        "Both take all of these options.",
        "",
        "Each secret may be given as a file, so that it is not on a command line: `--key-file`, or as the credential",
        "`armillary.key` of systemd (`LoadCredential=armillary.key:/etc/armillary/key`), and likewise for the others.",
        "A line end after the value is dropped. Giving a value and a file, or two files, is refused. A file that other",
        "users may read is used, since the secrets of container platforms are such files, and the log warns about it",
        "unless `--data-permissions` is `inherited`. The files are read at the start.",
        "",
        "| Option | Variable | Value | Default | Meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `--{each.name}` | `{each.variable}` | {each.expected} | {each.default_text} | {each.meaning} |"
        for each in options
    ]
    return "\n".join(lines) + "\n"
