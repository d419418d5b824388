"""The shape of a traversal: its steps with the constants taken out. Traversals of one shape differ in values only. Of
has(), and of the steps that name properties, the names are kept.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.errors import Failure
from armillary.languages.gremlin.syntax.instructions import Instruction, Traversal
from armillary.languages.gremlin.syntax.lexer import known_words
from armillary.languages.gremlin.values.predicates import P

_NAMING: Final = frozenset(("values", "properties", "valueMap", "by"))  # steps whose texts are names of properties
_STEPS_MAX: Final = 64
_DEPTH_MAX: Final = 8


def shape_of_script(text: str) -> str:
    """Of a text that can be read. The first of two texts in `has()` is the name of a property."""
    try:
        words = [word for word in known_words(text) if word.kind != "end"]
    except Failure:
        return "?"
    parts: list[str] = []
    for place, word in enumerate(words):
        if word.kind not in ("text", "number"):
            parts.append(str(word.value))
            continue
        before = [each.value for each in words[max(0, place - 2) : place]]
        signs = [each.value for each in words[place + 1 : place + 4 : 2]]
        is_name = before == ["has", "("] and signs[:1] == [","] and signs != [",", ","]  # has(label, name, value)
        is_name = is_name or (len(before) == 2 and before[0] in _NAMING and before[1] == "(")
        parts.append(f"'{word.value}'" if is_name and word.kind == "text" else "?")
    return "".join(parts)


def shape_of_bytecode(traversal: Traversal) -> str:
    return "g" + _steps(traversal, 0)


def _steps(traversal: Traversal, depth: int) -> str:
    if depth >= _DEPTH_MAX:
        return "…"
    return "".join([_step(each, depth) for each in traversal.steps[:_STEPS_MAX]])


def _step(step: Instruction, depth: int) -> str:
    shown = []
    for place, argument in enumerate(step.arguments[:_STEPS_MAX]):
        is_name = (step.name == "has" and not place and len(step.arguments) == 2) or step.name in _NAMING
        shown.append(_argument(argument, is_name, depth))
    return f".{step.name}({','.join(shown)})"


def _argument(argument: Any, is_name: bool, depth: int) -> str:
    if isinstance(argument, Traversal):
        return "__" + _steps(argument, depth + 1)
    if isinstance(argument, P):
        return f"{argument.name}(?)"
    return f"'{argument}'" if is_name and isinstance(argument, str) else "?"
