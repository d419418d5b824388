"""Regular expressions: the automaton against Python's `re` on random patterns and texts, Perl's syntax by example, and
patterns that take forever elsewhere.
"""

from __future__ import annotations

import random
import re
import time

import pytest
from support.portions import Amount

from armillary.errors import Failure, Kind
from armillary.languages.sql.library.strings import regex_match
from armillary.model.values import UNDEFINED
from armillary.query.text.pattern_matching import Automaton, Matcher
from armillary.query.text.patterns import parse_pattern

ATOMS = [
    "a",
    "b",
    "\n",
    ".",
    "[ab]",
    "[^a]",
    r"\w",
    r"\W",
    r"\d",
    r"\s",
    "^",
    "$",
    r"\b",
    r"\B",
    r"\A",
    r"\Z",
    "é",
    "[b-d]",
]
QUANTIFIERS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,1}", "*?", "+?"]


def random_pattern(dice: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(dice.randint(1, 3)):
        if depth < 3 and dice.random() < 0.3:
            opening = dice.choice(["(", "(?:", "(?i:"])
            atom = opening + random_pattern(dice, depth + 1) + ")"
        else:
            atom = dice.choice(ATOMS)
        parts.append(
            atom
            + (dice.choice(QUANTIFIERS) if atom not in ("^", "$") and atom not in (r"\b", r"\B", r"\A", r"\Z") else "")
        )
    joined = "".join(parts)
    return joined + "|" + dice.choice(ATOMS) if dice.random() < 0.2 else joined


def test_automaton_finds_what_re_finds(amount: Amount) -> None:
    seed = 7
    dice = random.Random(seed)
    for _ in range(amount(2_000)):
        pattern = random_pattern(dice)
        modifiers = "".join(dice.sample("msi", dice.randint(0, 2)))
        flags = re.ASCII
        for name in modifiers:
            flags |= {"m": re.MULTILINE, "s": re.DOTALL, "i": re.IGNORECASE}[name]
        expected_by = re.compile(pattern.replace(r"\Z", r"(?:\Z|(?=\n\Z))"), flags)
        node = parse_pattern(pattern, modifiers)
        automaton, matcher = Automaton(node), Matcher(node)
        for _ in range(4):
            text = "".join(dice.choices("abcAB \n_1é", k=dice.randrange(8)))
            if not text and r"\B" in pattern:
                continue  # Python alone thinks that the empty text has no place without an edge
            expected = expected_by.search(text) is not None
            found = automaton.occurs_in(text)
            assert found == expected, f"{pattern!r} {modifiers} in {text!r}: {found}, seed {seed}"
            assert matcher.occurs_in(text) == expected, f"{pattern!r} {modifiers} in {text!r}, seed {seed}"


@pytest.mark.parametrize(
    ("text", "pattern", "modifiers", "expected"),
    [
        ("abcd", "ab c", "x", True),
        ("ab c", "ab[ ]c # a comment", "x", True),
        ("abcd", "aB c", "ix", True),
        ("salt3824908", "salt{1}", "", True),
        ("a{b}", "a{b}", "", True),
        ("x-y", "[x-]-[-y]", "", True),
        ("]", "[]]", "", True),
        ("q", "[^]]", "", True),
        ("7", "[[:digit:]]", "", True),
        ("é", r"\p{L}", "", True),
        ("é", r"\w", "", False),
        ("É", "é", "i", True),
        ("é", r"[\p{Ll}0-9]+$", "", True),
        ("5", r"\P{L}", "", True),
        ("٣", r"\d", "", False),
        ("a.c", r"a\.c", "", True),
        ("a+b", r"\Qa+b\E", "", True),
        ("aa", r"(a)\1", "", True),
        ("ab", r"(?<x>a)\k<x>", "", False),
        ("foobar", "foo(?=bar)", "", True),
        ("foobaz", "foo(?!baz)", "", False),
        ("price: 5", r"(?<=: )\d", "", True),
        ("Passw0rd", r"^(?=.*[a-z])(?=.*\d).{8,}$", "", True),
        ("aaa", "a++a", "", False),
        ("a\nb", "a$", "", False),
        ("a\n", "a$", "", True),
        ("a\n", r"a\z", "", False),
        ("a\nb", "(?m)a$", "", True),
        ("ABC", "a(?i)b", "", False),
        ("aBC", "a(?i)b", "", True),
        ("aBc", "a(?i:b)C", "", False),
        ("a\tb", r"a\x09b", "", True),
        ("😀", "^.$", "", True),
        ("😀", r"\x{1F600}", "", True),
        ("line\r\n", r"line\R\z", "", True),
        ("", "", "", True),
        ("abc", "(", "", UNDEFINED),
        ("abc", "a)", "", UNDEFINED),
        ("abc", "[", "", UNDEFINED),
        ("abc", "*a", "", UNDEFINED),
        ("abc", "a**", "", UNDEFINED),
        ("abc", "[c-a]", "", UNDEFINED),
        ("abc", r"\q", "", UNDEFINED),
        ("abc", r"(a)\2", "", UNDEFINED),
        ("abc", "a", "g", UNDEFINED),
        ("abc", "a" * 20_000, "", UNDEFINED),
    ],
)
def test_example(text: str, pattern: str, modifiers: str, expected: object) -> None:
    assert regex_match(text, pattern, modifiers) is expected


@pytest.mark.parametrize("pattern", ["(?R)", "(?1)", r"\X", r"\p{Greek}", "(?(1)a|b)", "(*FAIL)", r"(?<=a+)b"])
def test_what_is_not_supported_is_named(pattern: str) -> None:
    with pytest.raises(Failure) as caught:
        regex_match("abc", pattern)
    assert caught.value.kind is Kind.UNSUPPORTED


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("(a+)+$", "a" * 50_000 + "b", False),
        ("(a|aa)+$", "a" * 50_000 + "b", False),
        ("(a*)*b", "a" * 50_000, False),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 50_000, False),
        ("(x+x+)+y", "x" * 50_000 + "y", True),
        (".*.*.*=.*", "a" * 50_000, False),
        (r"\s*,\s*,", " " * 50_000, False),
        ("a?" * 30 + "a" * 30, "a" * 30, True),
    ],
)
def test_patterns_that_take_forever_elsewhere(pattern: str, text: str, expected: bool) -> None:
    started = time.thread_time()
    assert regex_match(text, pattern) is expected
    assert time.thread_time() - started < 2  # of work: some 10 ms


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a+)+\1$", "a" * 40 + "b"),  # exponential, and nothing for an automaton
        ("(?:a{1000}){1000}", "a" * 50),
        (
            "[ab]*a[ab]{300}c",
            "".join(random.Random(3).choices("ab", k=20_000)),
        ),  # as many states as there are characters
        ("(" * 100 + ")" * 100, "a"),
    ],
)
def test_too_much_is_refused_quickly(pattern: str, text: str) -> None:
    started = time.thread_time()
    with pytest.raises(Failure) as caught:
        regex_match(text, pattern)
    assert caught.value.kind is Kind.BAD_REQUEST
    assert time.thread_time() - started < 5


def test_what_is_remembered_is_bounded() -> None:
    matcher = Automaton(parse_pattern("(?:.a|.b)*c", ""))
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000))) * 3 + "c"
    assert matcher.occurs_in(text)
    assert matcher._remembered < 25_000
