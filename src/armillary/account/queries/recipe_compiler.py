"""Compiles selections from recipes: what another process asks of this one's partitions (`query/recipes.py`). Compiled
texts are cached by the languages, as those of this process's own queries are.
"""

from __future__ import annotations

from typing import NamedTuple

from armillary import work
from armillary.account.account import Account
from armillary.account.collections import indexes
from armillary.account.collections.collection_rules import dice
from armillary.account.container import Container
from armillary.account.items.procedures import document_functions, query_functions
from armillary.languages.mongo.filters.filter_recipes import DocumentsRecipe
from armillary.languages.odata.compile import FilterSource, compile_filter
from armillary.languages.sql.compiling.compile import BoundQuery, UserFunctions, compile_recipe
from armillary.languages.sql.compiling.query_recipes import QueryRecipe
from armillary.query.gather import partial
from armillary.query.recipes import FilterRecipe, ItemsRecipe, PartialRecipe, items_of
from armillary.query.selection import Recipe, Selection


class Compiled(NamedTuple):
    selection: Selection
    bound: BoundQuery | None = None  # of a query of the SQL language
    functions: UserFunctions | None = None  # that it calls


async def compiled(account: Account, container: Container, recipe: Recipe) -> Compiled:
    """Ready to be executed."""
    made = await work.run(lambda: compile_now(account, container, recipe))
    if made.functions is not None:
        await made.functions.ready()
    return made


def compile_now(account: Account, container: Container, recipe: Recipe) -> Compiled:
    match recipe:
        case QueryRecipe():
            return _query(account, container, recipe)
        case PartialRecipe(whole):
            made = compile_now(account, container, whole)
            return Compiled(partial(made.selection), None, made.functions)
        case FilterRecipe(query):
            made = compile_now(account, container, query)
            return Compiled(items_of(made.selection), None, made.functions)
        case ItemsRecipe():
            return Compiled(recipe.selection())
        case FilterSource(text, within):
            return Compiled(compile_filter(text, within).selection())
        case DocumentsRecipe():
            javascript = document_functions(account, container.database.name)
            return Compiled(recipe.selection(dice(account.clock), javascript, indexes.text_index(container)))
    raise AssertionError(f"no selection is made of {type(recipe).__name__}")


def _query(account: Account, container: Container, recipe: QueryRecipe) -> Compiled:
    query = compile_recipe(recipe)
    context = container.query_context()
    context.set_static_ticks(recipe.static_ticks)
    functions = query_functions(account, container) if query.calls_functions else None
    bound = query.bind(recipe.parameters, context, functions)
    return Compiled(bound.selection, bound, functions)
