"""Paths as indexing policies write them, and the canonical text that names a path in the index. What a policy does with
a path is in `indexing.py`; partition-key paths have their own, older rules in `model/keys.py`.

    /a/b/?            the scalar at this path                /*        everything
    /a/*              everything from here on                /         everything, in old policies
    /a/[]/b/?         in any element of an array             /"a-b"/?  quoted, with backslash escapes
    /a/[]/{b, c}/?    a tuple of each element

Canonical text (`path_text`): `/a/[]/b`. A property name that holds `/` or `"`, or reads `[]`, is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from armillary.errors import Failure, bad_request
from armillary.model.json_members import shown

# None stands for any element of an array.
Steps: TypeAlias = tuple[str | None, ...]

SCALAR, SUBTREE, BARE = "?", "*", ""  # how a path ends

_WORD = re.compile(r"\w+")  # letters, digits and _
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TUPLE = re.compile(r"\{([^{}]*)\}")
_CANONICAL_STEP = re.compile(r'/("(?:[^"\\]|\\.)*"|[^/"]*)', re.DOTALL)


class IndexPath(NamedTuple):
    steps: Steps
    ending: str  # SCALAR, SUBTREE or BARE
    members: tuple[Steps, ...] = ()  # of a tuple path; each continues `steps`

    @property
    def is_root(self) -> bool:
        return not self.steps

    @property
    def text(self) -> str:
        text = path_text(self.steps)
        return f"{text}/{{{', '.join([path_text(member)[1:] for member in self.members])}}}" if self.members else text


def parse_index_path(text: str, *, allows_bare: bool = False, allows_tuple: bool = False) -> IndexPath:
    """Read a path of a policy. Bare paths (`/a/b`) stand in composite, vector and full-text indexes and in unique keys;
    everywhere else a path ends in `/?` or `/*`."""
    if text in ("/", "/*"):
        return IndexPath((), SUBTREE)
    steps: list[str | None] = []
    members: tuple[Steps, ...] = ()
    at = 0
    while at < len(text):
        if text[at] != "/":
            raise bad_index_path(text, at)
        at += 1
        rest = text[at:]
        if rest in (SCALAR, SUBTREE) and steps and not (members and rest == SUBTREE):
            return IndexPath(tuple(steps), rest, members)
        if members:
            raise bad_index_path(text, at)
        if rest.startswith("[]") and steps:
            steps.append(None)
            at += 2
        elif rest.startswith("{") and allows_tuple and steps.count(None) == 1:
            members = _tuple_members(text, at)
            at = text.index("}", at) + 1
        else:
            name, at = _step(text, at)
            steps.append(name)
    if not allows_bare or not steps or members:
        raise bad_index_path(text, len(text))
    return IndexPath(tuple(steps), BARE)


def is_plain_path(path: Any) -> TypeGuard[str]:
    """Whether it is a path of property steps only, without wildcards: `/a/b`."""
    if type(path) is not str:
        return False
    try:
        parsed = parse_index_path(path, allows_bare=True)
    except Failure:
        return False
    return parsed.ending == BARE and None not in parsed.steps


def _step(text: str, at: int) -> tuple[str, int]:
    quoted = _QUOTED.match(text, at)
    if quoted:
        return _ESCAPED.sub(r"\1", quoted.group()[1:-1]), quoted.end()
    word = _WORD.match(text, at)
    if not word:
        raise bad_index_path(text, at)
    return word.group(), word.end()


def _tuple_members(text: str, at: int) -> tuple[Steps, ...]:
    """`{name, category/kind}`: no leading slash, no wildcard inside, each once."""
    found = _TUPLE.match(text, at)
    if not found:
        raise bad_index_path(text, at)
    members: list[Steps] = []
    for part in found.group(1).split(","):
        try:
            member = parse_index_path("/" + part.strip(), allows_bare=True)
        except Failure:
            raise bad_index_path(text, at) from None
        if member.ending != BARE or None in member.steps or member.steps in members:
            raise bad_index_path(text, at)
        members.append(member.steps)
    return tuple(members)


def bad_index_path(text: str, position: int) -> Failure:
    return bad_request(
        f"The indexing path '{shown(text)}' could not be accepted, failed near position '{position}'. Please "
        "ensure that the path is a valid path. Common errors include invalid characters or absence of quotes around "
        "labels."
    )


def values_at(document: Any, steps: Steps) -> list[Any]:
    """All values of an item at a path; several where it goes through an array."""
    found = [document]
    for step in steps:
        if step is None:
            found = [element for node in found if type(node) is list for element in node]
        else:
            found = [node[step] for node in found if type(node) is dict and step in node]
    return found


def path_text(steps: Iterable[str | None]) -> str:
    """The name of a path in the index."""
    return "".join(["/" + step_text(step) for step in steps])


def step_text(step: str | None) -> str:
    if step is None:
        return "[]"
    if "/" in step or '"' in step or step == "[]":
        return '"' + step.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return step


@lru_cache(1024)
def text_steps(path: str) -> Steps:
    """The steps behind a canonical path text."""
    steps: list[str | None] = []
    for found in _CANONICAL_STEP.finditer(path):
        step = found.group(1)
        if step == "[]":
            steps.append(None)
        elif step.startswith('"'):
            steps.append(_ESCAPED.sub(r"\1", step[1:-1]))
        else:
            steps.append(step)
    return tuple(steps)
