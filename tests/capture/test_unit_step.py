"""What a sharded model puts into the ring."""

from __future__ import annotations

from hooktrace.capture.unit_step import UnitStep


def test_a_step_is_its_calls() -> None:
    """And says of which generation it is, and whether all of them are here."""
    step = UnitStep([], 2, complete=False)
    assert (list(step), step.generation, step.complete) == ([], 2, False)
