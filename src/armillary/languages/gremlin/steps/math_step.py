"""math(): arithmetic in doubles on labels, side effects and the current value. The expression is parsed here into
postfix code; nothing is passed to Python's eval.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.by_modulators import ManyBys
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import LABELLED_PATH, Builder, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.select_and_where import scope_value
from armillary.languages.gremlin.traversers import MISSING, Batch, Traverser
from armillary.languages.gremlin.values.comparing import is_number, kind_of, shown

_WORD: Final = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|([A-Za-z_][A-Za-z0-9_]*)|([-+*/%^(),]))")
FUNCTIONS: Final[dict[str, Callable[[float], float]]] = {
    "abs": abs,
    "acos": math.acos,
    "asin": math.asin,
    "atan": math.atan,
    "cbrt": lambda value: math.copysign(abs(value) ** (1 / 3), value),
    "ceil": lambda value: float(math.ceil(value)),
    "cos": math.cos,
    "cosh": math.cosh,
    "exp": math.exp,
    "floor": lambda value: float(math.floor(value)),
    "log": math.log,
    "log10": math.log10,
    "log1p": math.log1p,
    "log2": math.log2,
    "expm1": math.expm1,
    "signum": lambda value: math.copysign(1.0, value) if value else 0.0,
    "sin": math.sin,
    "sinh": math.sinh,
    "sqrt": math.sqrt,
    "tan": math.tan,
    "tanh": math.tanh,
}
_CONSTANTS: Final = {"pi": math.pi, "e": math.e, "π": math.pi}
Code = list[tuple[str, Any]]  # postfix: ("number", 1.0), ("name", "a"), ("call", f), ("+", None)


class _Expression:
    """Recursive descent parser: sums, products, signs, powers."""

    def __init__(self, text: str) -> None:
        self.words: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _WORD.match(text, at)
            if match is None:
                raise compilation(f"math() does not understand {text[at : at + 10]!r}.")
            number, name, sign = match.groups()
            self.words.append(("number", number) if number else ("name", name) if name else ("sign", sign))
            at = match.end()
        self.at = 0
        self.depth = 0
        self.code: Code = []
        self._sum()
        if self.at < len(self.words):
            raise compilation(f"math() does not expect {self.words[self.at][1]!r} there.")

    def _sign(self) -> str:
        kind, word = self.words[self.at] if self.at < len(self.words) else ("", "")
        return word if kind == "sign" else ""

    def _sum(self) -> None:
        self.depth += 1
        if self.depth > limits.GREMLIN_DEPTH_MAX:
            raise compilation(f"An expression of math() is nested at most {limits.GREMLIN_DEPTH_MAX} deep.")
        self._product()
        while (sign := self._sign()) in ("+", "-"):
            self.at += 1
            self._product()
            self.code.append((sign, None))
        self.depth -= 1

    def _product(self) -> None:
        self._signed()
        while (sign := self._sign()) in ("*", "/", "%"):
            self.at += 1
            self._signed()
            self.code.append((sign, None))

    def _signed(self) -> None:
        negative = 0
        while self._sign() in ("+", "-"):
            negative += self._sign() == "-"
            self.at += 1
        self._power()
        if negative % 2:
            self.code.append(("negate", None))

    def _power(self) -> None:
        self._atom()
        powers = 0
        while self._sign() == "^":
            self.at += 1
            if self._sign() == "-":
                self.at += 1
                self._atom()
                self.code.append(("negate", None))
            else:
                self._atom()
            powers += 1
        self.code.extend([("^", None)] * powers)  # right-associative: 2^3^2 is 2^9

    def _atom(self) -> None:
        if self.at >= len(self.words):
            raise compilation("An expression of math() ends too early.")
        kind, word = self.words[self.at]
        self.at += 1
        if kind == "number":
            self.code.append(("number", float(word)))
        elif kind == "name":
            if word in FUNCTIONS and (self._sign() == "(" or (self.at < len(self.words) and not self._sign())):
                self._atom()
                self.code.append(("call", FUNCTIONS[word]))
            elif word in _CONSTANTS:
                self.code.append(("number", _CONSTANTS[word]))
            else:
                self.code.append(("name", word))
        elif word == "(":
            self._sum()
            if self._sign() != ")":
                raise compilation("A parenthesis of math() is not closed.")
            self.at += 1
        else:
            raise compilation(f"math() does not expect {word!r} there.")


def compute(code: Code, values: dict[str, float]) -> float:
    stack: list[float] = []
    try:
        for kind, value in code:
            if kind == "number":
                stack.append(value)
            elif kind == "name":
                stack.append(values[value])
            elif kind == "call":
                stack.append(float(value(stack.pop())))
            elif kind == "negate":
                stack.append(-stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(_OPERATORS[kind](left, right))
        return stack.pop()
    except (ValueError, TypeError):
        return math.nan
    except OverflowError:
        return math.inf


def _divide(left: float, right: float) -> float:
    if right == 0:
        raise execution("Division by zero!")
    return left / right


def _remainder(left: float, right: float) -> float:
    if right == 0:
        raise execution("Division by zero!")
    return math.fmod(left, right)


_OPERATORS: Final[dict[str, Callable[[float, float], float]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": _remainder,
    "^": math.pow,
}


class MathStep(ManyBys, WaitingStep):
    name = "math"
    needs_path = LABELLED_PATH

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.code = _Expression(text).code
        self.names = list(dict.fromkeys(name for kind, name in self.code if kind == "name"))

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        if self.names == ["_"]:
            await self.bys.prepare(batch, run)
        for each in batch:
            values: dict[str, float] = {}
            for at, name in enumerate(self.names):
                value = await self._value(name, at, each, run)
                if value is MISSING:
                    break
                if not is_number(value):
                    raise execution(
                        f"The variable {name} for math() step must resolve to a Number - it is instead of type "
                        f"{kind_of(value)} with value {shown(value):.60}"
                    )
                try:
                    values[name] = float(value)
                except OverflowError:
                    values[name] = math.inf
            else:
                found.append(each.to(compute(self.code, values)))
        return found

    async def _value(self, name: str, at: int, traverser: Traverser, run: Run) -> Any:
        if name == "_":
            return await self.bys.at(at).of(traverser.value, traverser, run)
        value = await scope_value(traverser, name, run)
        return MISSING if value is MISSING else await self.bys.at(at).of(value, traverser, run)


@builds("math")
def _math(builder: Builder, arguments: Arguments) -> Step:
    return MathStep(arguments.text())
