"""The hub's part with ranks that are only answers: what is told, once, and that it is over."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hooktrace.ranks.channel.messages import Member, Notice, Silent
from hooktrace.ranks.channel.node import Answers
from hooktrace.ranks.hang import service as module
from hooktrace.ranks.hang.messages import STACKS, Hang, RankStatus, Suspicion
from hooktrace.ranks.hang.service import HangHub, over
from hooktrace.records.hang import RankStacks
from tests.ranks.hang.answers import BACKWARD, STEP, S, call, late, model, status, thread, waiting

SUSPICION = Suspicion(place=("model0", STEP, 5), threshold_ns=10 * S)
BETWEEN_S = module._BETWEEN_S
OVER = replace(SUSPICION, over=True)


class Ranks:
    """A channel to ranks that say what the test wants, and what rank 0 knows of what was told."""

    is_hub = True
    world_size = 2
    number = 0
    open: tuple[Hang, float] | None = None

    def __init__(self) -> None:
        self.channel = self
        self.statuses = [waiting(0), late(1)]
        self.silent: dict[int, Any] = {}
        self.asked: list[str] = []
        self.notices: list[Hang] = []
        self.now_s = 0.0
        self.hub = HangHub(self)

    def hear(self, rank: int, suspicion: Suspicion) -> None:
        self.hub.hear(rank, msgspec.msgpack.encode(suspicion))

    def monotonic(self) -> float:
        return self.now_s

    async def gather(self, name: str, argument: bytes, timeout_s: float) -> Any:
        self.asked.append(name)
        answers: dict[int, Any] = {one.rank: one for one in self.statuses}
        if name == STACKS:
            answers = {
                rank: RankStacks(rank=rank, pid=1, host="node1", state="running", text="a stack")
                for rank in answers
            }
        encoded = {rank: msgspec.msgpack.encode(one) for rank, one in answers.items()}
        return Answers(encoded, self.silent)

    def notice(self, notice: Notice) -> None:
        found = msgspec.msgpack.decode(notice.payload, type=Hang)
        self.notices.append(found)
        self.number = found.hang + 1
        self.open = None if found.ended_after_ns is not None else (found, self.monotonic())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.look = asyncio.get_running_loop().create_task(work)

    async def told(self, count: int) -> Hang:
        await self.until(lambda: len(self.notices) >= count)
        return self.notices[-1]

    async def look_again(self) -> None:
        asked = len(self.asked)
        await self.until(lambda: len(self.asked) > asked + 4)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.005)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test as the channel's thread runs the hub."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    made = Ranks()
    monkeypatch.setattr(module, "_BETWEEN_S", 0.0)
    monkeypatch.setattr(module, "_AGAIN_S", (0.02,))
    monkeypatch.setattr(module, "time", made)
    return made


@in_loop
async def test_told_once_and_over(ranks: Ranks) -> None:
    """However many suspect it, and however long it lasts; of another kind under its number."""
    for rank in range(2):
        ranks.hear(rank, SUSPICION)
    begun = await ranks.told(1)
    assert (begun.hang, begun.kind, begun.ranks) == (0, "busy", (1,))
    assert [stack.rank for stack in begun.stacks] == [1, 0]
    await ranks.look_again()
    assert len(ranks.notices) == 1
    ranks.statuses = [waiting(0), late(1, thread={"exception": "E: x at a.py:1"})]
    again = await ranks.told(2)
    assert (again.hang, again.kind, again.ended_after_ns) == (0, "raised", None)
    ranks.hear(0, OVER)
    assert len(ranks.notices) == 2
    ranks.hear(1, OVER)
    ended = await ranks.told(3)
    assert (ended.hang, ended.stacks, (ended.ended_after_ns or 0) // S) == (0, (), 31)
    ranks.hear(0, SUSPICION)
    assert (await ranks.told(4)).hang == 1


@in_loop
async def test_an_end_is_told_at_once(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after the pause before the next look, of a minute; with what the call raised."""
    monkeypatch.setattr(module, "_AGAIN_S", (1000.0,))
    ranks.hear(0, SUSPICION)
    await ranks.told(1)
    ranks.hear(0, replace(OVER, error="RuntimeError: timed out"))
    ended = await ranks.told(2)
    assert ended.failed
    assert "failed after at most 31 s: RuntimeError: timed out" in ended.message


@in_loop
async def test_an_end_that_is_heard_while_the_hang_is_told_is_told_too(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stacks take half a second."""
    gather = ranks.gather

    async def asked(name: str, argument: bytes, timeout_s: float) -> Any:
        if name == STACKS:
            ranks.hear(0, OVER)
        return await gather(name, argument, timeout_s)

    monkeypatch.setattr(ranks, "gather", asked)
    ranks.hear(0, SUSPICION)
    assert (await ranks.told(2)).ended_after_ns is not None


@in_loop
async def test_of_two_that_wait_for_each_other_none_has_ended(ranks: Ranks) -> None:
    """Two models in different order: whose call is found to be the oldest may change."""

    def stands(rank: int, own: str, other: str, age_s: int) -> RankStatus:
        at = call(model=own, age_ns=age_s * S)
        behind = model(model=other, step=STEP - 1, bucket=7)
        return status(rank, model(at), behind, main=thread(doing=BACKWARD))

    for age_s in (31, 29):
        ranks.statuses = [stands(0, "a", "b", age_s), stands(1, "b", "a", 30)]
        ranks.hear(0, SUSPICION)
        await ranks.told(1)
        await ranks.look_again()
    (begun,) = ranks.notices
    assert (begun.kind, begun.model) == ("different_order", "a")


@pytest.mark.parametrize("said", [[], [waiting(0, call(age_ns=S // 10)), late(1)]])
@in_loop
async def test_it_is_asked_again_until_it_is_told(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, said: list[RankStatus]
) -> None:
    """What moves, or a call that is young: a suspicion of an earlier one is not over yet."""
    monkeypatch.setattr(module, "_AGAIN_S", (0.02, 1000.0))
    statuses, ranks.statuses = ranks.statuses, said
    ranks.hear(0, SUSPICION)
    await ranks.look_again()
    assert ranks.notices == []
    ranks.statuses = statuses
    await ranks.told(1)


@in_loop
async def test_two_rounds_at_once_say_nothing(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that goes on between them does not hurry the second one."""
    monkeypatch.setattr(module, "_BETWEEN_S", 1000.0)
    for rank in range(2):
        ranks.hear(rank, SUSPICION)
    await ranks.until(lambda: len(ranks.asked) == 1)
    ranks.hear(1, OVER)
    await ranks.until(lambda: len(ranks.asked) > 1)
    assert ranks.notices == []


def test_a_hang_is_told_four_seconds_after_the_suspicion() -> None:
    """At the latest: where ranks do not answer, all of these pass."""
    assert BETWEEN_S + module._FIRST_S + module._SECOND_S + module._STACKS_S <= 4.0


@in_loop
async def test_what_may_take_long_and_then_has_the_usual_time(ranks: Ranks) -> None:
    """Ten times as long; when it goes on, the others have waited long, which is no hang yet."""
    ranks.statuses = [waiting(0), late(1, thread={"doing": ("saving",)})]
    ranks.hear(0, SUSPICION)
    await ranks.look_again()
    ranks.statuses = [waiting(0), late(1)]
    for ranks.now_s in (20.0, 29.9):
        await ranks.look_again()
        assert ranks.notices == []
    ranks.now_s = 30.1
    assert not (await ranks.told(1)).excused


@in_loop
async def test_what_may_take_long_is_told_in_the_end(ranks: Ranks) -> None:
    """Three seconds are a tenth of what it has waited."""
    ranks.statuses = [waiting(0), late(1, paused=True)]
    ranks.hear(0, replace(SUSPICION, threshold_ns=3 * S))
    assert (await ranks.told(1)).excused


@in_loop
async def test_of_a_silent_rank_the_state_of_its_process_is_told(ranks: Ranks) -> None:
    """It has no stacks that it could tell."""
    ranks.silent = {1: Silent(Member(1, 77, "node1", "node1#boot"), "running")}
    ranks.statuses = [waiting(0)]
    ranks.hear(0, SUSPICION)
    begun = await ranks.told(1)
    assert begun.kind == "interpreter_held"
    stacks = [(one.rank, one.state, one.text) for one in begun.stacks]
    assert stacks == [(1, "running", ""), (0, "running", "a stack")]


FOUND = Hang(
    kind="busy", model="net", hook="fully_shard", step=3, bucket=31, ranks=(1,), waiting=(0,),
    age_ns=33 * S, message="", unit="blocks.2 all-gather (forward)", order=9,
)  # fmt: skip


def test_each_rank_records_it_in_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """And for how long it had lasted; a sharded model's by its unit."""
    record = FOUND.record(1, 102 * S, 1002 * S)
    assert (record.rank, record.since_ns, record.since_wall_ns) == (1, 69 * S, 969 * S)
    assert (record.kind, record.step, record.unit) == ("busy", 3, FOUND.unit)
    name = "blocks.2 all-gather (forward) of step 3, which had waited for rank 1"
    said = f"it went on after at most 33 s: {name} (busy)"
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 5.0))
    assert over(FOUND, 5.0).message == said
    failed = f"{name}, failed after at most 33 s: E: x"
    assert over(FOUND, 5.0, "E: x").message == failed
