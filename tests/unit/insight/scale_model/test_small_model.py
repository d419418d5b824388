"""The small engine of scale models: items of the wanted size and terms, scaling that keeps what matters, runs that
repeat."""

from __future__ import annotations

import random

import pytest

from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure
from armillary.insight.planning.distributions import KeyShares
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.insight.planning.workload import Workload, parse_workload
from armillary.insight.scale_model.model_items import ItemForm, KeyDraws
from armillary.insight.scale_model.run import ScaleModel
from armillary.insight.scale_model.scaling import Scaling
from armillary.insight.scale_model.small_account import SmallAccount
from armillary.model import charges
from armillary.model.key_values import Key

DAY_S = 86_400.0


def workload(
    operations: str, container: str = "throughput = 20000", data: str = "uniform = 1000", more: str = ""
) -> Workload:
    text = f"""
container = {{ partition_key = ["/customerId"], {container} }}
data = {{ item_bytes = 1024, terms = 10, keys = {{ {data} }} }}
operations = [{operations}]
{more}
"""
    return parse_workload(text, lambda name: "")


async def test_items_have_the_size_and_the_terms_that_were_asked_for() -> None:
    small = await SmallAccount.begin(PartitionLimits(), Throughput.manual(400), levels=2)
    key = ("tenant", "user")
    form = await ItemForm.measured(small, key, 2_500, 14, 10)
    for number in (0, 77_777):
        before = (await small.stored()).size_bytes
        answer = await items.create(small.container, form.document(key, number), ItemOptions(key=Key(key)), small.clock)
        assert (await small.stored()).size_bytes - before == 2_500
        assert answer.charge_ru == pytest.approx(charges.create_ru(2_500, 14), abs=0.01)
    for size_bytes, terms, refusal in ((300, 10, "at least 4[0-9]{2} bytes"), (1024, 2, "at least [45] index terms")):
        with pytest.raises(Failure, match=refusal):
            await ItemForm.measured(small, key, size_bytes, terms, 10)
    await small.close()


def test_keys_are_drawn_by_their_shares(seed: int) -> None:
    draws = KeyDraws(KeyShares.of_zipf(100_000, 1.0), random.Random(seed))
    drawn = [draws.draw()[0] for _ in range(20_000)]
    shares = KeyShares.of_zipf(100_000, 1.0)
    assert drawn.count("k1") / 20_000 == pytest.approx(shares.named[0][1], rel=0.1)
    rest = [int(str(each)[1:]) for each in drawn if int(str(each)[1:]) > 10_000]
    assert len(rest) / 20_000 == pytest.approx(shares.rest_share, rel=0.1)
    assert max(rest) <= 100_000


def test_what_is_shrunk_and_what_is_not() -> None:
    large = workload('{ kind = "create", rate = 1000 }, { kind = "read", rate = 5000 }')
    scaling = Scaling.of(large, 30 * DAY_S, 20_000)
    assert scaling.throughput == 8, "with 64 partitions at the end, each has budget for several creates"
    assert scaling.storage == pytest.approx(1000 * 30 * DAY_S / 20_000)
    shrunk = scaling.workload(large)
    assert [each.rate for each in shrunk.operations] == [125, 625]
    assert shrunk.provision is not None
    assert (shrunk.provision.ru, shrunk.bounds.throughput_ru) == (2_500, 1_250)
    small = scaling.bounds(large.bounds)
    assert small.storage_bytes == pytest.approx(shrunk.bounds.storage_bytes * scaling.bytes_of_simulated, rel=1e-6)


@pytest.mark.parametrize(
    ("container", "factor"),
    [("throughput = 20000", 10), ("throughput = 400", 1), ("autoscale = 100000", 10), ("throughput = 10100", 1)],
)
def test_throughput_is_divided_only_into_what_may_be_provisioned(container: str, factor: int) -> None:
    assert Scaling.of(workload('{ kind = "read", rate = 6000 }', container), DAY_S).throughput == factor


def test_without_throughput_there_is_no_model() -> None:
    with pytest.raises(Failure, match="needs provisioned throughput"):
        Scaling.of(workload('{ kind = "read", rate = 1 }', "serverless = true"), DAY_S)


async def test_the_same_seed_gives_the_same_run() -> None:
    large = workload(
        '{ kind = "create", rate = 200 }, { kind = "upsert", rate = 20, existing = 0.5 }, '
        '{ kind = "batch", rate = 5, items = 3 }, { kind = "delete", rate = 8 }, { kind = "patch", rate = 8 }, '
        '{ kind = "replace", rate = 8 }, { kind = "read", rate = 100 }, '
        '{ kind = "query", rate = 8, filter = ["/customerId"], rows = 3 }, '
        '{ kind = "query", rate = 8, filter = ["/other"], rows = 5 }',
        data="zipf = 1.1, count = 500",
        more='changes = [{ at = "P20D", throughput = 40000 }]',
    )
    scaling = Scaling.of(large, 30 * DAY_S, 1_000)
    first, second = [await ScaleModel(large, scaling, 7).run(30 * DAY_S, 2, requests=400) for _ in range(2)]
    assert first == second
    assert first[0].stored.partitions > 4, "storage has made splits"
    for look in first:
        visited = {place for second in look.seen.by_second for _, place in second}  # queries go to all
        assert len(visited) == look.stored.partitions, "the figures are of the partitions that served the requests"
    assert first[1].full > 0, "the heaviest key is full"
    for tally in first[1].seen.tallies:
        assert tally.answered.total() > 0
    assert await ScaleModel(large, scaling, 8).run(15 * DAY_S, 1, requests=400) != first[:1]
