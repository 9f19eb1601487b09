"""A node's message holds its own part and those of its children, once."""

from __future__ import annotations

from hooktrace.ranks.whole_job.job_steps import Gatherer, decode_lines, decode_part

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
