"""String steps: toUpper(), trim(), replace(), split(), substring(), concat(), format() and the like. Nulls pass
unchanged; other types are refused; the local forms apply to the members of a list. asDate(), asBool() and asNumber()
are in `conversions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.by_modulators import ManyBys, property_value
from armillary.languages.gremlin.errors import compilation, execution, too_much
from armillary.languages.gremlin.pipeline import (
    LABELLED_PATH,
    Builder,
    Pipeline,
    PlainStep,
    Scope,
    Step,
    WaitingStep,
    builds,
)
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.steps.select_and_where import scope_value
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.syntax.tokens import Scope as ScopeToken
from armillary.languages.gremlin.traversers import MISSING, Batch, Traverser
from armillary.languages.gremlin.values.comparing import kind_of, shown, text_of
from armillary.languages.gremlin.values.elements import ATTRIBUTED, Path
from armillary.languages.gremlin.values.typed_values import Uuid
from armillary.work import make, spend

_COUNTED: Final = 256  # characters; the work on shorter texts is not metered by size
_PART_BYTES: Final = 64
_TAKES_TEXT: Final = "() step can only take string as argument"


class TextStep(PlainStep):
    """Applies a function to each text."""

    def __init__(self, name: str, change: Callable[[str], Any], is_local: bool) -> None:
        self.name = name
        self.change = change
        self.is_local = is_local

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(self._of(each.value)) for each in batch]

    def _of(self, value: Any) -> Any:
        if self.is_local and isinstance(value, list):
            spend(5 * len(value))
            return [self._one(each) for each in value]
        if self.is_local and isinstance(value, Path):
            return [self._one(each) for each in value.objects]
        return self._one(value)

    def _one(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, str) or isinstance(value, Uuid):
            taken = "(local) step can only take string or list of strings" if self.is_local else _TAKES_TEXT
            raise execution(f"The {self.name}{taken}, not {kind_of(value)}.")
        if len(value) > _COUNTED:
            make(len(value))
            spend(len(value) // 30)
        return self.change(value)


_SIMPLE: Final[dict[str, Callable[[str], Any]]] = {
    "toUpper": str.upper,
    "toLower": str.lower,
    "length": lambda text: len(text.encode("utf-16-le", "surrogatepass")) // 2,
    "trim": lambda text: text.strip(),
    "lTrim": lambda text: text.lstrip(),
    "rTrim": lambda text: text.rstrip(),
}


@builds("toUpper", "toLower", "length", "trim", "lTrim", "rTrim")
def _simple(builder: Builder, arguments: Arguments) -> Step:
    is_local = arguments.scope() is ScopeToken.local
    return TextStep(arguments.step, _SIMPLE[arguments.step], is_local)


@builds("replace")
def _replace(builder: Builder, arguments: Arguments) -> Step:
    is_local = arguments.scope() is ScopeToken.local
    old, new = arguments.text_or_null(), arguments.text_or_null()

    def change(text: str) -> str:
        if old is None or new is None:
            return text
        length = text.count(old) * len(new) + len(text)
        if length > limits.GREMLIN_TEXT_CHARACTERS_MAX:
            raise _too_long()
        make(length)
        return text.replace(old, new)

    return TextStep("replace", change, is_local)


@builds("split")
def _split(builder: Builder, arguments: Arguments) -> Step:
    is_local = arguments.scope() is ScopeToken.local
    separator = arguments.text_or_null()

    def change(text: str) -> list[str]:
        make(_PART_BYTES * (text.count(separator or " ") + 1))
        if not separator:
            return text.split()
        # As in TinkerPop, empty parts are left out, except after the last separator.
        *parts, last = text.split(separator)
        return [part for part in parts if part] + [last] if text else []

    return TextStep("split", change, is_local)


@builds("substring")
def _substring(builder: Builder, arguments: Arguments) -> Step:
    is_local = arguments.scope() is ScopeToken.local
    begin = arguments.count()
    end = arguments.count() if len(arguments) else None

    def change(text: str) -> str:
        first = max(begin + len(text), 0) if begin < 0 else min(begin, len(text))
        last = len(text) if end is None else max(end + len(text), 0) if end < 0 else min(end, len(text))
        return text[first:last] if last > first else ""

    return TextStep("substring", change, is_local)


class ReverseStep(PlainStep):
    """reverse(): on texts and lists; other values pass unchanged."""

    name = "reverse"

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(self._of(each.value)) for each in batch]

    def _of(self, value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Uuid):
            make(len(value))
            return value[::-1]
        if isinstance(value, list):
            make(8 * len(value))
            return list(reversed(value))
        if isinstance(value, Path):
            return list(reversed(value.objects))
        return value


@builds("reverse")
def _reverse(builder: Builder, arguments: Arguments) -> Step:
    return ReverseStep()


class AsStringStep(PlainStep):
    name = "asString"

    def __init__(self, is_local: bool) -> None:
        self.is_local = is_local

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found = []
        for each in batch:
            value = each.value
            if self.is_local and isinstance(value, Path):
                value = value.objects
            if self.is_local and isinstance(value, list):
                found.append(each.to([None if one is None else text_of(one) for one in value]))
            else:
                found.append(each.to(None if value is None else text_of(value)))
        return found


@builds("asString")
def _as_string(builder: Builder, arguments: Arguments) -> Step:
    return AsStringStep(arguments.scope() is ScopeToken.local)


class ConcatStep(WaitingStep):
    name = "concat"

    def __init__(self, parts: list[str | Pipeline | None]) -> None:
        self.parts = parts

    def children(self) -> Iterable[Pipeline]:
        return [part for part in self.parts if isinstance(part, Pipeline)]

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found = []
        for each in batch:
            texts = [self._text(each.value)]
            for part in self.parts:
                if isinstance(part, Pipeline):
                    first = await part.first(each, run)
                    texts.append(self._text(first.value) if first is not None else None)
                else:
                    texts.append(part)
            known = [text for text in texts if text is not None]
            length = sum(map(len, known))
            if length > limits.GREMLIN_TEXT_CHARACTERS_MAX:
                raise _too_long()
            make(length)
            found.append(each.to("".join(known) if known else None))
        return found

    def _text(self, value: Any) -> str | None:
        if value is not None and not isinstance(value, str):
            raise execution(f"String concat() can only take string as argument, not {kind_of(value)}.")
        return value


@builds("concat")
def _concat(builder: Builder, arguments: Arguments) -> Step:
    parts: list[str | Pipeline | None] = []
    for value in arguments.rest():
        if isinstance(value, Traversal):
            parts.append(builder.pipeline(value))
        elif value is None or isinstance(value, str):
            parts.append(value)
        else:
            raise compilation(f"concat() takes texts and traversals, not {shown(value)}.")
    return ConcatStep(parts)


class FormatStep(ManyBys, WaitingStep):
    """format('%{name} is %{age}'): names are labels, properties or side effects; `%{_}` uses the by() modulators in
    turn.
    """

    name = "format"
    needs_path = LABELLED_PATH

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pieces: list[str] = []  # text, name, text, name, …, text
        rest = text
        while "%{" in rest:
            before, _, after = rest.partition("%{")
            name, closing, rest_after = after.partition("}")
            if not closing:
                break
            self.pieces += [before, name]
            rest = rest_after
        self.pieces.append(rest)

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found = []
        for each in await run.loaded(batch):
            texts = []
            by_count = 0
            for at, piece in enumerate(self.pieces):
                if at % 2 == 0:
                    texts.append(piece)
                    continue
                if piece == "_":
                    value = await self.bys.at(by_count).value(each, run)
                    by_count += 1
                else:
                    value = await self._variable(piece, each, run)
                if value is MISSING or value is None:
                    break
                texts.append(text_of(value))
            else:
                length = sum(map(len, texts))
                if length > limits.GREMLIN_TEXT_CHARACTERS_MAX:
                    raise _too_long()
                make(length)
                found.append(each.to("".join(texts)))
        return found

    async def _variable(self, name: str, traverser: Traverser, run: Run) -> Any:
        if isinstance(traverser.value, ATTRIBUTED):
            value = property_value(traverser.value, name)
            if value is not MISSING:
                return value
        return await scope_value(traverser, name, run)


@builds("format")
def _format(builder: Builder, arguments: Arguments) -> Step:
    return FormatStep(arguments.text())


def _too_long() -> Exception:
    return too_much(f"A text has at most {limits.GREMLIN_TEXT_CHARACTERS_MAX} characters.")
