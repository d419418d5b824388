"""The expression compiler: aggregation expressions to functions of a scope. It handles literals, paths and variables;
operators are defined by the other modules of this package. Those give an operator's function on values; the compiler
parses, counts and evaluates its arguments, and folds constant expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bson.dbref import DBRef

from armillary.languages.mongo.errors import FAILED_TO_PARSE, refusal
from armillary.languages.mongo.expression_context import CURRENT, Context, Expression, Scope
from armillary.languages.mongo.memory_budget import DOCUMENT_BYTES, LIST_BYTES, MEMBER_BYTES, check_growth
from armillary.model.bson.bson_values import MISSING, Document, shell_text
from armillary.work import make, paced, spend

UNKNOWN_EXPRESSION: Final = 168


class Constant:
    """An expression with a constant value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, scope: Scope) -> Any:
        return self.value


Special = Callable[[str, Any, Context], Expression]


@dataclass(frozen=True, slots=True)
class Function:
    """An operator with positional arguments that depends on their values only."""

    evaluate: Callable[..., Any]
    least: int = 1
    most: int | None = 1  # None: no maximum
    count_code: int | None = None  # error code for too few or too many arguments; None: the usual one
    is_keyed: bool = False  # whether the function's first parameter is the context's comparison key


@dataclass(frozen=True, slots=True)
class Named:
    """An operator with named arguments; those not given are MISSING."""

    evaluate: Callable[..., Any]
    required: Mapping[str, int]  # by name: the error code if it is missing
    optional: Sequence[str] = ()
    object_code: int = FAILED_TO_PARSE  # error code if the argument is not an object
    unknown_code: int = FAILED_TO_PARSE
    is_keyed: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


Operator = Function | Named | Special
_OPERATORS: dict[str, Operator] = {}


def define(family: Mapping[str, Operator]) -> None:
    """Registers the operators of a module; `expressions/__init__.py` calls it for all of them."""
    assert not family.keys() & _OPERATORS.keys()
    _OPERATORS.update(family)


def is_operator(name: str) -> bool:
    return name in _OPERATORS


def compile_expression(spec: Any, context: Context) -> Expression:
    """Compiles an expression to a function of a scope (see `Context.scope`)."""
    kind = type(spec)
    spend(20)
    if kind is str:
        return _reference(spec, context) if spec.startswith("$") else Constant(spec)
    if kind is dict:
        return _object(spec, context)
    if kind is list:
        return _array([compile_expression(each, context) for each in spec])
    return Constant(spec)


def compile_over_documents(spec: Any, context: Context) -> Callable[[Document], Any]:
    """Compiles a single expression to a function of a document."""
    expression = compile_expression(spec, context)
    if isinstance(expression, Constant):
        value = expression.value
        return lambda document: value
    units, places = weight(spec), context.scope({})[2:]

    def evaluate(document: Document) -> Any:
        spend(units)
        return expression([document, document, *places])

    return evaluate


_NODE_UNITS: Final = 5


def weight(*specs: Any) -> int:
    """The work units of evaluating expressions once, by the number of their parts. The functions meter work that
    depends on the size of values themselves.
    """
    count = 0
    pending: list[Any] = list(specs)
    while pending:
        spec = pending.pop()
        count += 1
        if type(spec) is dict:
            pending.extend(spec.values())
        elif type(spec) is list:
            pending.extend(spec)
        if count % 1_000 == 0:
            spend(1_000)
    return count * _NODE_UNITS


# Paths and variables.


def _reference(text: str, context: Context) -> Expression:
    if not text.startswith("$$"):
        return path_expression(text[1:], context)
    name, _, path = text[2:].partition(".")
    _check_read_name(name)
    if len(name) < len(text) - 2:
        check_path(text[2:])
    if name == "REMOVE":
        return Constant(MISSING)
    is_local, place = context.place(name)
    parts = path.split(".") if path else []
    if is_local:
        if not parts:
            return lambda scope: scope[place]
        return lambda scope: value_at(scope[place], parts)
    values = context.values
    if not parts:
        return lambda scope: values[place]
    return lambda scope: value_at(values[place], parts)


def _check_read_name(name: str) -> None:
    """Checks the name of a variable that is read. System variables begin with a capital letter."""
    if not name:
        raise refusal(FAILED_TO_PARSE, "empty variable names are not allowed")
    if name[0].isascii() and not name[0].isalpha():
        raise refusal(FAILED_TO_PARSE, f"'{name}' starts with an invalid character for a user variable name")
    _check_rest(name)


def _check_rest(name: str) -> None:
    if not all(not each.isascii() or each.isalnum() or each == "_" for each in name):
        raise refusal(FAILED_TO_PARSE, f"'{name}' contains an invalid character for a variable name")


def check_path(path: str) -> list[str]:
    """The parts of a field path; an invalid path is refused."""
    if not path:
        raise refusal(40352, "FieldPath cannot be constructed with empty string")
    if path.endswith("."):
        raise refusal(40353, "FieldPath must not end with a '.'.")
    parts = path.split(".")
    for part in parts:
        if not part:
            raise refusal(15998, "FieldPath field names may not be empty strings.")
        if part.startswith("$") and part not in ("$id", "$ref", "$db"):
            raise refusal(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.")
        if "\0" in part:
            raise refusal(16411, "FieldPath field names may not contain '\0'.")
    return parts


def path_expression(path: str, context: Context) -> Expression:
    if not path:
        raise refusal(16872, "'$' by itself is not a valid FieldPath")
    parts = check_path(path)
    _, place = context.place("CURRENT")
    if place != CURRENT:
        return lambda scope: value_at(scope[place], parts)
    first = parts[0]
    if len(parts) == 1:
        return lambda scope: scope[0].get(first, MISSING)
    if len(parts) == 2:
        return _path_of_two(first, parts[1])
    return lambda scope: value_at(scope[0], parts)


def _path_of_two(first: str, second: str) -> Expression:
    rest = [second]

    def get(scope: Scope) -> Any:
        value = scope[0].get(first, MISSING)
        if type(value) is dict:
            return value.get(second, MISSING)
        return value_at(value, rest)

    return get


def value_at(value: Any, parts: Sequence[str], first: int = 0) -> Any:
    """The value at a path. Through an array, it is the list of the values of its documents."""
    for place in range(first, len(parts)):
        if type(value) is dict:
            value = value.get(parts[place], MISSING)
        elif type(value) is list:
            make(16 * len(value))
            inner = [each for each in value if type(each) is dict or type(each) is DBRef]
            return [each for each in [value_at(each, parts, place) for each in paced(inner, 3)] if each is not MISSING]
        elif type(value) is DBRef:
            value = value.as_doc().get(parts[place], MISSING)
        else:
            return MISSING
    return value


def looks_at_documents(spec: Any) -> bool:
    """Whether an expression reads fields, so that it cannot be evaluated without a document."""
    if type(spec) is str:
        return spec.startswith("$") and (spec[1:2] != "$" or spec[2:].partition(".")[0] in ("ROOT", "CURRENT"))
    if type(spec) is dict:
        return any(name not in ("$literal", "$const") and looks_at_documents(each) for name, each in spec.items())
    return type(spec) is list and any(looks_at_documents(each) for each in spec)


# Objects and arrays.


_GROWING: Final = frozenset([str, list, dict])  # values of these types can grow without bounds by nesting


def _object(spec: Document, context: Context) -> Expression:
    name = next(iter(spec), "")
    if name.startswith("$"):
        if len(spec) > 1:
            raise refusal(
                15983, f"an object representing an expression must have exactly one field: {shell_text(spec)}"
            )
        return compile_operator(name, spec[name], context)
    members = []
    for name, each in spec.items():
        if name.startswith("$"):
            raise refusal(
                16410, f"FieldPath field names may not start with '$'. Consider using $getField or $setField. ({name})"
            )
        if "." in name:
            raise refusal(
                16412, f"FieldPath field names may not contain '.'. Consider using $getField or $setField. ({name})"
            )
        members.append((name, compile_expression(each, context)))
    if all(isinstance(expression, Constant) for _, expression in members):
        return Constant(_made(members, []))
    return lambda scope: _made(members, scope)


def _made(members: list[tuple[str, Expression]], scope: Scope) -> Document:
    make(DOCUMENT_BYTES + MEMBER_BYTES * len(members))
    document = {}
    growing = 0
    for name, expression in members:
        value = expression(scope)
        if value is not MISSING:
            document[name] = value
            growing += type(value) in _GROWING
    return check_growth(document) if growing > 1 else document


def _array(elements: list[Expression]) -> Expression:
    def evaluate(scope: Scope) -> list[Any]:
        make(LIST_BYTES + 8 * len(elements))
        made = [None if (value := each(scope)) is MISSING else value for each in elements]
        return check_growth(made) if sum([type(value) in _GROWING for value in made]) > 1 else made

    return folded(evaluate, elements)


def folded(evaluate: Expression, parts: Sequence[Expression]) -> Expression:
    """Constant folding: evaluates the function now if all parts are constants. Errors are raised now too, even in
    branches that would never be taken.
    """
    return Constant(evaluate([])) if all(isinstance(part, Constant) for part in parts) else evaluate


# Operators.


def compile_operator(name: str, spec: Any, context: Context) -> Expression:
    operator = _OPERATORS.get(name)
    if operator is None:
        raise refusal(UNKNOWN_EXPRESSION, f"Unrecognized expression '{name}'")
    if isinstance(operator, Function):
        return _positional(name, operator, spec, context)
    if isinstance(operator, Named):
        return _named(name, operator, spec, context)
    return operator(name, spec, context)


def arguments(spec: Any) -> list[Any]:
    return spec if type(spec) is list else [spec]


def check_count(name: str, count: int, least: int, most: int | None, code: int | None = None) -> None:
    if count >= least and (most is None or count <= most):
        return
    if least == most:
        raise refusal(code or 16020, f"Expression {name} takes exactly {least} arguments. {count} were passed in.")
    if most is None:
        raise refusal(code or 28667, f"Expression {name} needs at least {least} arguments, but had {count}.")
    raise refusal(
        code or 28667,
        f"Expression {name} takes at least {least} arguments, and at most {most}, but {count} were passed in.",
    )


def _positional(name: str, operator: Function, spec: Any, context: Context) -> Expression:
    given = arguments(spec)
    check_count(name, len(given), operator.least, operator.most, operator.count_code)
    parts = [compile_expression(each, context) for each in given]
    return folded(call(operator.evaluate, parts, context.key if operator.is_keyed else None), parts)


def call(function: Callable[..., Any], parts: Sequence[Expression], key: Any = None) -> Expression:
    """A function that evaluates the parts and calls `function`; specialised for common numbers of arguments."""
    if key is not None:
        keyed = function
        function = lambda *values: keyed(key, *values)  # noqa: E731
        if len(parts) == 2:
            first, second = parts
            return lambda scope: keyed(key, first(scope), second(scope))
    if len(parts) == 1:
        (only,) = parts
        return lambda scope: function(only(scope))
    if len(parts) == 2:
        first, second = parts
        return lambda scope: function(first(scope), second(scope))
    if len(parts) == 3:
        first, second, third = parts
        return lambda scope: function(first(scope), second(scope), third(scope))
    return lambda scope: function(*[part(scope) for part in parts])


def named_arguments(
    name: str,
    spec: Any,
    required: Mapping[str, int],
    optional: Sequence[str],
    object_code: int = FAILED_TO_PARSE,
    unknown_code: int = FAILED_TO_PARSE,
) -> Document:
    """The named arguments of an operator; missing and unknown ones are refused."""
    if type(spec) is not dict:
        raise refusal(object_code, f"{name} only supports an object as its argument")
    for each in spec:
        if each not in required and each not in optional:
            raise refusal(unknown_code, f"{name} found an unknown argument: {each}")
    for each, code in required.items():
        if each not in spec:
            raise refusal(code, f"Missing '{each}' parameter to {name}")
    return spec


def _named(name: str, operator: Named, spec: Any, context: Context) -> Expression:
    given = named_arguments(
        name, spec, operator.required, operator.optional, operator.object_code, operator.unknown_code
    )
    parts: list[Expression] = []
    for each in (*operator.required, *operator.optional):
        if each in given:
            parts.append(compile_expression(given[each], context))
        else:
            parts.append(Constant(operator.defaults.get(each, MISSING)))
    return folded(call(operator.evaluate, parts, context.key if operator.is_keyed else None), parts)


def check_variable_name(name: Any) -> str:
    """Checks the name of a variable that the user defines: it begins with a lower-case letter, or is CURRENT."""
    if type(name) is not str or not name:
        raise refusal(FAILED_TO_PARSE, "empty variable names are not allowed")
    first = name[0]
    if not (first.islower() or not first.isascii()) and name != "CURRENT":
        raise refusal(FAILED_TO_PARSE, f"'{name}' starts with an invalid character for a user variable name")
    _check_rest(name)
    return name
