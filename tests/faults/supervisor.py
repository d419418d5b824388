"""Starts a server, loads it, kills it, starts it again and compares: the cycle of the fault tests.

The state that a kill leaves behind is copied before anything else touches it, and `armillary check` looks at the copy
while the next server is already starting on the original.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from faults import emptied
from faults.client import connected
from faults.ledger import Ledger
from faults.server import ARMILLARY, Server, check_directory
from faults.workload import CLIENTS, DOCS, Writer, key_header, prepare, read_definitions, read_everything
from support.waiting import until

LOAD_S_MIN, LOAD_S_MAX = 0.15, 0.6
OK_MIN, FAILED_MIN = 51, 6  # in each load
KILLED_EARLY_SHARE = 0.25  # of the starts, killed before the server is ready
KILLED_EARLY_S_MAX = 0.1
POINT_READS = 40


class Supervisor(Server):
    def __init__(
        self, directory: Path, durability: str, seed: int, *, command: Sequence[str] = ARMILLARY, prints: bool = True
    ) -> None:
        super().__init__(directory, durability, command=command)
        self.ledger = Ledger()
        self._dice = random.Random(seed)
        self._prints = prints
        self._stopping = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._writers = [Writer(each, self.ledger, random.Random(f"{seed}/{each}")) for each in range(CLIENTS)]
        self._say(f"durability {durability}, --seed {seed}")

    async def run(self, cycles: int, *, until: str | None = None) -> int:
        """Cycles until the count is reached or something is wrong (of the kind `until`, if given). How many it took."""
        began_s = time.monotonic()
        checking: asyncio.Task[None] | None = None
        done = 0
        try:
            await self.start()
            async with connected(self.port) as client:
                await prepare(client, self.ledger)
            for done in range(1, cycles + 1):
                await self.load_well(self._dice.uniform(LOAD_S_MIN, LOAD_S_MAX))
                await self.kill()
                await self.end_load()
                checking = asyncio.create_task(self._check_copy(self._copy(done)))
                await self._start_after_crash()
                await self.verify()
                await checking
                if any(until in (None, violation.kind) for violation in self.ledger.violations):
                    break
            await self.stop()
            await self.check(self.directory)
        finally:
            await self.kill()
            if checking is not None:
                await asyncio.wait([checking])
        self._say(f"{done} cycles in {time.monotonic() - began_s:.0f} s: {dict(self.ledger.tally)}")
        return done

    async def _start_after_crash(self) -> None:
        """Sometimes the machine has a second accident while the first is being repaired."""
        while self._dice.random() < KILLED_EARLY_SHARE:
            await self.start(is_waiting=False)
            await asyncio.sleep(self._dice.uniform(0, KILLED_EARLY_S_MAX))
            await self.kill()
        await self.start()

    async def stop(self) -> int:
        """As an operator would: SIGTERM, and the server ends by itself without a complaint."""
        code = await super().stop()
        if code != 0:
            self.ledger.accuse("stop", f"the server ended with {code}\n{self.log_text}")
        return code

    # Load and comparison.

    async def load(self, seconds: float) -> None:
        """All clients at work, until the time is over; their requests are still under way then."""
        self._stopping = asyncio.Event()
        self._running = [asyncio.create_task(writer.run(self.port, self._stopping)) for writer in self._writers]
        await asyncio.sleep(seconds)

    async def load_well(self, seconds: float) -> None:
        """The same, and on a slow machine for longer: who writes next to nothing finds nothing."""
        tally = self.ledger.tally
        enough = {"OK": tally["OK"] + OK_MIN, "FAILED": tally["FAILED"] + FAILED_MIN}
        await self.load(seconds)
        await until(
            lambda: (
                all(tally[kind] >= count for kind, count in enough.items())
                or all(client.done() for client in self._running)
            ),
            f"requests enough: {dict(tally)}",
        )

    async def end_load(self) -> None:
        """Let the clients finish what they began."""
        self._stopping.set()
        await asyncio.gather(*self._running)
        self._running = []

    @property
    def refused_full(self) -> int:
        return sum(writer.refused_full for writer in self._writers)

    async def verify(self, *, is_final: bool = True) -> None:
        """Compare everything that the server shows with the ledger. Not final: unknown writes stay unknown."""
        ledger = self.ledger if is_final else deepcopy(self.ledger)
        open_ids = [
            (group, item_id)
            for group in ledger.groups.values()
            if group.open_event is not None
            for item_id in group.open_event.after.keys() | group.settled.keys()
        ]
        async with connected(self.port) as client:
            items, wrong = await read_everything(client, ledger.session)
            ledger.violations += wrong
            if any(violation.kind == "answer" for violation in wrong):
                self.ledger.violations = ledger.violations
                return  # what was not listed need not be lost
            ledger.compare(items)
            ledger.compare_definitions(await read_definitions(client))
            await emptied.compare(client, ledger, [each.emptying for each in self._writers], is_final=is_final)
            # The list and the point read must tell the same.
            shown = {item["id"]: item for item in items}
            sample = self._dice.sample(open_ids, min(len(open_ids), POINT_READS))
            for group, item_id in sample:
                answer = await client.request("GET", f"{DOCS}/{item_id}", None, key_header(group.key))
                is_same = answer.json == shown[item_id] if item_id in shown else answer.status == 404
                if not is_same:
                    ledger.accuse("answer", f"{item_id} is listed as {shown.get(item_id)} and read as {answer}")
        self.ledger.violations = ledger.violations

    # armillary check.

    def _copy(self, cycle: int) -> Path:
        copy = self.directory.with_name(f"{self.directory.name}-{cycle}")
        shutil.copytree(self.directory, copy)
        return copy

    async def _check_copy(self, copy: Path) -> None:
        count = len(self.ledger.violations)
        await self.check(copy)
        if len(self.ledger.violations) == count:
            shutil.rmtree(copy)  # else it is kept for an investigation

    async def check(self, directory: Path) -> None:
        problem = await check_directory(directory)
        if problem:
            self.ledger.accuse("check", problem)

    def _say(self, text: str) -> None:
        if self._prints:
            print(text, flush=True)

    def report(self) -> str:
        """What is wrong; nothing: the empty text."""
        if not self.ledger.violations:
            return ""
        return "\n".join([*map(str, self.ledger.violations[:20]), "The server's log ends:", self.log_text])
