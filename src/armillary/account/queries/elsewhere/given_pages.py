"""Pages whose partitions are all at one other place: they are answered there whole, by the walk that would gather them
here, with one question and without messages about their charge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from armillary.account.container import Container
from armillary.account.queries.elsewhere.slice_questions import FormName, form_name
from armillary.account.queries.item_walk import ItemWalk
from armillary.account.queries.merged_pages import MergedWalk
from armillary.account.queries.partition_slices import PageAnswer, PageRequest, Slice
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.account.visits.elsewhere.place import LocalPlace, Question
from armillary.account.visits.elsewhere.questions import Figures, figures_of
from armillary.account.visits.page_walk import FeedOptions, Moved
from armillary.query.recipes import recipe_of
from armillary.query.selection import Recipe


@dataclass(slots=True)
class PageGiven:
    answer: PageAnswer
    visited: list[int]  # range ids of the partitions that were entered
    figures: dict[int, Figures] = field(default_factory=dict)  # by range id


@dataclass(slots=True)
class ReadPage(Question):
    container: bytes  # rid
    recipe: Recipe
    text: bytes  # that continuations are bound to
    options: FeedOptions
    form: FormName
    is_feed: bool
    is_page_of_one: bool
    is_merged: bool

    async def answer(self, here: LocalPlace) -> PageGiven | None:
        """None: the partitions are not all here."""
        from armillary.account.queries.recipe_compiler import compiled  # with all languages: only a place needs them

        account, container = here.account, here.container(self.container)
        options = replace(self.options, form=self.form.form(container) if self.form.is_bson else None)
        selection = (await compiled(account, container, self.recipe)).selection
        walk: ItemWalk
        if self.is_merged:
            walk = MergedWalk(account, container, options, selection, self.text)
        else:
            walk = ItemWalk(account, container, options, selection, self.text, is_feed=self.is_feed)
        walk.confine(selection.condition)
        walk.is_page_of_one = self.is_page_of_one
        if any(part.partition.is_elsewhere for part in walk.find_parts()):
            return None
        await walk.run("feed" if self.is_feed else "query")
        answer = walk.answer()
        figures = {
            range_id: figures_of(container.partitions[range_id])
            for range_id, _ in answer.lsns
            if range_id in container.partitions
        }
        return PageGiven(answer, list(walk.visited), figures)


async def given_page(
    container: Container, parts: Sequence[Slice], request: PageRequest, options: FeedOptions
) -> PageGiven | None:
    """None: the partitions are at several places. Failures were counted there."""
    first = parts[0].partition
    assert isinstance(first, PartitionElsewhere)
    for part in parts:
        if not isinstance(part.partition, PartitionElsewhere) or part.partition.place is not first.place:
            return None
    asked = ReadPage(
        first.container_name,
        recipe_of(request.selection),
        request.text,
        replace(options, form=None, is_for_other=True),
        form_name(options.form),
        request.is_feed,
        request.is_page_of_one,
        request.is_merged,
    )
    given: PageGiven | None = await first.asked(asked)
    if given is None:
        raise Moved(first)
    for range_id, figures in given.figures.items():
        partition = container.partitions.get(range_id)
        if isinstance(partition, PartitionElsewhere):
            partition.adopt(figures)
    return given
