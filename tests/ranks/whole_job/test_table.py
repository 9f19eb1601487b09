"""The last steps of each model: bounded, and what has no room is counted."""

from __future__ import annotations

from hooktrace.ranks.whole_job.table import StepTable

from .parts import MODEL, part_of


def test_parts_of_a_step_are_put_together() -> None:
    """The first is a new step."""
    table = StepTable(4)
    assert table.add(MODEL, part_of(0, 3)) == (part_of(0, 3), True)
    whole, is_new = table.add(MODEL, part_of(1, 3))
    assert whole is not None
    assert (whole.ranks, is_new) == (2, False)
    assert table.of(MODEL) == {3: whole}
    assert table.of(("other", "hook")) == {}


def test_the_oldest_step_goes_and_stays_away() -> None:
    """A part that comes after that is lost, and counted."""
    table = StepTable(2)
    for step in (1, 2, 3):
        table.add(MODEL, part_of(0, step))
    assert table.add(MODEL, part_of(1, 1)) == (None, False)
    assert (list(table.of(MODEL)), table.lost) == ([2, 3], 2)


def test_memory_is_bounded_whatever_models_there_are() -> None:
    """A job may make new ones in every step."""
    table = StepTable(2)
    for number in range(1000):
        table.add((f"model{number}", "hook"), part_of(0, number))
    assert [name for (name, _), _ in table.models()] == [f"model{n}" for n in range(984, 1000)]
    table.clear()
    assert list(table.models()) == []
