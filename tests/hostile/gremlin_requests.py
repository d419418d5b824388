"""Hostile requests to the Gremlin door: legal scripts whose traversers or values grow with the square or the cube of
what is stored, or without anything stored at all. Named ones, and a generator of more from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Script(NamedTuple):
    name: str
    text: str
    timeout_ms: int | None = None


def graph(count: int) -> Iterator[str]:
    """Scripts that store the graph: so many vertices, each with three edges, one with many properties."""
    for first in range(0, count, 20):
        adding = "".join(
            f".addV('n').property(id,'v{n}').property('pk','p').property('n',{n}).property('t','{'word ' * 20}{n}')"
            for n in range(first, min(first + 20, count))
        )
        yield f"g{adding}.count()"
    for first in range(0, count, 20):
        for place in range(first, min(first + 20, count)):
            yield (
                "g"
                + "".join(
                    f".V('v{place}').addE('to').to(__.V('v{(place * step + step) % count}'))" for step in (1, 2, 3)
                )
                + ".count()"
            )


def _list(count: int) -> str:
    return "[" + ",".join(map(str, range(count))) + "]"


def named(size: int) -> Iterator[Script]:
    values = _list(min(size, 2_000))
    some = _list(300)
    yield Script("product", f"g.inject({some}).product({some}).unfold().count()")
    yield Script("product of products", f"g.inject({some}).product({some}).product({some}).count(local)")
    yield Script(
        "cross product of unfold",
        f"g.inject(1).map(constant({some})).unfold().flatMap(constant({some}).unfold()).count()",
    )
    yield Script(
        "three loops", "g.inject(1).repeat(flatMap(constant([1,2,3,4,5,6,7,8,9,10]).unfold())).times(5).count()"
    )
    yield Script("loops that keep paths", "g.V().repeat(both()).times(4).path().count()")
    yield Script("loops without end", "g.V().repeat(both()).count()", 200)
    yield Script("loops that emit", "g.V().emit().repeat(out()).times(6).dedup().count()", 3_000)
    yield Script("paths by properties", "g.V().out().out().path().by('t').limit(2000)")
    yield Script("order by text", "g.V().order().by('t', desc).limit(3)")
    yield Script("order of a list", f"g.inject({values}).order(local).by(desc).count(local)")
    yield Script("order of unfold", f"g.inject({values}).unfold().order().by(desc).tail(1)")
    yield Script("order by traversal", "g.V().order().by(both().count()).limit(3)")
    yield Script("shuffle", f"g.inject({values}).unfold().order().by(shuffle).count()")
    yield Script("dedup of lists", f"g.inject({values}).unfold().map(constant({some})).dedup().count()")
    yield Script("dedup local", f"g.inject({values}).dedup(local).count(local)")
    yield Script("group by text", "g.V().group().by('t').by(count())")
    yield Script("group by traversal", "g.V().group().by(out().count()).by(both().values('t').fold())")
    yield Script("group of everything", "g.V().as('a').out().as('b').group().by(select('a')).by(select('b').fold())")
    yield Script("groupCount of lists", f"g.inject({values}).unfold().groupCount().by(constant({some}))")
    yield Script("project", "g.V().project('a','b','c').by('t').by(out().values('t').fold()).by(both().count())")
    yield Script(
        "match", "g.V().match(as('a').out().as('b'), as('b').out().as('c'), as('c').out().as('d')).count()", 5_000
    )
    yield Script("where between", "g.V().as('a').both().as('b').where('a', neq('b')).count()")
    yield Script("tree", "g.V().out().out().out().tree().count(local)")
    yield Script("subgraph", "g.E().subgraph('x').cap('x')")
    yield Script("valueMap", "g.V().valueMap(true)")
    yield Script("elementMap folded", "g.V().elementMap().fold().count(local)")
    yield Script("fold again and again", f"g.inject({values}).fold().fold().fold().unfold().unfold().count()")
    yield Script("fold with an operation", f"g.inject({values}).unfold().fold(0, sum)")
    yield Script("lists that are joined", f"g.inject({some}).unfold().fold([], addAll).count(local)")
    yield Script("texts that grow", "g.inject('abcdefghij').repeat(concat(identity())).times(16).length()")
    yield Script("texts that grow too much", "g.inject('abcdefghij').repeat(concat(identity())).times(30).length()")
    yield Script(
        "long texts kept",
        f"g.inject({some}).unfold().constant('{'x' * 2_000}').replace('x','{'y' * 400}').fold().count(local)",
    )
    yield Script(
        "long texts dropped", f"g.inject({some}).unfold().constant('{'x' * 2_000}').replace('x','{'y' * 400}').count()"
    )
    yield Script("texts in parts", f"g.inject('{'a b ' * 5_000}').split(' ').unfold().dedup().count()")
    yield Script("texts put together", f"g.inject({values}).conjoin(';').length()")
    yield Script("asString of lists", f"g.inject({values}).asString().length()")
    yield Script("format", "g.V().as('a').out().as('b').format('%{a} knows %{b}').count()")
    yield Script("math", f"g.inject({values}).unfold().math('_ * 2 + sin(_) ^ 3').sum()")
    yield Script("large numbers", "g.inject(9999999999999999999999).repeat(math('_ * _')).times(9)")
    yield Script("sets of lists", f"g.inject({values}).intersect({values}).count(local)")
    yield Script("difference", f"g.inject({values}).difference({some}).count(local)")
    yield Script("disjunct", f"g.inject({values}).disjunct({some}).count(local)")
    yield Script("within many", f"g.V().has('n', within({', '.join(map(str, range(2_000)))})).count()")
    yield Script(
        "predicates joined", "g.V().has('n', " + ".or(".join(f"gt({n})" for n in range(15)) + ")" * 14 + ").count()"
    )
    yield Script("aggregate and except", "g.V().aggregate('x').out().where(without('x')).count()")
    yield Script("store of everything", "g.V().store('x').out().store('x').out().store('x').cap('x').unfold().count()")
    yield Script("sack", "g.withSack(1.0d).V().repeat(out().sack(mult).by(constant(1.1d))).times(5).sack().sum()")
    yield Script("barrier", "g.V().both().both().both().barrier().both().both().count()")
    yield Script("union of many", "g.V().union(" + ", ".join(["both()"] * 40) + ").count()")
    yield Script("coalesce", "g.V().coalesce(out('none'), both().both()).count()")
    yield Script("choose", "g.V().choose(out().count().is(gt(2)), both().both(), both()).count()")
    yield Script("optional", "g.V().optional(out().out().out()).simplePath().count()")
    yield Script("shortest paths", "g.V().shortestPath().count()", 3_000)
    yield Script("long script", "g.V('v1')" + ".out().in()" * 150 + ".limit(1)", 2_000)
    yield Script("many statements", ";".join(["g.inject(1).count()"] * 90))
    yield Script(
        "deep traversal", "g.V('v1').where(" * 1 + "__.out()." + "where(__.both()." * 12 + "count()" + ")" * 12 + ")"
    )
    yield Script(
        "time limit in one step", f"g.inject({some}).product({some}).unfold().order().by(shuffle).dedup().count()", 50
    )
    yield Script("profile", "g.V().both().both().groupCount().by('t').profile()")


def generated(seed: int, count: int) -> Iterator[Script]:
    dice = random.Random(seed)
    for number in range(count):
        text = (
            _start(dice)
            + "".join(_step(dice) for _ in range(dice.randint(2, 7)))
            + dice.choice((".count()", ".limit(50)", ".fold().count(local)"))
        )
        yield Script(f"generated {seed}/{number}", text, 3_000)


def _start(dice: random.Random) -> str:
    return dice.choice(("g.V()", "g.E()", f"g.inject({_list(200)}).unfold()", f"g.inject({_list(100)}, {_list(50)})"))


def _step(dice: random.Random) -> str:
    inner: list[Callable[[], str]] = [
        lambda: "identity()",
        lambda: f"constant({_list(dice.choice((3, 30)))})",
        lambda: "constant('amber')",
        lambda: "fold()",
        lambda: "count()",
    ]
    one = dice.choice(inner)
    steps = (
        f".map({one()})",
        f".flatMap(constant({_list(dice.choice((2, 20)))}).unfold())",
        f".repeat({one()}).times({dice.randint(1, 4)})",
        ".fold()",
        ".unfold()",
        ".dedup()",
        ".order().by(desc)",
        f".group().by({one()})",
        ".groupCount()",
        ".as('a')",
        ".path()",
        ".aggregate('x')",
        f".project('p','q').by({one()}).by({one()})",
        ".asString()",
        f".where({one()})",
        ".barrier()",
        f".union({one()}, {one()})",
        ".tail(100)",
        ".sample(50)",
        ".both()",
        ".values('t')",
    )
    return dice.choice(steps)
