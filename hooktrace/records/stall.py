"""When a step counts as stalled: the one definition."""

from __future__ import annotations

LEAST_NS = 2_000_000_000
ENOUGH_STEPS = 8
"""Steps before which none is called stalled: there is no telling what is usual."""


def is_stall(exposed_ns: float, usual_exposed_ns: float, usual_period_ns: float) -> bool:
    """Return whether exposed communication is beyond the usual by two seconds and a whole step.

    A late batch, a busy machine or a lost packet costs less; a rank that is stopped, swaps, or
    writes a checkpoint while the others wait costs that.
    """
    return exposed_ns - usual_exposed_ns >= max(LEAST_NS, usual_period_ns)
