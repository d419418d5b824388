"""Recipes of selections: what is sent to another process in place of a selection, which holds compiled functions. Each
language has a recipe of its own, which its selections know as their origin. Those that are made of others, and those of
selections that have no functions, are here. `account/queries/recipe_compiler.py` makes selections of recipes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from armillary.query.conditions import Condition
from armillary.query.selection import Recipe, Selection, Stage


@dataclass(frozen=True, slots=True)
class ItemsRecipe(Recipe):
    """Items as they are, all that meet a condition: read feeds, the vertices and edges of a graph, whole tables."""

    condition: Condition
    by_key: tuple[str, ...] = ()
    skip: int = 0
    take: int | None = None
    is_exact: bool = False

    def selection(self) -> Selection:
        return Selection(self.condition, skip=self.skip, take=self.take, is_exact=self.is_exact, by_key=self.by_key)


@dataclass(frozen=True, slots=True)
class PartialRecipe(Recipe):
    """What each partition does of a query whose rows are merged (`gather.partial`)."""

    whole: Recipe


@dataclass(frozen=True, slots=True)
class FilterRecipe(Recipe):
    """The items that a query's filter keeps, instead of the query's rows (`items_of`)."""

    query: Recipe


@dataclass(frozen=True, slots=True)
class PartialOrigin:
    """Of what each partition does of a selection."""

    whole: Selection

    def recipe(self, selection: Selection) -> Recipe:
        return PartialRecipe(recipe_of(self.whole))


@dataclass(frozen=True, slots=True)
class FilterOrigin:
    query: Selection

    def recipe(self, selection: Selection) -> Recipe:
        return FilterRecipe(recipe_of(self.query))


def recipe_of(selection: Selection) -> Recipe:
    """What another process compiles the same selection from."""
    if selection.origin is not None:
        return selection.origin.recipe(selection)
    is_of_items = selection.stages == (Stage(),) and selection.ordering is None and selection.ranking is None
    assert is_of_items, "a selection with functions and without an origin stays in its process"
    return ItemsRecipe(selection.condition, selection.by_key, selection.skip, selection.take, selection.is_exact)


def items_of(selection: Selection) -> Selection:
    """The items that the filter of a selection keeps, instead of its rows."""
    predicate = selection.stages[0].predicate
    return replace(selection, stages=(Stage(predicate),), is_exact=False, origin=FilterOrigin(selection))
