"""`armillary completion bash|zsh|fish`: a script that completes commands, verbs, options and their values. It is made
from the parsers, so it knows what the program knows, and runs nothing of the program while completing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final, NamedTuple

from armillary.tools.guide.command_parser import commands_of, meanings_of, offered_words, option_actions

_FILES: Final = frozenset(("FILE", "DIR", "SOURCE", "SINK", "CONFIG", "DATA"))


class Value(NamedTuple):
    """What follows an option."""

    choices: tuple[str, ...] = ()
    is_file: bool = False


class Option(NamedTuple):
    name: str  # in its long form
    meaning: str
    value: Value | None  # None: it is a flag


class Node(NamedTuple):
    """A command: what may follow it."""

    path: tuple[str, ...]
    commands: dict[str, str]  # with their sentences
    options: tuple[Option, ...]
    words: tuple[str, ...]  # values of positional arguments


def nodes(parser: argparse.ArgumentParser, path: tuple[str, ...] = ("armillary",)) -> Iterator[Node]:
    """The tree of commands, from the program on."""
    options = [
        Option(name, _plain(action.help), _value(action))
        for action in option_actions(parser)
        for name in action.option_strings
        if name.startswith("--")
    ]
    positional = [action for action in parser._actions if not action.option_strings]
    words = [
        str(choice)
        for action in positional
        if action.choices is not None and not isinstance(action, argparse._SubParsersAction)
        for choice in action.choices
    ]
    yield Node(path, {name: _plain(text) for name, text in meanings_of(parser).items()}, tuple(options), tuple(words))
    for name, child in commands_of(parser).items():
        yield from nodes(child, (*path, name))


def _value(action: argparse.Action) -> Value | None:
    if action.nargs == 0:
        return None
    return Value(offered_words(action), action.metavar in _FILES)


def _plain(text: str | None) -> str:
    """The first words of a help text, without characters that a shell would read."""
    first = (text or "").replace("%%", "%").partition(" (default")[0].partition(";")[0]
    return "".join(each for each in first if each not in "'\"`$\\[]:!")[:70].strip()


def completion_script(shell: str, parser: argparse.ArgumentParser) -> str:
    tree = list(nodes(parser))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](tree)


def _name(node: Node) -> str:
    return " ".join(node.path)


def _descent(tree: list[Node], separator: str) -> str:
    """The paths of all commands but the program's own, quoted."""
    return separator.join(f'"{_name(node)}"' for node in tree if len(node.path) > 1)


def _place(node: Node, option: Option) -> str:
    """The pattern of a case of bash and zsh: the word before is this option of this command."""
    return f'    "{_name(node)} {option.name}")'


def _bash(tree: list[Node]) -> str:
    lines = [
        "# Completion of armillary for bash. Add to ~/.bashrc:  source <(armillary completion bash)",
        "_armillary() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" at="armillary" words="" i',
        "  COMPREPLY=()",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "$at ${COMP_WORDS[i]}" in',
        f'      {_descent(tree, "|")}) at="$at ${{COMP_WORDS[i]}}" ;;',
        "    esac",
        "  done",
        '  case "$at $prev" in',
    ]
    for node in tree:
        for option in node.options:
            if option.value is None:
                continue
            place = _place(node, option)
            if option.value.choices:
                choices = " ".join(option.value.choices)
                lines.append(f'{place} COMPREPLY=($(compgen -W "{choices}" -- "$cur")); return ;;')
            elif option.value.is_file:
                lines.append(f'{place} COMPREPLY=($(compgen -f -- "$cur")); return ;;')
            else:
                lines.append(f"{place} return ;;")
    lines += ["  esac", '  case "$at" in']
    for node in tree:
        offered = " ".join((*node.commands, *node.words, *(option.name for option in node.options)))
        lines.append(f'    "{_name(node)}") words="{offered}" ;;')
    lines += [
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        "complete -o default -F _armillary armillary",
        "",
    ]
    return "\n".join(lines)


def _zsh(tree: list[Node]) -> str:
    lines = [
        "#compdef armillary",
        "# Completion of armillary for zsh. Add to ~/.zshrc:  source <(armillary completion zsh)",
        "_armillary() {",
        '  local at="armillary" word',
        "  local -a offered",
        '  for word in "${(@)words[2,CURRENT-1]}"; do',
        '    case "$at $word" in',
        f'      {_descent(tree, "|")}) at="$at $word" ;;',
        "    esac",
        "  done",
        '  case "$at ${words[CURRENT-1]}" in',
    ]
    for node in tree:
        for option in node.options:
            if option.value is None:
                continue
            place = _place(node, option)
            if option.value.choices:
                lines.append(f"{place} compadd -- {' '.join(option.value.choices)}; return ;;")
            else:
                lines.append(f"{place} {'_files' if option.value.is_file else ':'}; return ;;")
    lines += ["  esac", '  case "$at" in']
    for node in tree:
        entries = [f"'{name}:{text}'" for name, text in node.commands.items()]
        entries += [f"'{word}'" for word in node.words]
        entries += [f"'{option.name}:{option.meaning}'" for option in node.options]
        lines.append(f'    "{_name(node)}") offered=({" ".join(entries)}) ;;')
    lines += [
        "  esac",
        "  _describe -t commands armillary offered || _files",
        "}",
        "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }",
        "compdef _armillary armillary",
        "",
    ]
    return "\n".join(lines)


def _fish(tree: list[Node]) -> str:
    lines = [
        "# Completion of armillary for fish. Save as ~/.config/fish/completions/armillary.fish",
        "function __armillary_at",
        "  set -l at armillary",
        "  for word in (commandline -opc)[2..-1]",
        '    switch "$at $word"',
        f"      case {_descent(tree, ' ')}",
        '        set at "$at $word"',
        "    end",
        "  end",
        '  test "$at" = "$argv[1]"',
        "end",
    ]
    for node in tree:
        beginning = f"complete -c armillary -n \"__armillary_at '{_name(node)}'\""
        for name, text in node.commands.items():
            lines.append(f"{beginning} -f -a '{name}' -d '{text}'")
        if node.words:
            lines.append(f"{beginning} -f -a '{' '.join(node.words)}'")
        for option in node.options:
            line = f"{beginning} -l {option.name.removeprefix('--')} -d '{option.meaning}'"
            if option.value is not None and option.value.choices:
                line += f" -x -a '{' '.join(option.value.choices)}'"
            elif option.value is not None:
                line += " -r" if option.value.is_file else " -x"
            lines.append(line)
    return "\n".join([*lines, ""])
