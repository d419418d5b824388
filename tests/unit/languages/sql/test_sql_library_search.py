"""Vectors and full text: distances, stems of several languages, phrases, near misses, and scores."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from armillary.clock import VirtualClock
from armillary.languages.sql.compiling.compile import compile_query
from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.fulltext import (
    Phrase,
    contains,
    contains_all,
    contains_any,
    count,
    is_near,
)
from armillary.languages.sql.library.scores import Statistics, bm25, fused, joined, ranks
from armillary.languages.sql.library.vectors import vector_distance
from armillary.model.indexes.search_policies import FULL_TEXT_LANGUAGES, FullTextPolicy, VectorPolicy
from armillary.model.values import UNDEFINED
from armillary.query.text.stemming import STOP_WORDS, stem
from armillary.query.text.words import words_of

PLAIN = Context(VirtualClock())


# Vectors.


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (([1, 0], [1, 0]), 1),
        (([1, 0], [-3, 0]), -1),
        (([3, 4, 0], [1, 0, 0]), 0.6),
        (([3, 4], [0, 0], True, {"distanceFunction": "Euclidean"}), 5),
        (([3, 4], [2, 1], False, {"distanceFunction": "DotProduct", "dataType": "Float32"}), 10),
        (([3, 4], [2, 1], False, {"distanceFunction": "manhattan"}), UNDEFINED),
        (([3, 4], [2, 1], False, {"dataType": "text"}), UNDEFINED),
        (([3, 4], [2, 1], 1), UNDEFINED),
        (([3, 4], [2, 1], True, None), UNDEFINED),
        (([3, 4], [2, 1, 0]), UNDEFINED),
        (([[3, 4]], [[2, 1]]), UNDEFINED),
        (([True, 1], [1, 1]), UNDEFINED),
        (([], []), UNDEFINED),
        (([0, 0], [1, 1]), UNDEFINED),
        (("ab", "ab"), UNDEFINED),
    ],
)
def test_vector_distance(arguments: Any, expected: Any) -> None:
    found = vector_distance(PLAIN, "", *arguments)
    assert found is UNDEFINED if expected is UNDEFINED else found == pytest.approx(expected)


def test_the_policy_says_how_vectors_compare() -> None:
    policy = VectorPolicy.parse(
        {"vectorEmbeddings": [{"path": "/v", "dimensions": 2, "dataType": "float32", "distanceFunction": "euclidean"}]}
    )
    context = Context(VirtualClock(), vectors=policy)
    for text, expected in (
        ("VectorDistance(c.v, [0, 0])", 5),
        ("VectorDistance([0, 0], c.v)", 5),
        ("VectorDistance(c.w, [1, 0])", 0.6),
        ("VectorDistance(c.v, [1, 0], true, {distanceFunction: 'cosine'})", 0.6),
    ):
        bound = compile_query(f"SELECT VALUE {text} FROM c").bind({}, context)
        assert bound.evaluate_over([{"v": [3, 4], "w": [3, 4]}]) == [pytest.approx(expected)]


# Words.

PORTER = """caresses caress ponies poni ties ti cats cat feed feed agreed agre plastered plaster motoring motor sing
sing conflated conflat troubled troubl sized size hopping hop tanned tan falling fall hissing hiss fizzed fizz failing
fail filing file happy happi sky sky relational relat conditional condit rational ration digitizer digit operator oper
feudalism feudal decisiveness decis hopefulness hope triplicate triplic formative form formalize formal electrical
electr hopeful hope goodness good revival reviv allowance allow inference infer airliner airlin adjustable adjust
defensible defens irritant irrit replacement replac adjustment adjust dependent depend adoption adopt communism commun
activate activ effective effect bowdlerize bowdler probate probat rate rate cease ceas controll control roll roll"""


def test_english_stems_are_porters() -> None:
    words = PORTER.split()
    for word, expected in zip(words[::2], words[1::2], strict=True):
        assert stem(word, "en-US") == expected, word


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de-DE", "Haus Häuser Hause Hauses"),
        ("de-DE", "Auto Autos"),
        ("es-ES", "libro libros"),
        ("es-ES", "luz luces"),
        ("es-ES", "nación naciones"),
        ("fr-FR", "cheval chevaux"),
        ("fr-FR", "étoile étoiles"),
        ("fr-FR", "l'étoile d'étoiles"),
        ("it-IT", "libro libri"),
        ("it-IT", "dell'acqua acqua"),
        ("pt-BR", "livro livros"),
        ("pt-PT", "coração corações"),
        ("pt-BR", "animal animais"),
    ],
)
def test_forms_of_a_word_have_one_stem(language: str, words: str) -> None:
    assert len({words_of(word, language) for word in words.split()}) == 1


def test_every_language_has_what_it_needs() -> None:
    assert STOP_WORDS.keys() == set(FULL_TEXT_LANGUAGES)
    for language in FULL_TEXT_LANGUAGES:
        assert words_of("Übermäßig 42 x_y don't ½ 😀 中文", language)


def test_words() -> None:
    assert words_of("The comet's TAIL, don't; 42_x", "en-US") == ("comet", "tail", "dont", "42", "x")
    assert words_of("the and of", "en-US") == ()
    assert words_of("", "en-US") == ()


# Searching.

BODY = "Red bicycles parked beside the sundial, with a comet painted on it."


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("comet", True),
        ("COMETS", True),
        ("red bicycle", True),
        ("bicycle red", False),
        ("beside sundial", True),  # the stop word between them is not there
        ("painted bicycle", False),
        ("the", False),
        ("", False),
        ({"term": "sundail", "distance": 2}, True),
        ({"term": "sundail", "distance": 1}, False),
        ({"term": "red bycicle", "distance": 2}, True),
        ({"term": "comet"}, True),
        ({"term": "comet", "distance": 3}, UNDEFINED),
        ({"term": "comet", "more": 1}, UNDEFINED),
        ({"distance": 1}, UNDEFINED),
        (5, UNDEFINED),
        (UNDEFINED, UNDEFINED),
    ],
)
def test_contains(term: Any, expected: Any) -> None:
    assert contains(PLAIN, "/body", BODY, term) is expected


def test_every_and_some_term() -> None:
    assert contains_all(PLAIN, "", BODY, "comet", "sundial") is True
    assert contains_all(PLAIN, "", BODY, "comet", "ecliptic") is False
    assert contains_all(PLAIN, "", BODY, "comet", 5) is UNDEFINED
    assert contains_all(PLAIN, "", BODY, "ecliptic", 5) is False
    assert contains_any(PLAIN, "", BODY, "ecliptic", "sundial") is True
    assert contains_any(PLAIN, "", BODY, "comet", 5) is True
    assert contains_any(PLAIN, "", BODY, "ecliptic", 5) is UNDEFINED
    assert contains_any(PLAIN, "", None, "comet") is UNDEFINED


def test_the_policy_says_which_language() -> None:
    policy = FullTextPolicy.parse({"defaultLanguage": "de-DE", "fullTextPaths": [{"path": "/fr", "language": "fr-FR"}]})
    context = Context(VirtualClock(), full_text=policy)
    item = {"fr": "les chevaux", "de": "die Häuser"}
    query = "SELECT VALUE [FullTextContains(c.fr, 'cheval'), FullTextContains(c.de, 'Haus')] FROM c"
    assert compile_query(query).bind({}, context).evaluate_over([item]) == [[True, True]]
    assert compile_query(query).bind({}, PLAIN).evaluate_over([item]) == [[False, False]]


def test_counting_phrases() -> None:
    words = ("a", "b", "a", "b", "a")
    assert count(words, Phrase(("a",))) == 3
    assert count(words, Phrase(("a", "b", "a"))) == 2
    assert count(words, Phrase(("b", "b"))) == 0
    assert count(words, Phrase(("x",), 1)) == 5


def test_nearness_is_the_edit_distance() -> None:
    def distance(first: str, second: str) -> int:
        if not first or not second:
            return len(first) + len(second)
        rest = distance(first[1:], second[1:]) + (first[0] != second[0])
        return min(rest, distance(first[1:], second) + 1, distance(first, second[1:]) + 1)

    dice = random.Random(11)
    for _ in range(400):
        first, second = ("".join(dice.choices("abc", k=dice.randrange(6))) for _ in range(2))
        for allowed in range(3):
            assert is_near(first, second, allowed) == (distance(first, second) <= allowed), (first, second, allowed)


# Scores.


def test_bm25() -> None:
    statistics = Statistics(documents=10, words=1000, holding=(2, 9))
    rare, frequent = bm25([1, 0], 100, statistics), bm25([0, 1], 100, statistics)
    assert rare == pytest.approx(math.log(1 + 8.5 / 2.5))
    assert rare > frequent > 0
    assert bm25([2, 0], 100, statistics) > rare > bm25([1, 0], 200, statistics)
    assert bm25([0, 0], 100, statistics) == 0
    assert bm25([], 0, Statistics(0, 0, ())) == 0
    assert joined([statistics, Statistics(1, 5, (0, 1))]) == Statistics(11, 1005, (2, 10))


def test_ranks_and_their_fusion() -> None:
    assert ranks([0.5, 2.0, None, 2.0, math.nan]) == [2, 1, 3, 1, 3]
    assert ranks([0.5, 2.0, None], is_reversed=True) == [1, 2, 3]
    assert fused([[3.0, 1.0], [1.0, 3.0]]) == pytest.approx([1 / 61 + 1 / 62] * 2)
    assert fused([[3.0, 1.0], [1.0, 3.0]], [2, -1]) == pytest.approx([2 / 61 + 1 / 61, 2 / 62 + 1 / 62])
    assert fused([]) == []
