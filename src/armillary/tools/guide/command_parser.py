"""The parser of the command line, which says in one sentence what is wrong and what to do next: it names the command or
option that was probably meant. Each command's parser judges its own arguments, so a suggestion is one of its options.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

REFUSED: Final = 2
_LIKENESS_MIN: Final = 0.7
_WORDS: Final = "offered_words"  # an attribute of actions
_ARGUMENT: Final = re.compile(r"argument (?P<name>[^:]+): (?P<what>.*)", re.DOTALL)
_NO_NUMBER: Final = re.compile(r"invalid (?P<kind>int|float) value: (?P<given>.*)", re.DOTALL)
_NUMBERS: Final = {"int": "whole number", "float": "number"}


class CommandParser(argparse.ArgumentParser):
    """A parser of the program, of a command, or of a verb of a command."""

    overview: str | None = None  # printed by --help in the place of argparse's list of commands

    def format_help(self) -> str:
        return self.overview if self.overview is not None else super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuses what it does not know: argparse would leave that to the program's parser, which has no options to
        suggest."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(self._too_much(rest))
        return found, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            meant = suggestion(str(value), action.choices)
            if not meant and " " in self.prog:  # the verbs of one command are few
                meant = f" Give {_either(action.choices)} before it."
            self.error(f"There is no command {f'{self.prog} {value}'!r}.{meant}")
        if action.choices is not None and value not in action.choices:
            listed = list(map(str, action.choices))
            meant = suggestion(str(value), listed)
            if not action.option_strings and "/" in str(value):
                meant = f" The container stands behind it: `{self.prog} {listed[0]} {value}`."
            self.error(f"{argparse._get_action_name(action)}: {value!r} is none of {', '.join(listed)}.{meant}")

    def error(self, message: str) -> NoReturn:
        required = "the following arguments are required: "
        named = _ARGUMENT.fullmatch(message)
        if message.startswith(required):
            message = f"Give {message.removeprefix(required)}."
        elif named is not None:
            wrong = _NO_NUMBER.fullmatch(named["what"])
            what = f"{wrong['given']} is not a {_NUMBERS[wrong['kind']]}" if wrong is not None else named["what"]
            message = f"{named['name']}: {what}."
        program, _, command = self.prog.partition(" ")
        pointer = (
            f"`{program} help {command}` shows the arguments." if command else "`armillary help` lists the commands."
        )
        self.exit(REFUSED, f"{self.prog}: {message} {pointer}\n")

    def _too_much(self, rest: Sequence[str]) -> str:
        first = next((each for each in rest if each.startswith("-")), rest[0])
        if not first.startswith("-"):
            return f"{first!r} is an argument too many."
        name = first.partition("=")[0]
        return f"There is no option {name}.{suggestion(name, options_of(self))}"

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            print(message, end="", file=sys.stderr)
        raise SystemExit(status)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Which of the known words was probably meant, as a sentence; empty if none is like it. Leading dashes are not
    compared, since all options have them."""
    from difflib import get_close_matches  # only for mistakes

    bare = word.strip("-")
    listed = {each.strip("-"): each for each in known}
    found = [each for each in listed if len(bare) >= 3 and each.startswith(bare)][:1]
    found = found or get_close_matches(bare, listed, n=1, cutoff=_LIKENESS_MIN)
    return f" Did you mean {listed[found[0]]}?" if found else ""


def key_path(text: str) -> str:
    """A path of a partition key, as an argument. The rest of its form is judged by the server."""
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with a slash: write /{text}")
    return text


def _either(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


# The tree of commands, as help and completion walk it.


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of the program, or the verbs of a command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def meanings_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Each command with its sentence."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {each.dest: each.help or "" for each in action._choices_actions}
    return {}


def option_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (action for action in parser._actions if action.option_strings)


def offer_words(action: argparse.Action, words: Sequence[str]) -> None:
    """Values of an option that completion offers. Unlike `choices` they do not decide what is accepted: a setting is
    judged where its value is found, in a file and a variable too."""
    setattr(action, _WORDS, tuple(words))


def offered_words(action: argparse.Action) -> tuple[str, ...]:
    words: Iterable[object] = getattr(action, _WORDS, ()) if action.choices is None else action.choices
    return tuple(map(str, words))


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a command in their long forms."""
    return [name for action in option_actions(parser) for name in action.option_strings if name.startswith("--")]
