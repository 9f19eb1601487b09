"""A node's message holds its own part and those of its children, once; the plan of them all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hooktrace.ranks.whole_job.gatherer import (
    Gatherer,
    Plan,
    decode_lines,
    decode_part,
    next_plan,
)

from .parts import MODEL, line_of, message_of, part_of


def test_parts_of_children_and_its_own_are_one() -> None:
    """As if one node had told of all ranks; nothing is told twice, and lines are kept."""
    leader = Gatherer()
    leader.add([(MODEL, part_of(0, 4))], [line_of(0, [part_of(0, 4)])])
    leader.take(1, message_of([1], [4], late=1))
    leader.take(2, message_of([2], [4]))
    assert leader.message() == message_of([0, 1, 2], [4], late=1)
    assert leader.message() is None
    leader.take(2, message_of([2], [5]))
    part = decode_part(leader.message() or b"")
    lines = [(line.rank, line.step) for line in decode_lines(part.lines)]
    assert lines == [(0, 4), (1, 4), (2, 5)]
    assert [(model, [s.step for s in steps]) for model, steps in part.steps] == [(MODEL, [5])]


def test_what_had_no_room_is_counted_below_too() -> None:
    """Steps between two messages are bounded."""
    child, leader = Gatherer(), Gatherer()
    child.add([(MODEL, part_of(1, step)) for step in range(300)], [])
    leader.take(1, child.message() or b"")
    assert decode_part(leader.message() or b"").lost == 300 - 256


@given(st.integers(1, 20_000), st.floats(0, 1e4), st.sampled_from([1, 2, 8, 1 << 20]))
def test_the_hub_can_take_it_and_the_plan_stays(senders: int, rate: float, every: int) -> None:
    """No more than 625 parts of steps a second, whatever was before; asked again it is kept.

    A small job tells every step each second; 10,000 ranks each 10 s, of every fourth.
    """
    plan = next_plan(Plan(1.0, every), senders, rate)
    assert senders * rate / plan.every <= 625
    assert senders / plan.interval_s <= max(125, senders / 20)
    assert next_plan(plan, senders, rate) == plan
    assert next_plan(Plan(), 8, 75.0) == Plan(1.0, 1)
    assert next_plan(Plan(), 1250, 2.0) == Plan(10.0, 4)
