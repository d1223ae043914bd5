"""The line of claims: beside one that moves everybody down, and what leaving costs."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from batchqueue_async.ring import RingBuffer
from batchqueue_async.ring.claim_queue import ClaimQueue, WaitingClaim
from batchqueue_async.ring.handler_call import ConsumerSequence, HandlerCall
from batchqueue_async.ring.sequence import Sequence
from benchmarks.opcodes import Instructions
from tests.support.comparisons import CountsComparisons


@dataclass
class Plain:
    """The same by the book: whoever leaves, all behind him move down, one by one."""

    claimed: int = -1
    highs: dict[WaitingClaim, int] = field(default_factory=dict)

    def grant(self, claim: WaitingClaim) -> None:
        self.claimed += claim.n
        self.highs[claim] = self.claimed

    def give_back(self, claim: WaitingClaim) -> bool:
        if claim not in self.highs:
            return False
        granted = list(self.highs)
        later = granted[granted.index(claim) + 1 :]
        if self.highs[claim] + sum(each.n for each in later) != self.claimed:
            return False
        del self.highs[claim]
        for each in later:
            self.highs[each] -= claim.n
        self.claimed -= claim.n
        return True

    @property
    def settled(self) -> int:
        starts = [high - claim.n for claim, high in self.highs.items()]
        return min([self.claimed, *starts])


class Both:
    """Both lines, which see the same claims."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.queue = ClaimQueue()
        self.plain = Plain()
        self.claimed = -1

    def wait(self) -> None:
        claim = WaitingClaim(self.chance.randint(1, 3))
        claim.wake = lambda: None
        self.queue.append(claim)

    def grant(self) -> None:
        if self.queue.waiting:
            claim = next(iter(self.queue.waiting))
            self.claimed = self.queue.grant(self.claimed)
            self.plain.grant(claim)

    def claim_at_once(self) -> None:
        if not self.queue.waiting:
            self.claimed += 1
            self.plain.claimed += 1

    def run(self) -> None:
        if self.plain.highs:
            # Those on the loop run in order, those on threads do not.
            claims = list(self.plain.highs)
            claim = claims[0] if self.chance.random() < 0.5 else self._one(claims)
            self.queue.remove(claim)
            assert claim.high == self.plain.highs.pop(claim)

    def leave(self) -> None:
        if self.plain.highs:
            claim = self._one(list(self.plain.highs))
            is_back = self.queue.give_back(claim, self.claimed)
            assert is_back == self.plain.give_back(claim)
            if is_back:
                self.claimed -= claim.n
                self.queue.forget()
            else:
                self.queue.remove(claim)
                assert claim.high == self.plain.highs.pop(claim)
            assert not self.queue.give_back(claim, self.claimed), "only once"

    def leave_unserved(self) -> None:
        if self.queue.waiting:
            self.queue.remove(self._one(list(self.queue.waiting)))

    def check(self) -> None:
        assert self.claimed == self.plain.claimed
        assert self.queue.settled(self.claimed) == self.plain.settled
        assert self.queue.wanted == sum(each.n for each in self.queue.waiting)
        assert bool(self.queue._granted) == bool(self.plain.highs)

    def _one(self, claims: list[WaitingClaim]) -> WaitingClaim:
        return self.chance.choice(claims)


@pytest.mark.parametrize("seed", range(50))
def test_who_leaves_is_as_if_he_had_never_been_there(seed: int) -> None:
    both = Both(random.Random(seed))
    verbs = [both.wait, both.grant, both.run, both.leave, both.leave_unserved]
    weights = [4, 4, seed % 3 + 1, seed % 4 + 1, 1]
    for _ in range(200):
        both.chance.choices([*verbs, both.claim_at_once], [*weights, 1])[0]()
        both.check()


class Compared(CountsComparisons, WaitingClaim):
    """A claim that counts how often it is compared."""


def test_nobody_is_looked_for_in_the_line() -> None:
    queue, claims = ClaimQueue(), [Compared(1) for _ in range(500)]
    for claim in claims:
        queue.append(claim)
    Compared.comparisons = 0
    for claim in reversed(claims):
        queue.remove(claim)
    assert not queue.waiting
    assert Compared.comparisons == 0


async def test_a_handler_may_start_any_number_that_wait() -> None:
    """For each it is looked who would wait for whom, but not all along the line."""

    async def cost(count: int) -> int:
        ring, gate, counts = RingBuffer(object, 1), Sequence(), Instructions()
        ring.add_gating_sequences(gate)
        ring.publish(await ring.claim())
        HandlerCall(ConsumerSequence(ring.new_barrier()))
        with counts.counted():
            tasks = [asyncio.ensure_future(ring.claim()) for _ in range(count)]
            await asyncio.sleep(0)
        ring.halt()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sum(counts.by_line().values())

    assert await cost(800) / await cost(200) < 5.0


@pytest.mark.parametrize("is_granted", [False, True])
@pytest.mark.parametrize("step", [1, pytest.param(-1, marks=pytest.mark.slow)])
async def test_leaving_costs_the_same_for_each(is_granted: bool, step: int) -> None:
    """4.4 s for 8,000 that a full ring had granted, when each moved those behind it."""

    async def cost(count: int) -> int:
        ring, gate, counts = RingBuffer(object, 1024), Sequence(), Instructions()
        ring.add_gating_sequences(gate)
        for _ in range(ring.capacity):
            ring.publish(await ring.claim())
        tasks = [asyncio.ensure_future(ring.claim()) for _ in range(count)]
        await asyncio.sleep(0)
        if is_granted:
            gate.value = ring.capacity - 1
        with counts.counted():
            for task in tasks[::step]:
                task.cancel()
            await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        return sum(counts.by_line().values())

    assert await cost(800) / await cost(200) < 5.0
