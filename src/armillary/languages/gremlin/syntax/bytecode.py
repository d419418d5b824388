"""Bytecode to instructions: GraphSON and GraphBinary decode names with arguments, which are checked here and brought
into one form. Lambdas and unknown steps are refused before anything is built.
"""

from __future__ import annotations

from typing import Any

from armillary.languages.gremlin.errors import compilation, malformed, unsupported
from armillary.languages.gremlin.syntax import tokens
from armillary.languages.gremlin.syntax.instructions import (
    SOURCE_STEPS,
    STEPS,
    STRATEGIES,
    CardinalityValue,
    Instruction,
    Strategy,
    Traversal,
    check_transaction,
)
from armillary.languages.gremlin.values import predicates
from armillary.languages.gremlin.values.elements import Path


def traversal_of(source: Any, steps: Any) -> Traversal | CardinalityValue:
    """From two lists of `[name, argument, …]`, arguments decoded. `Cardinality.list('x')` comes this way too."""
    if isinstance(source, list) and len(source) == 1 and source[0][:1] == ["CardinalityValueTraversal"] and not steps:
        _, cardinality, value = _checked(source[0], 3)
        if not isinstance(cardinality, tokens.Cardinality):
            raise malformed("A cardinality was expected.")
        return CardinalityValue(cardinality, value)
    if isinstance(source, list) and len(source) == 1 and source[0][:1] == ["tx"] and not steps:
        _, name = _checked(source[0], 2)
        check_transaction(name)
        return Traversal([Instruction("tx", [name])], [])
    return Traversal(_instructions(source, SOURCE_STEPS), _instructions(steps, STEPS))


def transaction_of(traversal: Traversal) -> str | None:
    """The name of the call if the bytecode is `g.tx().commit()` or a like call; there is nothing to run then."""
    if len(traversal.source) == 1 and traversal.source[0].name == "tx" and not traversal.steps:
        return str(traversal.source[0].arguments[0])
    return None


def _checked(instruction: Any, size: int) -> list[Any]:
    if not isinstance(instruction, list) or len(instruction) != size:
        raise malformed("An instruction of bytecode is a list of a name and its arguments.")
    return instruction


def _instructions(given: Any, names: frozenset[str]) -> list[Instruction]:
    if not isinstance(given, list):
        raise malformed("The instructions of bytecode are a list.")
    found = []
    for each in given:
        if not isinstance(each, list) or not each or not isinstance(each[0], str):
            raise malformed("An instruction of bytecode is a list of a name and its arguments.")
        name = each[0]
        if name not in names:
            raise compilation(f"Unable to find any method '{name}'.")
        arguments = each[1:]
        if name == "withoutStrategies":
            arguments = [strategy_of(value, {}) if isinstance(value, str) else value for value in arguments]
        found.append(Instruction(name, arguments))
    return found


def predicate_of(name: Any, value: Any) -> predicates.P:
    """`g:P` and `g:TextP`: a name with one value, or a list of values for those that take several."""
    if not isinstance(name, str):
        raise malformed("A predicate has a name.")
    if name not in predicates.NAMES or name == "test":
        raise compilation(f"'{name}' is not a predicate.")
    takes_many = name in ("within", "without", "and", "or") or name in predicates.RANGES
    arguments = list(value) if takes_many and isinstance(value, list) else [value]
    if name in ("within", "without"):
        arguments = [arguments] if len(arguments) != 1 or not isinstance(arguments[0], list) else arguments
    return predicates.make(name, arguments)


def strategy_of(name: Any, settings: Any) -> Strategy:
    """By class name, with or without its package."""
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise malformed("A strategy is a name with settings.")
    short = name.rpartition(".")[2].removeprefix("g:")
    if short not in STRATEGIES:
        raise unsupported(f"The strategy {short} is not supported.")
    # Clients repeat the class among the settings.
    plain = {key: value for key, value in settings.items() if isinstance(key, str) and key not in ("strategy", "fqcn")}
    return Strategy(short, plain)


def token_of(family: str, name: Any) -> tokens.Token:
    found = tokens.find(family, name.removesuffix("_")) if isinstance(name, str) else None
    if found is None:
        raise malformed(f"{name!r} is not a {family}.")
    return found


def id_of(value: Any) -> Any:
    """Ids are dictionary keys while a traversal runs, so only texts and numbers are taken."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    raise malformed("The id of an element is a text or a number.")


def path_of(objects: Any, labels: Any) -> Path:
    if not isinstance(objects, list) or not isinstance(labels, list) or not all(isinstance(e, list) for e in labels):
        raise malformed("A path has objects and labels.")
    return Path(objects, [tuple(str(name) for name in each) for each in labels])


def refuse_lambda() -> Exception:
    return compilation("Lambdas are not supported.")
